package rules

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
)

func drawPattern(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{"a", "b", "a%62", "%2F", "é", "{x}", "{y}", "a b", "%zz"})
	p := rapid.SampledFrom([]string{"", "", "GET ", "POST  ", "HEAD\t"}).Draw(t, "method") +
		rapid.SampledFrom([]string{"", "", "h", "h.example"}).Draw(t, "host")
	for range rapid.IntRange(0, 3).Draw(t, "segments") {
		p += "/" + segment.Draw(t, "segment")
	}
	return p + rapid.SampledFrom([]string{"", "/", "/{$}", "/{rest...}"}).Draw(t, "end")
}

func drawPath(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "%61", "%2F", "%2f", "%C3%A9", "..", ".", "", "a%20b", "%25zz", "%2e%2e"})
	p := ""
	for range rapid.IntRange(0, 4).Draw(t, "segments") {
		p += "/" + segment.Draw(t, "segment")
	}
	return p + rapid.SampledFrom([]string{"", "/"}).Draw(t, "end")
}

// clean is what a client is redirected to.
func clean(p string) string {
	cleaned := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}

// A pattern alone matches what a ServeMux with that pattern alone serves, and its
// wildcards stand for the same.
func TestPatternsAreThoseOfServeMux(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawPattern(t)
		mux := http.NewServeMux()
		var served *http.Request
		if !register(mux, text, func(r *http.Request) { served = r }) {
			_, err := parsePattern(text)
			require.Error(t, err)
			return
		}
		s := setOf(t, text)
		for range 10 {
			raw, host := clean(drawPath(t)), rapid.SampledFrom([]string{"h", "h:80", "h.example", "other", ""}).Draw(t, "asked host")
			method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT", "get"}).Draw(t, "asked method")
			u, err := url.Parse(raw)
			require.NoError(t, err)
			served = nil
			mux.ServeHTTP(discard{}, &http.Request{Method: method, URL: u, Host: host})

			c := new(call)
			s.match(c, &Request{Path: u.EscapedPath(), Method: method, Host: host})
			require.Equal(t, served != nil, len(c.matched) > 0, "%q: %s %s%s", text, method, host, raw)
			for _, m := range c.matched[min(1, len(c.matched)):] {
				require.Equal(t, served.PathValue(m.limit.rule), m.value, "%q: {%s} of %s", text, m.limit.rule, raw)
			}
		}
	})
}

// setOf has one pattern, that counts all requests and by each wildcard.
func setOf(t *rapid.T, text string) *set {
	p, err := parsePattern(text)
	require.NoError(t, err)
	r := &pathRule{pattern: p}
	for i, name := range append([]string{anyRequest}, p.names...) {
		n, _ := r.list.at(name, "", place{})
		n.whole = name == anyRequest
		n.limits = []*limit{{rule: name, order: i, quotas: []ratelimit.Quota{ratelimit.PerDay(1)}}}
	}
	s := newLoader().set
	s.insert(r)
	return s
}

func register(mux *http.ServeMux, pattern string, served func(*http.Request)) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { served(r) })
	return
}

// discard is a ResponseWriter.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
