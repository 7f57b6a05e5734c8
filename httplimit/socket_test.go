package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
)

// eachServer runs a test on real connections: with and without a wrapped
// ResponseWriter, over HTTP/1 and HTTP/2, with and without a reverse proxy in
// front. The handler is behind a middleware with room for 100 requests.
func eachServer(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, client *http.Client, url string, http2 bool)) {
	for _, wrapped := range []bool{false, true} {
		for _, kind := range []string{"HTTP1", "HTTP2", "proxied"} {
			t.Run(fmt.Sprintf("wrapped=%v/%s", wrapped, kind), func(t *testing.T) {
				var opts []httplimit.Option
				if wrapped {
					opts = append(opts, httplimit.WithCountIf(func(int) bool { return true }))
				}
				server := newServer(t, perHourAround(t, handler, opts...), kind == "HTTP2")
				if kind == "proxied" {
					server = newServer(t, newProxy(t, server.URL), false)
				}
				test(t, server.Client(), server.URL, kind == "HTTP2")
			})
		}
	}
}

func perHourAround(t *testing.T, handler http.Handler, opts ...httplimit.Option) http.Handler {
	return newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(100)), opts...)(handler)
}

func newServer(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func newProxy(t *testing.T, target string) http.Handler {
	to, err := url.Parse(target)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"] // as most proxies do, to their servers' peril
			r.SetXForwarded()
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

func get(t *testing.T, client *http.Client, url string, change ...func(*http.Request)) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for _, c := range change {
		c(r)
	}
	response, err := client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// Server-sent events arrive one by one, each before the next is written.
func TestServerSentEvents(t *testing.T) {
	for name, flush := range map[string]func(w http.ResponseWriter) error{
		"Flusher":            func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"ResponseController": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan bool)
			eachServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					fmt.Fprintf(w, "data: %d\n", i)
					if err := flush(w); err != nil {
						t.Error(err)
					}
					<-seen
				}
			}, func(t *testing.T, client *http.Client, url string, _ bool) {
				response := get(t, client, url)
				require.Contains(t, fieldList(t, response.Header, "RateLimit"), "test")
				lines := bufio.NewReader(response.Body)
				for i := range 3 {
					line, err := lines.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
					seen <- true
				}
			})
		})
	}
}

// An upgrade, as WebSocket does it, and bytes both ways after it.
func TestUpgrade(t *testing.T) {
	upgrade := func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, io.LimitReader(rw, 5))
	}
	eachServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("HTTP/2: %v", err)
			}
			return
		}
		upgrade(w, r)
	}, func(t *testing.T, client *http.Client, url string, http2 bool) {
		response := get(t, client, url, func(r *http.Request) {
			if !http2 {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "echo")
			}
		})
		if http2 {
			require.Equal(t, 2, response.ProtoMajor)
			return
		}
		require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
		conn := response.Body.(io.ReadWriteCloser)
		_, err := conn.Write([]byte("hello"))
		require.NoError(t, err)
		echo, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "hello", string(echo))
	})
}

// Copying to the answer, its deadlines, full duplex, pushes and redirects.
func TestResponseWriterWorks(t *testing.T) {
	eachServer(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		if err := rc.EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
			t.Error(err)
		}
		if p, ok := w.(http.Pusher); ok {
			_ = p.Push("/pushed", nil)
		} else if r.ProtoMajor == 2 {
			t.Error("no Pusher")
		}
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		n, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 100_000)))
		if (err != nil || n != 100_000) && r.Method != http.MethodHead {
			t.Error(n, err)
		}
	}, func(t *testing.T, client *http.Client, url string, _ bool) {
		body, err := io.ReadAll(get(t, client, url+"/away").Body)
		require.NoError(t, err)
		require.Len(t, body, 100_000)
		head, err := client.Head(url)
		require.NoError(t, err)
		require.NoError(t, head.Body.Close())
		require.NotEmpty(t, head.Header.Get("RateLimit"))
	})
}

// A handler that panics breaks its own connection, and is charged.
func TestPanickingHandler(t *testing.T) {
	eachServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(t *testing.T, client *http.Client, url string, _ bool) {
			response, err := client.Get(url)
			if err == nil { // the reverse proxy answers
				require.Equal(t, http.StatusBadGateway, response.StatusCode)
				require.NoError(t, response.Body.Close())
			}
		})
}

// A client that goes away while its handler works is charged all the same.
func TestClientGone(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			began, ended := make(chan bool), make(chan bool)
			policy := newPolicy(t, "test", sliding(), ratelimit.PerHour(1))
			m := newMiddleware(t, policy, httplimit.WithKey(httplimit.Everyone), httplimit.WithCountIf(func(int) bool { return true }),
				httplimit.WithOnError(func(_ *http.Request, err error) { t.Error(err) }))
			inner := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began <- true
				<-r.Context().Done()
			}))
			server := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				inner.ServeHTTP(w, r)
			}), http2)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-began; cancel() }()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			_, err = server.Client().Do(r)
			require.ErrorIs(t, err, context.Canceled)
			<-ended
			d, err := policy.Check(t.Context(), "everyone", 1)
			require.NoError(t, err)
			require.False(t, d.Allowed)
		})
	}
}

// The letters on the wire, of a refused GET and a refused HEAD.
func TestRefusalOnTheWire(t *testing.T) {
	server := newServer(t, newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerMinute(0)))(noContent), false)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		require.True(t, strings.HasPrefix(head, "HTTP/1.1 429 Too Many Requests\r\n"))
		for _, line := range []string{"Retry-After: 60", "Cache-Control: no-store", `Ratelimit: "test";r=0;t=60`, `Ratelimit-Policy: "test";q=0;w=60`, "Content-Type: application/problem+json"} {
			require.Contains(t, strings.Split(head, "\r\n"), line)
		}
		if method == http.MethodHead {
			require.Empty(t, body)
		} else {
			require.JSONEq(t, `{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429, "violated-policies": ["test"]}`, body)
		}
	}
}

// Behind a proxy that adds to what clients send, they cannot choose their key.
func TestBehindProxy(t *testing.T) {
	for name, key := range map[string]httplimit.KeyFunc{
		"but N":   httplimit.ForwardedButN(1),
		"outside": httplimit.ForwardedOutside(proxies("127.0.0.0/16")),
	} {
		t.Run(name, func(t *testing.T) {
			var keys atomic.Value
			seen := func(r *http.Request) (string, error) {
				k, err := key(r)
				keys.Store(k)
				return k, err
			}
			server := newServer(t, perHourAround(t, noContent, httplimit.WithKey(seen)), false)
			inner := newServer(t, newProxy(t, server.URL), false)
			front := newServer(t, newProxy(t, inner.URL), false)
			client := clientFrom(t, "127.1.0.1")
			for _, spoofed := range []string{"", "203.0.113.1", "203.0.113.2, 127.0.0.1", "junk, ,"} {
				response := get(t, client, front.URL, header("X-Forwarded-For", spoofed))
				require.Equal(t, 204, response.StatusCode)
				require.Equal(t, "127.1.0.1", keys.Load())
			}
		})
	}
}

// clientFrom is a client with an address of its own.
func clientFrom(t *testing.T, addr string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
