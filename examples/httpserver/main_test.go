package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

func TestLimited(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testLimited(t, memory.New())
	})
	t.Run("redis", func(t *testing.T) {
		// A slow machine must not turn a 429 into a 503.
		store, err := redisstore.New(redistest.Start(t).Client(t), redisstore.WithTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		testLimited(t, store)
	})
}

func testLimited(t *testing.T, store storage.Storage) {
	const limit = 5
	// An hour, so that nothing comes free while the test runs.
	server := serve(t, store, ratelimit.PerHour(limit))
	for i := range limit {
		response := get(t, server.URL)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s, want 200", i+1, response.Status)
		}
		if got, want := response.Header.Get("X-RateLimit-Remaining"), strconv.Itoa(limit-1-i); got != want {
			t.Errorf("request %d: X-RateLimit-Remaining %q, want %q", i+1, got, want)
		}
		if got := response.Header.Get("Retry-After"); got != "" {
			t.Errorf("request %d: Retry-After %q, want none", i+1, got)
		}
	}
	for range 3 {
		response := get(t, server.URL)
		if response.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("request above the limit: %s, want 429", response.Status)
		}
		if got := response.Header.Get("X-RateLimit-Remaining"); got != "0" {
			t.Errorf("X-RateLimit-Remaining %q, want 0", got)
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil || seconds < 1 || seconds > 3600 {
			t.Errorf("Retry-After %q, want whole seconds from 1 to 3600", response.Header.Get("Retry-After"))
		}
	}
}

func TestLimitOfNothing(t *testing.T) {
	response := get(t, serve(t, memory.New(), ratelimit.PerHour(0)).URL)
	if response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%s, want 429", response.Status)
	}
	if got := response.Header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After %q, want none: no waiting helps", got)
	}
}

func TestClientsDoNotShare(t *testing.T) {
	handler := limited(ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerHour(1), http.HandlerFunc(hello))
	for _, tt := range []struct {
		remoteAddr, forwardedFor string
		want                     int
	}{
		{"192.0.2.1:1000", "", http.StatusOK},
		{"192.0.2.1:2000", "", http.StatusTooManyRequests}, // the same host
		{"192.0.2.1:1000", "192.0.2.9", http.StatusTooManyRequests},
		{"192.0.2.2:1000", "", http.StatusOK},
		{"[2001:db8::1]:1000", "", http.StatusOK},
		{"[2001:db8::1]:2000", "", http.StatusTooManyRequests},
		{"@", "", http.StatusOK}, // a Unix socket
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.RemoteAddr = tt.remoteAddr
		request.Header.Set("X-Forwarded-For", tt.forwardedFor)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		if response.Code != tt.want {
			t.Errorf("%s, X-Forwarded-For %q: %d, want %d", tt.remoteAddr, tt.forwardedFor, response.Code, tt.want)
		}
	}
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0:                             1,
		time.Microsecond:              1,
		time.Second - 1:               1,
		time.Second:                   1,
		time.Second + 1:               2,
		90 * time.Second:              90,
		90*time.Second + 1:            91,
		100 * 365 * 24 * time.Hour:    3153600000,
		100*365*24*time.Hour + 500000: 3153600001,
	} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("wholeSeconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// run listens, serves, and returns when its context ends.
func TestRun(t *testing.T) {
	url, stop := start(t, "")
	if response := get(t, url); response.StatusCode != http.StatusOK {
		t.Errorf("first request: %s, want 200", response.Status)
	}
	if response := get(t, url); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("second request: %s, want 429", response.Status)
	}
	if err := stop(); err != nil {
		t.Errorf("run: %v", err)
	}
	if response, err := http.Get(url); err == nil {
		response.Body.Close()
		t.Error("still serves after run has returned")
	}
}

// A Redis that does not answer makes every request a 503, and soon.
func TestRunWithoutStorage(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url, stop := start(t, silent.Addr().String())
	if response := get(t, url); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s, want 503", response.Status)
	}
	if err := stop(); err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	err := run(t.Context(), io.Discard, "127.0.0.1:0", "", ratelimit.PerHour(-1))
	if !errors.Is(err, ratelimit.ErrInvalidQuota) {
		t.Errorf("limit -1: %v, want ErrInvalidQuota", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := run(t.Context(), io.Discard, taken.Addr().String(), "", ratelimit.PerHour(1)); err == nil {
		t.Error("an address that is taken: nil, want an error")
	}
}

// start runs run on a free port, with one request an hour, and returns where it
// listens and what stops it.
func start(t *testing.T, redisAddr string) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stdout, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, w, "127.0.0.1:0", redisAddr, ratelimit.PerHour(1))
		w.Close()
		done <- err
	}()
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("run ended before it listened: %v", <-done)
	}
	go io.Copy(io.Discard, lines)
	_, url, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	return url, func() error {
		cancel()
		return <-done
	}
}

func serve(t *testing.T, store storage.Storage, quota ratelimit.Quota) *httptest.Server {
	server := httptest.NewServer(limited(ratelimit.NewSlidingWindow(store), quota, http.HandlerFunc(hello)))
	t.Cleanup(server.Close)
	return server
}

// get reads the whole response, so that its connection is idle when the server
// stops.
func get(t *testing.T, url string) *http.Response {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response
}
