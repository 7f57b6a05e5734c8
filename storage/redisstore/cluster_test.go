package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// What a cluster answers to one caller is what a single storage does: requests
// of several prefixes, each under quotas of its own and one that all share.
func TestClusterAnswers(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	client := cluster.Client(t)
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	limitertest.RunScripts(t, func(_ *testing.T, strategy string) ratelimit.Limiter {
		return limitertest.Strategies[strategy](store)
	})
	for name, open := range limitertest.Strategies {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(len(name))))
			one, many := open(memory.New()), open(store)
			at := limitertest.Start
			for i := range 400 {
				at = at.Add(time.Duration(rnd.IntN(4000)) * time.Millisecond)
				requests := clusterRequests(rnd, name)
				opts, together := []ratelimit.CallOption{ratelimit.At(at)}, rnd.IntN(3) == 0
				if together {
					opts = append(opts, ratelimit.Together())
				}
				if rnd.IntN(4) == 0 {
					_, want, err := one.CheckWithinQuotas(t.Context(), requests, opts...)
					require.NoError(t, err)
					_, got, err := many.CheckWithinQuotas(t.Context(), requests, opts...)
					require.NoError(t, err)
					requireSameGrants(t, want, got)
					continue
				}
				want, err := one.CheckAndUseQuotas(t.Context(), requests, opts...)
				require.NoError(t, err)
				got, err := many.CheckAndUseQuotas(t.Context(), requests, opts...)
				require.NoError(t, err)
				requireSameGrants(t, want, got)
				if !together { // of which a refusal tells how things stood when its turn came
					require.Equal(t, want, got, "call %d %+v", i, requests)
				}
			}
		})
	}
}

func requireSameGrants(t *testing.T, want, got []ratelimit.GrantedQuota) {
	t.Helper()
	for i := range want {
		require.Equal(t, want[i].Granted, got[i].Granted)
		require.Equal(t, want[i].ReachedQuotas, got[i].ReachedQuotas)
	}
}

// clusterRequests are for different prefixes, so that the order of requests
// matters in the shared quota alone.
func clusterRequests(rnd *rand.Rand, name string) []ratelimit.RequestedQuota {
	global := ratelimit.Quota{Limit: 30, Window: 20 * time.Second, Granularity: 2 * time.Second, PrefixOverride: "global " + name}
	own := ratelimit.Quota{Limit: 8, Window: 10 * time.Second, Granularity: time.Second}
	var requests []ratelimit.RequestedQuota
	for _, p := range rnd.Perm(6)[:1+rnd.IntN(4)] {
		quotas := [][]ratelimit.Quota{{own, global}, {global, own}, {own}, {global}}[rnd.IntN(4)]
		requests = append(requests, ratelimit.RequestedQuota{
			Prefix:       fmt.Sprintf("%s %d", name, p),
			Requested:    int64(rnd.IntN(11)),
			Quotas:       quotas,
			AllOrNothing: rnd.IntN(3) == 0,
		})
	}
	return requests
}

// No quota is over-granted, and hardly any is under-granted, however many callers
// mix prefixes and a shared quota. The stores are as many processes: each has a
// client of its own.
func TestClusterPromise(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	for name, open := range limitertest.Strategies {
		t.Run(name, func(t *testing.T) {
			const limit = 3000
			global := ratelimit.Quota{Limit: limit, Window: 24 * time.Hour, Granularity: 24 * time.Hour, PrefixOverride: "all " + name}
			own := ratelimit.Quota{Limit: limit / 8, Window: time.Hour, Granularity: time.Hour}
			at := ratelimit.At(limitertest.Start)
			var all atomic.Int64
			var each [16]atomic.Int64
			var wg sync.WaitGroup
			for range 3 {
				store, err := redisstore.New(cluster.Client(t), redisstore.WithTimeout(10*time.Second))
				require.NoError(t, err)
				limiter := open(store)
				for g := range 11 {
					rnd := rand.New(rand.NewPCG(7, uint64(g)))
					wg.Go(func() {
						for range 120 {
							p := rnd.IntN(16)
							grants, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{
								{Prefix: fmt.Sprint(name, p), Requested: int64(1 + rnd.IntN(4)), Quotas: []ratelimit.Quota{own, global}, AllOrNothing: rnd.IntN(2) == 0},
							}, at)
							if err != nil {
								t.Error(err)
								return
							}
							all.Add(grants[0].Granted)
							each[p].Add(grants[0].Granted)
						}
					})
				}
			}
			wg.Wait()
			require.LessOrEqual(t, all.Load(), int64(limit), "over-granted")
			for p := range each {
				require.LessOrEqual(t, each[p].Load(), own.Limit, "over-granted")
			}
			t.Logf("granted %d of %d", all.Load(), limit)
			require.GreaterOrEqual(t, all.Load(), int64(limit*99/100), "under-granted")
		})
	}
}

// Reset works over slots; and a client that is not known to be a cluster's is
// found out by the first answer.
func TestClusterReset(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	client := cluster.Client(t)
	store, err := redisstore.New(struct{ redisstore.Client }{client}, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	limiter := ratelimit.NewSlidingWindow(store)
	var requests []ratelimit.RequestedQuota
	for _, prefix := range []string{"a", "b", "c", "d", "e"} {
		requests = append(requests, ratelimit.RequestedQuota{Prefix: prefix, Requested: 2, Quotas: []ratelimit.Quota{ratelimit.PerHour(2)}})
	}
	for range 2 {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), requests)
		require.NoError(t, err)
		for _, g := range grants {
			require.EqualValues(t, 2, g.Granted)
		}
		require.NoError(t, limiter.Reset(t.Context(), requests))
	}
	require.EqualValues(t, 0, client.DBSize(t.Context()).Val())
}

// Check asks every primary.
func TestClusterCheck(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	store, err := redisstore.New(cluster.Client(t), redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
	for _, setting := range []string{"maxmemory 1gb", "maxmemory-policy volatile-ttl"} {
		name, value, _ := strings.Cut(setting, " ")
		require.NoError(t, cluster.Servers[2].Client(t).ConfigSet(t.Context(), name, value).Err())
	}
	err = store.Check(t.Context())
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.ErrorContains(t, err, cluster.Servers[2].Addr)
}

var _ redisstore.Client = (*redis.ClusterClient)(nil)
