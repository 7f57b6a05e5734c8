package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
)

// A clock that was an hour ahead, and is corrected, leaves counters in the
// future. What was used stays used, but for a window from now, not until then.
func TestClockWentBack(t *testing.T) {
	const window = 300 * time.Millisecond
	quota := ratelimit.Quota{Limit: 5, Window: window, Granularity: window / 3}
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 3, Quotas: []ratelimit.Quota{quota}}}
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			t.Run(name, func(t *testing.T) {
				limiter := open(store)
				future := time.Now().Add(time.Hour)
				_, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(future))
				require.NoError(t, err)

				// A check alone repairs, or callers of two steps would wait for the hour.
				_, grants, err := limiter.CheckWithinQuotas(t.Context(), requests)
				require.NoError(t, err)
				require.EqualValues(t, 2, grants[0].Granted, "what was used stays used")
				require.LessOrEqual(t, grants[0].RetryAfter, window+quota.Granularity)

				whole := []ratelimit.RequestedQuota{requests[0]}
				whole[0].AllOrNothing = true
				require.Eventually(t, func() bool {
					grants, err = limiter.CheckAndUseQuotas(t.Context(), whole)
					require.NoError(t, err)
					return grants[0].Granted == 3
				}, 10*time.Second, window/10, "not healed within a window")
			})
		}
	})
}

// Less than a window is no error: time does not go backwards for the counter.
func TestClockWentBackALittle(t *testing.T) {
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(1)}}}
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		limiter := ratelimit.NewListLimiter(store)
		_, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(time.Now().Add(30*time.Minute)))
		require.NoError(t, err)
		grants, err := limiter.CheckAndUseQuotas(t.Context(), requests)
		require.NoError(t, err)
		require.Zero(t, grants[0].Granted)
		require.InDelta(t, 90, grants[0].RetryAfter.Minutes(), 1)
	})
}

// Times that callers give are taken seriously, however far back they go.
func TestOwnTimeGoesBackYears(t *testing.T) {
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(1)}}}
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			limiter := open(store)
			_, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)))
			require.NoError(t, err)
			grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(limitertest.Start))
			require.NoError(t, err)
			require.Zero(t, grants[0].Granted, name)
			require.Greater(t, grants[0].RetryAfter, 60*365*24*time.Hour, name)
		}
	})
}
