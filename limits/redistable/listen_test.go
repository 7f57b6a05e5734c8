package redistable_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/limits/redistable"
)

// listening is a cache that hears of changes, and would see none by its age.
func listening(t *testing.T, table *redistable.Table) *limits.Cache {
	cache, err := limits.NewCache(table, limits.WithAge(24*time.Hour), limits.WithFetchTimeout(10*time.Second))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- table.Listen(ctx, cache) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		cache.Close()
	})
	return cache
}

// becomes waits until the cache tells a limit.
func becomes(t *testing.T, cache *limits.Cache, resource, account string, want int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		quotas, err := cache.Quotas(t.Context(), resource, account)
		return err == nil && quotas[0].Limit == want
	}, time.Minute, time.Millisecond, "%s of %s", account, resource)
}

// subscribed waits until somebody listens.
func subscribed(t *testing.T, clients ...*redis.Client) {
	require.Eventually(t, func() bool {
		for _, client := range clients {
			if client.PubSubNumSub(t.Context(), "ratelimit:limits-changed").Val()["ratelimit:limits-changed"] > 0 {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

func TestListen(t *testing.T) {
	each(t, func(t *testing.T, client redis.UniversalClient) {
		table := newTable(t, client)
		cache := listening(t, table)
		n := int64(0)
		require.Eventually(t, func() bool { // until it listens
			n++
			load(t, table, "billing", limit("a", "", n))
			quotas, err := cache.Quotas(t.Context(), "a", "someone")
			return err == nil && n > 2 && quotas[0].Limit == n
		}, time.Minute, 10*time.Millisecond)

		load(t, table, "billing", limit("a", "", 1000), limit("a", "x", 2000), limit("b", "", 3000))
		becomes(t, cache, "a", "someone", 1000)
		becomes(t, cache, "a", "x", 2000)
		becomes(t, cache, "b", "x", 3000)
		load(t, table, "billing", limit("a", "", 1000), limit("a", "x", 2001), limit("b", "", 3001))
		becomes(t, cache, "a", "x", 2001)
		becomes(t, cache, "b", "x", 3001)
		load(t, table, "billing", limit("a", "", 1000), limit("b", "", 3001))
		becomes(t, cache, "a", "x", 1000)

		var many []limits.Limit // too many to be named
		for i := range 300 {
			many = append(many, limit("b", fmt.Sprint(i), 7))
			becomes(t, cache, "b", fmt.Sprint(i), 3001)
		}
		load(t, table, "billing", many...)
		for i := range 300 {
			becomes(t, cache, "b", fmt.Sprint(i), 7)
		}
	})
}

// Only what changed is fetched again.
func TestListenNamesAccounts(t *testing.T) {
	client := redistest.Start(t).Client(t)
	table := newTable(t, client)
	load(t, table, "billing", limit("a", "", 1), limit("a", "x", 2), limit("b", "", 3))
	cache := listening(t, table)
	subscribed(t, client)
	becomes(t, cache, "a", "y", 1)
	becomes(t, cache, "b", "y", 3)
	becomes(t, cache, "a", "x", 2)
	time.Sleep(10 * time.Millisecond)
	becomes(t, cache, "a", "y", 1)
	before := cache.Stats().Fetches
	load(t, table, "billing", limit("a", "", 1), limit("a", "x", 9), limit("b", "", 3))
	becomes(t, cache, "a", "x", 9)
	becomes(t, cache, "a", "y", 1)
	becomes(t, cache, "b", "y", 3)
	require.LessOrEqual(t, cache.Stats().Fetches, before+1)
	plan, err := limits.Loader{Store: table, Service: "billing"}.Plan(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 3)
	require.NoError(t, client.Publish(t.Context(), "ratelimit:limits-changed", `{"resource":"b","accounts":["y"]}`).Err())
	require.Eventually(t, func() bool {
		becomes(t, cache, "b", "y", 3)
		return cache.Stats().Fetches == before+2
	}, time.Minute, time.Millisecond, "a plan is told to nobody")
}

// After a lost connection everything counts as changed.
func TestListenAgain(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	defer through.Close()
	direct := server.Client(t)
	table := newTable(t, direct)
	load(t, table, "billing", limit("a", "", 1))
	var told atomic.Int64
	cache := listening(t, newTable(t, through, redistable.WithOnError(func(err error) {
		require.ErrorContains(t, err, "redistable: listening on ratelimit:limits-changed: ")
		told.Add(1)
	})))
	subscribed(t, direct)
	becomes(t, cache, "a", "x", 1)
	for n := int64(2); n < 5; n++ {
		proxy.Set(redistest.Refuse)
		require.Eventually(t, func() bool { return told.Load() >= n-1 }, time.Minute, time.Millisecond)
		load(t, table, "billing", limit("a", "", n)) // nobody hears
		proxy.Set(redistest.None)
		becomes(t, cache, "a", "x", n)
	}
}

// A connection that is dead and does not say so is found out by a ping.
func TestListenSilence(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	defer through.Close()
	direct := server.Client(t)
	told := make(chan error, 10)
	listening(t, newTable(t, through, redistable.WithOnError(func(err error) { told <- err })))
	subscribed(t, direct)
	require.Eventually(t, func() bool { return strings.Contains(direct.Info(t.Context(), "commandstats").Val(), "cmdstat_ping") }, time.Minute, 100*time.Millisecond)
	proxy.Set(redistest.SwallowReplies)
	require.ErrorContains(t, <-told, "timeout")
	proxy.Set(redistest.None)
}

func TestListenBadMessage(t *testing.T) {
	client := redistest.Start(t).Client(t)
	told := make(chan error, 1)
	table := newTable(t, client, redistable.WithOnError(func(err error) { told <- err }))
	load(t, table, "billing", limit("a", "", 1))
	cache := listening(t, table)
	subscribed(t, client)
	becomes(t, cache, "a", "x", 1)
	require.NoError(t, client.HSet(t.Context(), "ratelimit:limits:{a}", "", `{"service":"billing","quotas":[{"limit":2,"window":"1m"}]}`).Err())
	require.NoError(t, client.Publish(t.Context(), "ratelimit:limits-changed", "what?").Err())
	require.ErrorContains(t, <-told, "a message on ratelimit:limits-changed: ")
	becomes(t, cache, "a", "x", 2)
}

func TestListenNilCache(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	require.ErrorIs(t, newTable(t, client).Listen(t.Context(), nil), ratelimit.ErrMisconfigured)
}
