package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
)

func TestHeaderKey(t *testing.T) {
	key := httplimit.Header("x-api-key")
	require.Equal(t, "secret", keyOf(t, key, header("X-API-Key", "secret")))
	require.Empty(t, keyOf(t, key))
	require.Empty(t, keyOf(t, key, header("X-API-Key", "")))
	require.Empty(t, keyOf(t, key, header("X-API-Key", "a", "b")))
}

func TestCookieKey(t *testing.T) {
	key := httplimit.Cookie("session")
	require.Equal(t, "s1", keyOf(t, key, header("Cookie", "other=x; session=s1")))
	require.Equal(t, "s1", keyOf(t, key, header("Cookie", "session=s1; session=s2")), "as http.Request.Cookie has it")
	require.Empty(t, keyOf(t, key))
	require.Empty(t, keyOf(t, key, header("Cookie", "session=")))
}

func TestRoute(t *testing.T) {
	mux := http.NewServeMux()
	limit := newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(1)), httplimit.WithKey(httplimit.Route(nil)))
	mux.Handle("GET /items/{id}", limit(noContent))
	mux.Handle("/", limit(noContent))
	path := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	require.Equal(t, 204, do(mux, path("/items/1")).Code)
	require.Equal(t, 429, do(mux, path("/items/2")).Code)
	require.Equal(t, 204, do(mux, path("/other")).Code)
	require.Equal(t, 400, do(limit(mux), path("/other")).Code, "around the mux there is no pattern yet")

	require.Equal(t, "GET /items/{id}", keyOf(t, httplimit.Route(mux), path("/items/7")))
	require.Equal(t, "none", keyOf(t, httplimit.Route(http.NewServeMux()), path("/items/7")))
}

// A mux inside a mux: the pattern is that of the mux that was given.
func TestRouteNested(t *testing.T) {
	inner, outer := http.NewServeMux(), http.NewServeMux()
	inner.Handle("GET /api/a", noContent)
	inner.Handle("GET /api/b", noContent)
	limit := newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(1)), httplimit.WithKey(httplimit.Route(inner)))
	outer.Handle("/api/", limit(inner))
	path := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	require.Equal(t, 204, do(outer, path("/api/a")).Code)
	require.Equal(t, 204, do(outer, path("/api/b")).Code)
	require.Equal(t, 429, do(outer, path("/api/b")).Code)
	require.Equal(t, 404, do(outer, path("/api/c")).Code)
	require.Equal(t, 429, do(outer, path("/api/d")).Code, "no handler of inner")

	// Inside the mux that was given too, where its path may no longer be there.
	stripped := http.NewServeMux()
	handler := newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(1)), httplimit.WithKey(httplimit.Route(stripped)))(noContent)
	stripped.Handle("/a/", http.StripPrefix("/a", handler))
	stripped.Handle("/b/", http.StripPrefix("/b", handler))
	require.Equal(t, 204, do(stripped, path("/a/x")).Code)
	require.Equal(t, 204, do(stripped, path("/b/x")).Code)
}

// Two different tuples of keys never meet.
func TestJoin(t *testing.T) {
	join := func(keys []string) string {
		funcs := make([]httplimit.KeyFunc, len(keys))
		for i, k := range keys {
			funcs[i] = constant(k)
		}
		k, err := httplimit.Join(funcs...)(httptest.NewRequest(http.MethodGet, "/", nil))
		require.NoError(t, err)
		return k
	}
	require.NotEqual(t, join([]string{"a", "bc"}), join([]string{"ab", "c"}))
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("a1:,%")), 1, 12, -1), 1, 4)
		a, b := keys.Draw(t, "a"), keys.Draw(t, "b")
		require.Equal(t, join(a) == join(b), slices.Equal(a, b))
	})
	require.Empty(t, keyOf(t, httplimit.Join(constant("a"), constant(""))), "no part may be empty")
	require.Empty(t, keyOf(t, httplimit.Join()), "nor all")
}
