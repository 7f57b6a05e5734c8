package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	for _, name := range ratelimit.Strategies() {
		t.Run(name, func(t *testing.T) {
			// A day, so that nothing comes free while the test runs.
			url := serve(t, store, ratelimit.PerDay(limit)) + "/hello/" + name
			for i := range limit {
				response := get(t, url)
				if response.StatusCode != http.StatusOK {
					t.Fatalf("request %d: %s, want 200", i+1, response.Status)
				}
				if got, want := response.Header.Get("RateLimit"), fmt.Sprintf("%q;r=%d;t=", name, limit-1-i); !strings.HasPrefix(got, want) {
					t.Errorf("request %d: RateLimit %s, want %s…", i+1, got, want)
				}
				if got := response.Header.Get("Retry-After"); got != "" {
					t.Errorf("request %d: Retry-After %q, want none", i+1, got)
				}
			}
			for range 3 {
				response := get(t, url)
				if response.StatusCode != http.StatusTooManyRequests {
					t.Fatalf("request above the limit: %s, want 429", response.Status)
				}
				seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
				if err != nil || seconds < 1 || seconds > 27*3600 { // the hash limiter frees late
					t.Errorf("Retry-After %q, want whole seconds, at most a day and a little", response.Header.Get("Retry-After"))
				}
				if got, want := response.Header.Get("RateLimit"), fmt.Sprintf("%q;r=0;t=%d", name, seconds); got != want {
					t.Errorf("RateLimit %s, want %s", got, want)
				}
			}
		})
	}
}

func TestPaths(t *testing.T) {
	url := serve(t, memory.New(), ratelimit.PerHour(1))
	for path, want := range map[string]int{"/": 200, "/hello/unheard-of": 404, "/else": 404} {
		for range 2 { // none of them is limited
			if response := get(t, url+path); response.StatusCode != want {
				t.Errorf("%s: %s, want %d", path, response.Status, want)
			}
		}
	}
}

// run listens, serves, and returns when its context ends.
func TestRun(t *testing.T) {
	url, stop := start(t, "")
	if response := get(t, url+"/hello/list"); response.StatusCode != http.StatusOK {
		t.Errorf("first request: %s, want 200", response.Status)
	}
	if response := get(t, url+"/hello/list"); response.StatusCode != http.StatusTooManyRequests {
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
	if response := get(t, url+"/hello/list"); response.StatusCode != http.StatusServiceUnavailable {
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

// serve is the URL of a server that runs until the test ends.
func serve(t *testing.T, store storage.Storage, quota ratelimit.Quota) string {
	t.Helper()
	handler, err := newHandler(store, quota)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
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
