package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A server is the other side: each request takes the next of its answers, and the
// last one again and again.
type server struct {
	t       *testing.T
	answers []answer
	sent    []time.Time
	bodies  []string
	open    int // bodies of answers that are not closed
}

type answer struct {
	status int
	header map[string]string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, r.Body.Close())
		body = string(b)
	}
	a := s.answers[min(len(s.sent), len(s.answers)-1)]
	s.sent, s.bodies = append(s.sent, time.Now()), append(s.bodies, body)
	s.open++
	response := &http.Response{StatusCode: a.status, Header: http.Header{}, Request: r, Body: &answerBody{strings.NewReader("body"), s}}
	for k, v := range a.header {
		response.Header.Set(k, v)
	}
	return response, r.Context().Err()
}

type answerBody struct {
	io.Reader
	server *server
}

func (b *answerBody) Close() error { b.server.open--; return nil }

// A body tells whether it was closed, and cannot be rewound.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func request(t *testing.T, method string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://api.example/", body)
	require.NoError(t, err)
	return r
}

// times are when the requests were sent, since the first of all tests' bubbles.
func (s *server) since(start time.Time) (seconds []float64) {
	for _, at := range s.sent {
		seconds = append(seconds, at.Sub(start).Seconds())
	}
	return seconds
}

var ok = answer{status: 200}

func TestTransportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &server{t: t, answers: []answer{ok}}
		// The fixed windows of a bubble begin when it does.
		policy := newPolicy(t, "api", ratelimit.NewSimpleLimiter(memory.New()), ratelimit.Per(2, 5*time.Second), ratelimit.Per(5, time.Minute))
		client := &http.Client{Transport: &httplimit.Transport{Base: s, Policy: policy}}
		for range 7 {
			response, err := client.Get("http://api.example/")
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		}
		require.Equal(t, []float64{0, 0, 5, 5, 10, 60, 60}, s.since(start))
	})
}

func TestTransportRefuses(t *testing.T) {
	s := &server{t: t, answers: []answer{ok}}
	transport := &httplimit.Transport{Base: s, Policy: newPolicy(t, "api", sliding(), ratelimit.PerHour(1)), Refuse: true}
	client := &http.Client{Transport: transport}
	get(t, client, "http://api.example/")
	sent := &body{Reader: strings.NewReader("x")}
	_, err := client.Do(request(t, http.MethodPost, sent))
	var limited *ratelimit.LimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, "api", limited.Policy)
	require.Equal(t, "api.example", limited.Key)
	require.ErrorIs(t, err, ratelimit.ErrLimited)
	var paused *httplimit.PausedError
	require.False(t, errors.As(err, &paused))
	require.True(t, sent.closed)
	require.Len(t, s.sent, 1)
	get(t, client, "http://other.example/")
}

func TestTransportErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, answers: []answer{ok}}
		policy := newPolicy(t, "api", sliding(), ratelimit.PerMinute(1))
		transport := &httplimit.Transport{Base: s, Policy: policy}
		_, err := transport.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		start := time.Now()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = transport.RoundTrip(request(t, "GET", nil).WithContext(ctx))
		require.ErrorIs(t, err, ratelimit.ErrDeadlineTooNear)
		require.Zero(t, time.Since(start))

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = transport.RoundTrip(request(t, "GET", nil).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(start))

		client := &http.Client{Transport: transport, Timeout: time.Second}
		_, err = client.Get("http://api.example/")
		require.ErrorIs(t, err, ratelimit.ErrDeadlineTooNear)

		transport = &httplimit.Transport{Base: s, Policy: newPolicy(t, "api", &stub{err: ratelimit.ErrUnavailable}, ratelimit.PerMinute(1))}
		_, err = transport.RoundTrip(request(t, "GET", nil))
		require.ErrorIs(t, err, ratelimit.ErrUnavailable)

		transport = &httplimit.Transport{Base: s, Key: constant("")}
		_, err = transport.RoundTrip(request(t, "GET", nil))
		require.ErrorIs(t, err, httplimit.ErrNoKey)
		require.Len(t, s.sent, 1)
	})
}

// How long each answer makes the next request wait.
func TestTransportLearns(t *testing.T) {
	date := func(layout string, d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(layout) // when bubbles begin
	}
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		want   time.Duration
	}{
		{"nothing", 429, nil, 0},
		{"seconds", 429, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"seconds in a 503", 503, map[string]string{"Retry-After": " 7 "}, 7 * time.Second},
		{"of a redirection", 301, map[string]string{"Retry-After": "7"}, 0},
		{"of a success", 200, map[string]string{"Retry-After": "7"}, 0},
		{"none", 429, map[string]string{"Retry-After": "0"}, 0},
		{"a date", 429, map[string]string{"Retry-After": date(http.TimeFormat, 9*time.Second)}, 9 * time.Second},
		{"a date with UTC", 429, map[string]string{"Retry-After": date(time.RFC1123, 9*time.Second)}, 9 * time.Second},
		{"a date of RFC 850", 429, map[string]string{"Retry-After": date("Monday, 02-Jan-06 15:04:05 GMT", 9*time.Second)}, 9 * time.Second},
		{"a date of asctime", 429, map[string]string{"Retry-After": date(time.ANSIC, 9*time.Second)}, 9 * time.Second},
		{"a date by another clock", 429, map[string]string{"Retry-After": date(http.TimeFormat, time.Hour), "Date": date(http.TimeFormat, time.Hour-3*time.Second)}, 3 * time.Second},
		{"a date, with a Date that is none", 429, map[string]string{"Retry-After": date(http.TimeFormat, 9*time.Second), "Date": "junk"}, 9 * time.Second},
		{"a date in the past", 429, map[string]string{"Retry-After": date(http.TimeFormat, -time.Hour)}, 0},
		{"absurd seconds", 429, map[string]string{"Retry-After": "999999999"}, time.Minute},
		{"seconds beyond numbers", 429, map[string]string{"Retry-After": strings.Repeat("9", 1000)}, time.Minute},
		{"an absurd date", 429, map[string]string{"Retry-After": date(http.TimeFormat, 200*365*24*time.Hour)}, time.Minute},
		{"negative", 429, map[string]string{"Retry-After": "-7"}, 0},
		{"a fraction", 429, map[string]string{"Retry-After": "7.5"}, 0},
		{"a number with a sign", 429, map[string]string{"Retry-After": "+7"}, 0},
		{"other digits", 429, map[string]string{"Retry-After": "７"}, 0},
		{"junk", 429, map[string]string{"Retry-After": "soon"}, 0},
		{"before t", 429, map[string]string{"Retry-After": "7", "RateLimit": `"a";r=0;t=20`}, 7 * time.Second},
		{"of 0, before t", 429, map[string]string{"Retry-After": "0", "RateLimit": `"a";r=0;t=20`}, 0},
		{"malformed, after t", 429, map[string]string{"Retry-After": "soon", "RateLimit": `"a";r=0;t=20`}, 20 * time.Second},
		{"t", 429, map[string]string{"RateLimit": `"a";r=0;t=20`}, 20 * time.Second},
		{"t of a success", 200, map[string]string{"RateLimit": `"a";r=0;t=20`}, 20 * time.Second},
		{"t with some left", 200, map[string]string{"RateLimit": `"a";r=1;t=20`}, 0},
		{"t of several", 200, map[string]string{"RateLimit": `"a";r=3;t=50, "b";t=20;r=0;pk=:YQ==:,"c";r=0;t=4`}, 20 * time.Second},
		{"an absurd t", 200, map[string]string{"RateLimit": `"a";r=0;t=999999999999999`}, time.Minute},
		{"a malformed field", 200, map[string]string{"RateLimit": `"a";r=0;t=20, "b`}, 0},
		{"no t", 429, map[string]string{"RateLimit": `"a";r=0`}, 0},
		{"of a draft long gone", 429, map[string]string{"RateLimit": `limit=100, remaining=0, reset=20`}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{t: t, answers: []answer{{tt.status, tt.header}, ok}}
				transport := &httplimit.Transport{Base: s, MaxPause: time.Minute}
				start := time.Now()
				response, err := transport.RoundTrip(request(t, "GET", nil))
				require.NoError(t, err)
				require.Equal(t, tt.status, response.StatusCode, "the answer is the caller's")

				refusing := &httplimit.Transport{Base: s, MaxPause: time.Minute, Refuse: true}
				_, _ = refusing.RoundTrip(request(t, "GET", nil))
				s.sent = s.sent[:1]
				_, err = transport.RoundTrip(request(t, "GET", nil))
				require.NoError(t, err)
				require.Equal(t, tt.want, time.Since(start))
			})
		})
	}
}

func TestTransportPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &server{t: t, answers: []answer{{429, map[string]string{"Retry-After": "10"}}, ok}}
		transport := &httplimit.Transport{Base: s, Refuse: true, Policy: newPolicy(t, "api", sliding(), ratelimit.PerHour(2))}
		client := &http.Client{Transport: transport}
		response, err := client.Get("http://api.example/")
		require.NoError(t, err)
		require.Equal(t, 429, response.StatusCode)
		sent := &body{Reader: strings.NewReader("x")}
		_, err = client.Do(request(t, "POST", sent))
		var paused *httplimit.PausedError
		require.ErrorAs(t, err, &paused)
		require.Equal(t, httplimit.PausedError{Host: "api.example", RetryAfter: 10 * time.Second}, *paused)
		require.NotErrorIs(t, err, ratelimit.ErrLimited)
		require.True(t, sent.closed)

		get(t, client, "http://other.example/") // not paused
		time.Sleep(10 * time.Second)
		get(t, client, "http://api.example/") // the request that was not sent was not charged
		require.Equal(t, []float64{0, 0, 10}, s.since(start))
	})
}

// A wait for the other side ends with the context, and does not begin where it
// could not end before.
func TestTransportPauseHonoursContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, answers: []answer{{503, map[string]string{"Retry-After": "10"}}}}
		transport := &httplimit.Transport{Base: s}
		_, err := transport.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		_, err = transport.RoundTrip(request(t, "GET", nil).WithContext(ctx))
		var paused *httplimit.PausedError
		require.ErrorAs(t, err, &paused)
		require.Zero(t, time.Since(start))
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = transport.RoundTrip(request(t, "GET", nil).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(start))
		require.Len(t, s.sent, 1)
	})
}

// A pause that begins while requests wait for their policy holds them, too.
func TestTransportPauseDuringWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &server{t: t, answers: []answer{ok, {429, map[string]string{"Retry-After": "20"}}, ok}}
		transport := &httplimit.Transport{Base: s, Policy: newPolicy(t, "api", ratelimit.NewListLimiter(memory.New()), ratelimit.Per(1, 5*time.Second))}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := transport.RoundTrip(request(t, "GET", nil))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []float64{0, 5, 25}, s.since(start))
	})
}

func TestTransportRetries(t *testing.T) {
	busy := func(seconds string) answer { return answer{503, map[string]string{"Retry-After": seconds}} }
	bare := answer{status: 429}
	for _, tt := range []struct {
		name    string
		answers []answer
		method  string
		header  string
		body    func() io.Reader
		timeout time.Duration
		status  int
		sent    []float64
	}{
		{"once", []answer{busy("3"), ok}, "GET", "", nil, 0, 200, []float64{0, 3}},
		{"twice", []answer{busy("3"), busy("4"), ok}, "GET", "", nil, 0, 200, []float64{0, 3, 7}},
		{"in vain", []answer{busy("3")}, "GET", "", nil, 0, 503, []float64{0, 3, 6, 9}},
		{"at a growing distance", []answer{bare}, "GET", "", nil, 0, 429, []float64{0, 1, 3, 7}},
		{"after none", []answer{busy("0"), ok}, "GET", "", nil, 0, 200, []float64{0, 1}},
		{"after a date in the past", []answer{{429, map[string]string{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}}, ok}, "GET", "", nil, 0, 200, []float64{0, 1}},
		{"not other failures", []answer{{status: 500}, ok}, "GET", "", nil, 0, 500, []float64{0}},
		{"not longer than the cap", []answer{busy("61"), ok}, "GET", "", nil, 0, 503, []float64{0}},
		{"not beyond the deadline", []answer{busy("3"), ok}, "GET", "", nil, 2 * time.Second, 503, []float64{0}},
		{"within the deadline", []answer{busy("3"), ok}, "GET", "", nil, 4 * time.Second, 200, []float64{0, 3}},
		{"PUT with a body", []answer{bare, ok}, "PUT", "", func() io.Reader { return strings.NewReader("hello") }, 0, 200, []float64{0, 1}},
		{"DELETE", []answer{bare, ok}, "DELETE", "", nil, 0, 200, []float64{0, 1}},
		{"not a body that can't be rewound", []answer{bare, ok}, "PUT", "", func() io.Reader { return &body{Reader: strings.NewReader("hello")} }, 0, 429, []float64{0}},
		{"not POST", []answer{bare, ok}, "POST", "", func() io.Reader { return strings.NewReader("hello") }, 0, 429, []float64{0}},
		{"not PATCH", []answer{bare, ok}, "PATCH", "", nil, 0, 429, []float64{0}},
		{"POST with a key", []answer{bare, ok}, "POST", "Idempotency-Key", func() io.Reader { return bytes.NewReader([]byte("hello")) }, 0, 200, []float64{0, 1}},
		{"not a POST with a key and a body that can't be rewound", []answer{bare, ok}, "POST", "Idempotency-Key", func() io.Reader { return &body{Reader: strings.NewReader("hello")} }, 0, 429, []float64{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := &server{t: t, answers: tt.answers}
				var sent io.Reader
				if tt.body != nil {
					sent = tt.body()
				}
				r := request(t, tt.method, sent)
				if tt.header != "" {
					r.Header.Set(tt.header, "k")
				}
				if tt.timeout > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
					defer cancel()
					r = r.WithContext(ctx)
				}
				policy := newPolicy(t, "api", sliding(), ratelimit.PerHour(100))
				response, err := (&httplimit.Transport{Base: s, Retries: 3, MaxPause: time.Minute, Policy: policy}).RoundTrip(r)
				require.NoError(t, err)
				require.Equal(t, tt.status, response.StatusCode)
				require.Equal(t, tt.sent, s.since(start))
				for _, b := range s.bodies {
					require.Equal(t, s.bodies[0], b)
				}
				got, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, "body", string(got))
				require.NoError(t, response.Body.Close())
				require.Zero(t, s.open)
				d, err := policy.Check(t.Context(), "api.example", 0)
				require.NoError(t, err)
				require.EqualValues(t, 100-len(tt.sent), d.Remaining, "each counts")
			})
		})
	}
}

// What can't be sent again leaves the answer as it was.
func TestTransportRetryRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, answers: []answer{{status: 429}, ok}}
		policy := newPolicy(t, "api", sliding(), ratelimit.PerHour(1))
		response, err := (&httplimit.Transport{Base: s, Retries: 3, Policy: policy, Refuse: true}).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, 429, response.StatusCode)
		require.NoError(t, response.Body.Close())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		s.sent = nil
		_, err = (&httplimit.Transport{Base: s, Retries: 3}).RoundTrip(request(t, "GET", nil).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, s.open)
	})
}

func TestTransportManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, answers: []answer{{429, map[string]string{"Retry-After": "10"}}}}
		transport := &httplimit.Transport{Base: s, Refuse: true}
		for i := range 5000 {
			r := request(t, "GET", nil)
			r.URL.Host = fmt.Sprint(i)
			_, err := transport.RoundTrip(r)
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		r := request(t, "GET", nil)
		r.URL.Host = "4999"
		_, err := transport.RoundTrip(r)
		require.Error(t, err)
	})
}

// Over a real connection, against our own middleware: the client that waits as it
// is told is let in, at the first go.
func TestTransportAgainstMiddleware(t *testing.T) {
	h := newMiddleware(t, newPolicy(t, "test", ratelimit.NewListLimiter(memory.New()), ratelimit.Per(3, 500*time.Millisecond)))(noContent)
	server := newServer(t, h, true)
	transport := &httplimit.Transport{Base: server.Client().Transport}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 5 {
		require.Equal(t, 204, get(t, client, server.URL).StatusCode)
	}
}

func TestTransportDefaults(t *testing.T) {
	server := newServer(t, noContent, false)
	client := &http.Client{Transport: new(httplimit.Transport)}
	require.Equal(t, 204, get(t, client, server.URL).StatusCode)
	client.CloseIdleConnections()
	_, err := new(httplimit.Transport).RoundTrip(&http.Request{Header: http.Header{}})
	require.ErrorIs(t, err, httplimit.ErrNoKey)
}

// A host is one host however it is written.
func TestTransportHosts(t *testing.T) {
	for _, hosts := range [][]string{
		{"http://api.example/", "http://API.example/", "http://api.example:80/", "HTTP://Api.Example:/"},
		{"https://api.example/", "https://API.example:443/"},
		{"http://[2001:DB8::1]/", "http://[2001:db8::1]:80/"},
	} {
		s := &server{t: t, answers: []answer{ok}}
		transport := &httplimit.Transport{Base: s, Policy: newPolicy(t, "test", sliding(), ratelimit.PerHour(1)), Refuse: true}
		for i, host := range hosts {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(r)
			require.Equal(t, i > 0, err != nil, host)
		}
		for _, other := range []string{"http://api.example:443/", "https://api.example:80/", "http://api.example:8080/"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(r)
			require.NoError(t, err, other)
		}
	}
}

// A refusal whose body does not end is not waited for.
func TestTransportEndlessBody(t *testing.T) {
	for name, length := range map[string]string{"no length": "", "a length": "5"} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) > 1 {
					return
				}
				w.Header().Set("Retry-After", "0")
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			defer server.Close()
			client := &http.Client{Transport: &httplimit.Transport{Retries: 1}, Timeout: time.Minute}
			response, err := client.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.EqualValues(t, 2, asked.Load())
		})
	}
}
