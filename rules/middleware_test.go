package rules_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const web = `
rules:
  - path: GET /users/{user}
    descriptors:
      - {key: user, window: 90s, requests_per_unit: 1, strategy: simple}
      - {key: account, unit: minute, requests_per_unit: 100}
      - {key: account, value: blocked, unit: hour, requests_per_unit: 0}
`

// get asks a handler that answers 200.
func get(t *testing.T, middleware func(http.Handler) http.Handler, method, target, account string) *http.Response {
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.Header.Set("Account", account)
	w := httptest.NewRecorder()
	middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	return w.Result()
}

func account(r *http.Request) map[string]string {
	return map[string]string{"account": r.Header.Get("Account")}
}

func TestMiddleware(t *testing.T) {
	var told []rules.Decision
	limit := memoryEngine(t, web).Middleware(account, rules.WithReport(func(_ *http.Request, d rules.Decision, err error) {
		require.NoError(t, err)
		told = append(told, d)
	}))
	require.Equal(t, 200, get(t, limit, "GET", "/users/a%2Fb", "x").StatusCode)
	require.Equal(t, 200, get(t, limit, "POST", "/users/a%2Fb", "x").StatusCode, "a rule of another method")
	require.Equal(t, 200, get(t, limit, "GET", "/users/c", "x").StatusCode)

	res := get(t, limit, "GET", "/users/a%2fb", "x")
	require.Equal(t, 429, res.StatusCode)
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	require.Regexp(t, `^([1-9]|[1-8]\d|90)$`, res.Header.Get("Retry-After"))
	var problem struct {
		Type   string
		Status int
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
	require.Equal(t, 429, problem.Status)
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", problem.Type)
	require.Equal(t, []string{"GET /users/{user} user"}, names(told[3].Refused))

	// What no waiting helps is told the window.
	require.Equal(t, "3600", get(t, limit, "GET", "/users/d", "blocked").Header.Get("Retry-After"))
	res = get(t, limit, "HEAD", "/users/d", "blocked")
	require.Equal(t, 429, res.StatusCode)
	n, _ := res.Body.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Equal(t, 200, get(t, memoryEngine(t, web).Middleware(nil), "GET", "/users/d", "blocked").StatusCode)
}

func TestMiddlewareFailures(t *testing.T) {
	store := &counting{Storage: memory.New(), fail: func(*storage.Call, string) error { return errDown }}
	e := engine(t, store, web)
	res := get(t, e.Middleware(account), "GET", "/users/a", "x")
	require.Equal(t, 503, res.StatusCode)
	require.Equal(t, "5", res.Header.Get("Retry-After"))
	var failed error
	open := e.Middleware(account, rules.WithFailOpen(), rules.WithReport(func(_ *http.Request, _ rules.Decision, err error) { failed = err }))
	require.Equal(t, 200, get(t, open, "GET", "/users/a", "x").StatusCode)
	require.ErrorIs(t, failed, errDown)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	open(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(ended, "GET", "/users/a", nil))
	require.Equal(t, 503, w.Code, "who goes away is not let through uncounted")
}
