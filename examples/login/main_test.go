package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A client guesses from one address.
type client struct {
	t       *testing.T
	handler http.Handler
	addr    string
}

func newClient(t *testing.T, addr string) client {
	handler, err := newHandler(ratelimit.NewSlidingWindow(memory.New()))
	if err != nil {
		t.Fatal(err)
	}
	return client{t, handler, addr}
}

func (c client) login(account, password string) int {
	form := url.Values{"account": {account}, "password": {password}}.Encode()
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = c.addr + ":1234"
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w.Code
}

func (c client) want(status int, account, password string) {
	c.t.Helper()
	time.Sleep(time.Second) // of a bubble: so as not to reach the limit of all attempts
	if got := c.login(account, password); got != status {
		c.t.Errorf("%s: %s, %s: %d, want %d", c.addr, account, password, got, status)
	}
}

func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "192.0.2.1")
		for range 30 {
			c.want(200, "alice", "correct horse") // free
		}
		for _, spelling := range []string{"alice", "Alice", " alice", "ALICE ", "alice"} {
			c.want(401, spelling, "guess")
		}
		c.want(429, "alice", "guess")
		c.want(429, "alice", "correct horse") // a right guess would not show
		c.want(200, "bob", "battery staple")
		c.addr = "192.0.2.2"
		c.want(429, "alice", "guess")
		time.Sleep(15 * time.Minute)
		c.want(200, "alice", "correct horse")
	})
}

func TestAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "192.0.2.1")
		for i := range 20 {
			c.want(401, strings.Repeat("x", i+1), "guess")
		}
		c.want(429, "someone", "guess")
		c.want(429, "alice", "correct horse")
		c.addr = "192.0.2.2"
		c.want(200, "alice", "correct horse")
	})
}

// Guesses at the same time are bounded too.
func TestAtTheSameTime(t *testing.T) {
	c := newClient(t, "192.0.2.1")
	var wg sync.WaitGroup
	var tried atomic.Int64
	for range 100 {
		wg.Go(func() {
			if c.login("alice", "guess") == http.StatusUnauthorized {
				tried.Add(1)
			}
		})
	}
	wg.Wait()
	if n := tried.Load(); n > 10 {
		t.Errorf("%d guesses, want at most 10", n)
	}
}

func TestBadRequests(t *testing.T) {
	c := newClient(t, "192.0.2.1")
	if got := c.login("", "guess"); got != http.StatusBadRequest {
		t.Errorf("no account: %d, want 400", got)
	}
	if got := c.login(strings.Repeat("x", maxForm), "guess"); got != http.StatusBadRequest {
		t.Errorf("a form that is too long: %d, want 400", got)
	}
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, w, "127.0.0.1:0") }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "listening on ")
	response, err := http.PostForm(address+"/login", url.Values{"account": {"bob"}, "password": {"battery staple"}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s, want 200", response.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), io.Discard, "nowhere"); err == nil {
		t.Error("an address that is none: nil, want an error")
	}
}
