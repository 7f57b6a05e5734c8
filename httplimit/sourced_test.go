package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
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
