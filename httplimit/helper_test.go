package httplimit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func sliding() ratelimit.Limiter { return ratelimit.NewSlidingWindow(memory.New()) }

func newPolicy(t testing.TB, name string, limiter ratelimit.Limiter, quotas ...ratelimit.Quota) *ratelimit.Policy {
	t.Helper()
	p, err := ratelimit.NewPolicy(name, limiter, quotas...)
	require.NoError(t, err)
	return p
}

func newMiddleware(t testing.TB, policy *ratelimit.Policy, opts ...httplimit.Option) func(http.Handler) http.Handler {
	t.Helper()
	m, err := httplimit.New(policy, opts...)
	require.NoError(t, err)
	return m
}

// perHour is a middleware of a policy "test" that nothing comes free in while a
// test runs, around a handler that answers 204.
func perHour(t testing.TB, limit int64, opts ...httplimit.Option) http.Handler {
	t.Helper()
	return newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(limit)), opts...)(noContent)
}

var noContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// do asks a handler, without a network.
func do(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func peer(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

func method(method string) func(*http.Request) {
	return func(r *http.Request) { r.Method = method }
}

func constant(key string) httplimit.KeyFunc {
	return func(*http.Request) (string, error) { return key, nil }
}

// fieldList reads a field with a parser that is not ours: every item, with its
// parameters.
func fieldList(t testing.TB, h http.Header, name string) map[string]map[string]any {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(name))
	require.NoError(t, err, "%s: %q", name, h.Values(name))
	items := make(map[string]map[string]any)
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		require.True(t, ok, "%s: %q: an inner list", name, h.Values(name))
		key, ok := item.Value.(string)
		require.True(t, ok, "%s: %q: not a String", name, h.Values(name))
		require.NotContains(t, items, key)
		items[key] = make(map[string]any)
		for _, p := range item.Params.Names() {
			items[key][p], _ = item.Params.Get(p)
		}
	}
	return items
}

type params = map[string]any

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

func problemOf(t testing.TB, w *httptest.ResponseRecorder) (p problem) {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), "%s", w.Body)
	require.Equal(t, w.Code, p.Status)
	require.NotEmpty(t, p.Title)
	return p
}

// A stub is a Limiter that answers what it is told to.
type stub struct {
	grants []ratelimit.GrantedQuota
	err    error
	useErr error
}

func (s *stub) CheckAndUseQuotas(ctx context.Context, _ []ratelimit.RequestedQuota, _ ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	return s.grants, s.err
}

func (s *stub) CheckWithinQuotas(context.Context, []ratelimit.RequestedQuota, ...ratelimit.CallOption) (time.Time, []ratelimit.GrantedQuota, error) {
	return time.Now(), s.grants, s.err
}

func (s *stub) UseQuotas(context.Context, []ratelimit.RequestedQuota, []ratelimit.GrantedQuota, time.Time) error {
	return s.useErr
}

func (s *stub) Reset(context.Context, []ratelimit.RequestedQuota) error { return s.err }
