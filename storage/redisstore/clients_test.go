package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// Any client that has Process will do.
func TestClients(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 0)
	autoPipeline := func(p *redis.AutoPipeliner, err error) redisstore.Client {
		require.NoError(t, err)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	for name, client := range map[string]redisstore.Client{
		"client":                server.Client(t),
		"autopipeline":          autoPipeline(server.Client(t).AutoPipeline()),
		"cluster client":        cluster.Client(t),
		"cluster autopipeline":  autoPipeline(cluster.Client(t).AutoPipeline()),
		"sentinel failover":     redistest.StartSentinel(t).Client(t),
		"universal client":      redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr}}),
		"connection of its own": server.Client(t).Conn(),
	} {
		t.Run(name, func(t *testing.T) {
			store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second), redisstore.WithNamespace(name))
			require.NoError(t, err)
			require.NoError(t, store.Check(t.Context()))
			limitertest.RunScripts(t, func(_ *testing.T, strategy string) ratelimit.Limiter {
				return limitertest.Strategies[strategy](store)
			})
			limiter := ratelimit.NewSlidingWindow(store)
			requests := []ratelimit.RequestedQuota{
				{Prefix: "a", Requested: 2, Quotas: []ratelimit.Quota{ratelimit.PerHour(5)}},
				{Prefix: "b", Requested: 2, Quotas: []ratelimit.Quota{ratelimit.PerHour(1), {Limit: 3, Window: time.Hour, PrefixOverride: "c"}}},
			}
			grants, err := limiter.CheckAndUseQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.EqualValues(t, 2, grants[0].Granted)
			require.EqualValues(t, 1, grants[1].Granted)
			require.EqualValues(t, 2, grants[1].States[1].Remaining)
			require.NoError(t, limiter.Reset(t.Context(), requests))
		})
	}
}

// Calls go on after a failover. What was not replicated is lost: at most one
// budget more is granted.
func TestSentinelFailover(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	store, err := redisstore.New(sentinel.Client(t), redisstore.WithTimeout(200*time.Millisecond))
	require.NoError(t, err)
	limiter := ratelimit.NewSlidingWindow(store)
	request := ask(1, ratelimit.PerDay(20))
	granted := int64(0)
	for range 10 {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.NoError(t, err)
		granted += grants[0].Granted
	}
	sentinel.Primary.Stop()
	failed := 0
	require.Eventually(t, func() bool {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
		if err != nil {
			require.NotErrorIs(t, err, ratelimit.ErrMisconfigured)
			failed++
			return false
		}
		granted += grants[0].Granted
		return true
	}, 20*time.Second, 50*time.Millisecond)
	t.Logf("%d calls failed before the replica took over", failed)
	for range 50 {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.NoError(t, err)
		granted += grants[0].Granted
	}
	require.LessOrEqual(t, granted, int64(2*20))
	require.GreaterOrEqual(t, granted, int64(20-failed))
}
