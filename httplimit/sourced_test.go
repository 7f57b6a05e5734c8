package httplimit_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// perAccount is a source of quotas: each account's own, or the default.
type perAccount map[string][]ratelimit.Quota

func (p perAccount) Quotas(_ context.Context, key string) ([]ratelimit.Quota, error) {
	switch quotas, ok := p[key]; {
	case key == "away":
		return nil, errors.New("the table is away")
	case ok:
		return quotas, nil
	}
	return p["default"], nil
}

// With limits per account the headers tell each client its own.
func TestLimitsPerAccount(t *testing.T) {
	policy, err := ratelimit.NewPolicyFrom("api", ratelimit.NewSlidingWindow(memory.New()), perAccount{
		"default": {ratelimit.PerMinute(1)},
		"big":     {ratelimit.PerMinute(2), ratelimit.PerHour(50)},
	})
	require.NoError(t, err)
	ask := func(h http.Handler, account string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Account", account)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, forms := range [][]httplimit.HeaderForm{{httplimit.RateLimitFields}, {}} {
		h := newMiddleware(t, policy, httplimit.WithKey(httplimit.Header("X-Account")), httplimit.WithHeaders(forms...))(noContent)
		for _, account := range []string{"small", "big", "big", "other"} {
			require.Equal(t, http.StatusNoContent, ask(h, account).Code, account)
		}
		for account, fields := range map[string]map[string]params{
			"small": {"api": {"q": int64(1), "w": int64(60)}},
			"big":   {"api-1m": {"q": int64(2), "w": int64(60)}, "api-1h": {"q": int64(50), "w": int64(3600)}},
		} {
			w := ask(h, account)
			require.Equal(t, http.StatusTooManyRequests, w.Code, account)
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			if len(forms) > 0 {
				require.Equal(t, fields, fieldList(t, w.Header(), "RateLimit-Policy"), account)
			}
		}
		require.Equal(t, http.StatusServiceUnavailable, ask(h, "away").Code)
		for _, account := range []string{"small", "big", "other"} {
			require.NoError(t, policy.Reset(t.Context(), account))
		}
	}
}

// An account without a limit is never let through; and what quotas are called in a table keeps nobody out.
func TestTableData(t *testing.T) {
	named := func(name string, quota ratelimit.Quota) ratelimit.Quota { quota.Name = name; return quota }
	minute, hour := ratelimit.PerMinute(1), ratelimit.PerHour(9)
	table := map[string][]ratelimit.Quota{
		"umlaut":      {named("für alle", minute)},
		"two umlauts": {named("ä", minute), named("ä", hour)},
		"twice":       {named("x", minute), named("x", hour)},
		"derived":     {named("api", minute), named("", hour)},
		"the other's": {named("all", minute)},
		"line":        {named("a\r\nb", minute), named("b", hour)},
	}
	var list []limits.Limit
	for account, quotas := range table {
		list = append(list, limits.Limit{Resource: "api", Account: account, Quotas: quotas})
	}
	memoryTable, err := limits.NewMemory(list...)
	require.NoError(t, err)
	limiter := sliding()
	policy, err := ratelimit.NewPolicyFrom("api", limiter, memoryTable.Source("api"))
	require.NoError(t, err)
	for _, opts := range [][]httplimit.Option{nil, {httplimit.WithFailOpen()}} {
		h := newMiddleware(t, policy, append(opts, httplimit.WithKey(httplimit.Header("X-Account")),
			httplimit.WithPolicy(newPolicy(t, "all", limiter, ratelimit.PerHour(1000)), httplimit.Everyone))...)(noContent)
		for account, names := range map[string][]string{
			"umlaut":      {"api"},
			"two umlauts": {"api-1m", "api-1h"},
			"twice":       {"x", "api"},
			"derived":     {"api", "api-2"},
			"the other's": {"api"},
			"line":        {"api", "b"},
		} {
			w := do(h, header("X-Account", account))
			require.Equal(t, http.StatusNoContent, w.Code, account)
			require.ElementsMatch(t, append(names, "all"), slices.Collect(maps.Keys(fieldList(t, w.Header(), "RateLimit"))), account)
			w = do(h, header("X-Account", account))
			require.Equal(t, http.StatusTooManyRequests, w.Code, account)
			require.Equal(t, names[:1], problemOf(t, w).Violated, account)
			require.NoError(t, policy.Reset(t.Context(), account))
		}
		require.Equal(t, http.StatusServiceUnavailable, do(h, header("X-Account", "nobody")).Code)
	}
}
