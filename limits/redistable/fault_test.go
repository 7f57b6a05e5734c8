package redistable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/limits"
)

// version is 30 limits in three resources, all of the same number; odd versions
// leave out some accounts that have no default, and list others.
func version(n int64) (list []limits.Limit) {
	for _, resource := range []string{"a", "b", "c"} {
		list = append(list, limit(resource, "", n))
		for i := range 9 {
			list = append(list, limit(resource, fmt.Sprint(i), n))
		}
	}
	return list
}

// Connections are cut at any moment of a load: each account has its old limit or
// its new one, those of one resource change together, and the next load does the rest.
func TestLoadCut(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 200 * time.Millisecond})
	defer client.Close()
	broken, table := newTable(t, client), newTable(t, server.Client(t))
	load(t, table, "billing", version(0)...)
	failed := 0
	for n := int64(1); n <= 150; n++ {
		fault := []redistest.Fault{redistest.CloseAfterRequest, redistest.ResetBeforeRequest, redistest.Refuse}[n%3]
		ctx, cancel := context.WithCancel(t.Context())
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			time.Sleep(time.Duration(n%15) * 100 * time.Microsecond)
			proxy.Set(fault)
		}()
		_, err := limits.Loader{Store: broken, Service: "billing"}.Load(ctx, version(n))
		cancel()
		<-cut
		if err != nil {
			failed++
			require.Regexp(t, "^limits: (the resources of|resource \"[abc]\" of) service \"billing\": ratelimit: ", err.Error())
		}
		for _, resource := range []string{"a", "b", "c"} {
			got := limitOf(t, table, resource, "")
			require.True(t, got == n || got == n-1, "%s: %d, want %d or %d", resource, got, n-1, n)
			for i := range 9 {
				require.Equal(t, got, limitOf(t, table, resource, fmt.Sprint(i)), "half of a step")
			}
		}
		proxy.Set(redistest.None)
		load(t, table, "billing", version(n)...)
		require.Equal(t, limits.Report{Unchanged: 30}, load(t, table, "billing", version(n)...))
	}
	require.Greater(t, failed, 30, "hardly anything was cut")
	require.Len(t, load(t, table, "billing").Changes, 30, "what a load that died has added is found")
}

// A step whose answer is lost is not sent again, and the error says that it may
// have been done.
func TestLoadLostReply(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr}) // with its retries
	defer client.Close()
	broken, table := newTable(t, client), newTable(t, server.Client(t))
	sync := func(dryRun bool) error {
		proxy.Set(redistest.None)
		require.NoError(t, client.Ping(t.Context()).Err()) // connected
		proxy.Set(redistest.CloseAfterRequest)
		_, err := broken.Sync(t.Context(), "billing", "a", nil, dryRun)
		return err
	}
	require.ErrorIs(t, sync(false), ratelimit.ErrIndeterminate)
	require.ErrorIs(t, sync(true), ratelimit.ErrUnavailable)
	require.Contains(t, server.Client(t).Info(t.Context(), "commandstats").Val(), "cmdstat_eval:calls=2,", "once for each")
	_, err := broken.Quotas(t.Context(), "a", "")
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	_, err = table.Quotas(t.Context(), "a", "")
	require.ErrorIs(t, err, limits.ErrUnknownResource)
}

// A server that is read-only, or loads, may do it later.
func TestPassingAnswers(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	host, port, _ := strings.Cut(redistest.Start(t).Addr, ":")
	require.NoError(t, client.Do(t.Context(), "replicaof", host, port).Err())
	_, err := limits.Loader{Store: newTable(t, client), Service: "billing"}.Load(t.Context(), version(1))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
}

// The whole way: Redis dies, the cache goes on with what it has, and says so.
func TestCacheOverDeadRedis(t *testing.T) {
	server := redistest.Start(t)
	table := newTable(t, server.Client(t))
	load(t, table, "billing", limit("a", "", 1), limit("a", "x", 2))
	cache, err := limits.NewCache(table, limits.WithAge(20*time.Millisecond), limits.WithFetchTimeout(10*time.Second))
	require.NoError(t, err)
	defer cache.Close()
	require.EqualValues(t, 2, limitOf(t, cache, "a", "x"))
	server.Stop()
	require.Eventually(t, func() bool {
		require.EqualValues(t, 2, limitOf(t, cache, "a", "x"))
		stats := cache.Stats()
		return stats.Failing && stats.Stale > 0
	}, time.Minute, time.Millisecond)
	_, err = cache.Quotas(t.Context(), "a", "y")
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	server.Restart(t) // empty
	load(t, table, "billing", limit("a", "", 3), limit("a", "x", 4))
	require.Eventually(t, func() bool {
		quotas, err := cache.Quotas(t.Context(), "a", "x")
		return err == nil && quotas[0].Limit == 4
	}, time.Minute, time.Millisecond)
}
