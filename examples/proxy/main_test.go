package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, w, "127.0.0.1:0", 5) }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(line), "listening on ")

	// Whatever it sends, a client is the same client.
	for i, spoofed := range []string{"", "203.0.113.1", "203.0.113.2, 127.0.0.1", "junk", "127.0.0.2"} {
		response, body := get(t, url, "127.0.0.1", spoofed)
		if response.StatusCode != http.StatusOK || !strings.HasSuffix(body, "counted for 127.0.0.1\n") {
			t.Errorf("%q: %s\n%s", spoofed, response.Status, body)
		}
		if got, want := response.Header.Get("RateLimit"), `"per-client";r=`+strconv.Itoa(4-i); !strings.HasPrefix(got, want) {
			t.Errorf("%q: RateLimit %s, want %s", spoofed, got, want)
		}
	}
	if response, _ := get(t, url, "127.0.0.1", "203.0.113.3"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the sixth request: %s, want 429", response.Status)
	}
	if response, _ := get(t, url, "127.0.0.2", "127.0.0.1"); response.StatusCode != http.StatusOK {
		t.Errorf("another client: %s, want 200", response.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// get asks from an address.
func get(t *testing.T, url, from, forwardedFor string) (*http.Response, string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if forwardedFor != "" {
		r.Header.Set("X-Forwarded-For", forwardedFor)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestRunRefuses(t *testing.T) {
	if err := run(t.Context(), io.Discard, "127.0.0.1:0", -1); err == nil {
		t.Error("limit -1: nil, want an error")
	}
	if err := run(t.Context(), io.Discard, "nowhere", 1); err == nil {
		t.Error("an address that is none: nil, want an error")
	}
}
