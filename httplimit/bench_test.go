package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
)

// A discardWriter is a ResponseWriter that costs nothing but its header.
type discardWriter struct{ header http.Header }

func (w discardWriter) Header() http.Header       { return w.header }
func (discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (discardWriter) WriteHeader(int)             {}

// The middleware in memory, around a handler that answers 204.
func BenchmarkMiddleware(b *testing.B) {
	limiter := sliding()
	forms := func(forms ...httplimit.HeaderForm) httplimit.Option { return httplimit.WithHeaders(forms...) }
	open := newPolicy(b, "open", limiter, ratelimit.PerMinute(1<<40))
	shut := newPolicy(b, "shut", limiter, ratelimit.PerMinute(0))
	global := newPolicy(b, "global", limiter, ratelimit.PerSecond(1<<40))
	for _, bb := range []struct {
		name   string
		policy *ratelimit.Policy
		opts   []httplimit.Option
	}{
		{"headers=none", open, []httplimit.Option{forms()}},
		{"headers=RateLimit", open, nil},
		{"headers=XRateLimit", open, []httplimit.Option{forms(httplimit.XRateLimit)}},
		{"two-policies/headers=none", open, []httplimit.Option{forms(), httplimit.WithPolicy(global, httplimit.Everyone)}},
		{"two-policies/headers=RateLimit", open, []httplimit.Option{httplimit.WithPolicy(global, httplimit.Everyone)}},
		{"refused", shut, nil},
		{"count-if", open, []httplimit.Option{forms(), httplimit.WithCountIf(func(int) bool { return false })}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := newMiddleware(b, bb.policy, bb.opts...)(noContent)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			w := discardWriter{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
