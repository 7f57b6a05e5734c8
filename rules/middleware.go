package rules

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A MiddlewareOption changes what Middleware makes.
type MiddlewareOption func(*middleware)

// WithFailOpen lets requests through, unlimited, while the storage fails; without it
// they are answered with 503. Requests whose context has ended are refused all the same: else
// everybody could choose not to be counted.
func WithFailOpen() MiddlewareOption { return func(m *middleware) { m.failOpen = true } }

// WithReport is told of each decision before it is acted upon: what was refused, what shadow
// rules would have refused, and what failed. It is called by the goroutine of the request.
func WithReport(report func(*http.Request, Decision, error)) MiddlewareOption {
	return func(m *middleware) { m.report = report }
}

type middleware struct {
	engine   *Engine
	values   func(*http.Request) map[string]string
	failOpen bool
	report   func(*http.Request, Decision, error)
}

// Middleware lets through the requests that fit the rules of their host, method and
// path, and answers the others with 429, a Retry-After and a problem+json body. Values are
// what descriptors count by, an account or an address; nil if the wildcards of
// paths are enough. What cannot be decided is answered with 503, or 500 if asking again would
// not help.
//
// It goes before the mux. Values should have a value for those who have none, such as
// "anonymous": without a value a descriptor does not apply.
func (e *Engine) Middleware(values func(*http.Request) map[string]string, opts ...MiddlewareOption) func(http.Handler) http.Handler {
	m := &middleware{engine: e, values: values}
	for _, o := range opts {
		o(m)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	d, err := m.engine.Decide(r.Context(), m.request(r))
	if m.report != nil {
		m.report(r, d, err)
	}
	switch {
	case err == nil && d.Allowed:
		next.ServeHTTP(w, r)
	case err == nil:
		refuse(w, r, http.StatusTooManyRequests, quotaExceeded, seconds(d))
	case errors.Is(err, ratelimit.ErrInvalidRequest), errors.Is(err, ratelimit.ErrInvalidQuota):
		refuse(w, r, http.StatusInternalServerError, "about:blank", 0)
	case m.failOpen && r.Context().Err() == nil:
		next.ServeHTTP(w, r)
	default:
		refuse(w, r, http.StatusServiceUnavailable, reducedCapacity, failureRetryAfter)
	}
}

func (m *middleware) request(r *http.Request) Request {
	request := Request{Path: r.URL.EscapedPath(), Method: r.Method, Host: r.Host}
	if request.Path == "" {
		request.Path = "/"
	}
	if m.values != nil {
		request.Values = m.values(r)
	}
	return request
}

const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	// failureRetryAfter is long enough for a storage to be restarted.
	failureRetryAfter = 5
)

// seconds are those of Retry-After, at least one. Where no waiting helps it is the longest
// window that refused.
func seconds(d Decision) int64 {
	after := d.RetryAfter
	if after == ratelimit.Never {
		after = 0
		for _, h := range d.Refused {
			after = max(after, h.Quota.Window)
		}
	}
	return max(1, int64((after-1)/time.Second)+1)
}

// refuse answers with a problem as in RFC 9457. It repeats nothing that a client sent.
func refuse(w http.ResponseWriter, r *http.Request, status int, kind string, retryAfter int64) {
	h := w.Header()
	for _, field := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(field) // of an answer that a middleware around this one expected
	}
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(retryAfter, 10))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "title": http.StatusText(status), "status": status})
}
