package wrap_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/wrap"
)

// What the wraps cost those who do not need them: one goroutine, in memory.
func BenchmarkAlone(b *testing.B) {
	bare := ratelimit.NewSlidingWindow(memory.New())
	for _, c := range []struct {
		name    string
		limiter ratelimit.Limiter
	}{
		{"bare", bare},
		{"fallback", wrap.Fallback(bare)},
		{"coalesce", wrap.Coalesce(bare)},
		{"deny cache", wrap.DenyCache(bare)},
	} {
		b.Run(c.name, func(b *testing.B) { one(b, c.limiter, ask("a", 1, ratelimit.PerHour(1<<40))) })
	}
}

// What a call costs while the primary is down.
func BenchmarkDown(b *testing.B) {
	for name, m := range map[string]wrap.Mode{"deny": wrap.Deny(), "allow": wrap.Allow(), "local": wrap.Local(2, ratelimit.NewSlidingWindow)} {
		b.Run(name, func(b *testing.B) {
			p := newPrimary()
			p.fail(errGone)
			one(b, wrap.Fallback(p, wrap.WithMode(m)), ask("a", 1, ratelimit.PerHour(1<<40)))
		})
	}
}

// A refusal, again and again.
func BenchmarkRefused(b *testing.B) {
	store := benchStore(b)
	for _, c := range []struct {
		name    string
		limiter ratelimit.Limiter
	}{
		{"memory", ratelimit.NewSlidingWindow(memory.New())},
		{"redis", ratelimit.NewSlidingWindow(store)},
		{"redis, deny cache", wrap.DenyCache(ratelimit.NewSlidingWindow(store))},
	} {
		b.Run(c.name, func(b *testing.B) { one(b, c.limiter, ask("refused", 1, ratelimit.PerHour(0))) })
		b.Run(c.name+", 256 goroutines", func(b *testing.B) { many(b, c.limiter, 256, ask("refused", 1, ratelimit.PerHour(0))) })
	}
}

// Many goroutines at one key of a Redis.
func BenchmarkHotKey(b *testing.B) {
	store := benchStore(b)
	bare := ratelimit.NewSlidingWindow(store)
	for _, goroutines := range []int{1, 64, 256} {
		for name, limiter := range map[string]ratelimit.Limiter{"bare": bare, "coalesce": wrap.Coalesce(bare)} {
			for _, n := range []int64{1, 3} {
				b.Run(fmt.Sprintf("%s, %d goroutines, %d units", name, goroutines, n), func(b *testing.B) {
					many(b, limiter, goroutines, inFull(ask("hot", n, ratelimit.PerHour(1<<40))))
				})
			}
		}
	}
}

func benchStore(b *testing.B) *redisstore.Store {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})
	b.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(b, err)
	return store
}

func one(b *testing.B, limiter ratelimit.Limiter, requests []ratelimit.RequestedQuota) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := limiter.CheckAndUseQuotas(context.Background(), requests); err != nil {
			b.Fatal(err)
		}
	}
}

func many(b *testing.B, limiter ratelimit.Limiter, goroutines int, requests []ratelimit.RequestedQuota) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := limiter.CheckAndUseQuotas(context.Background(), requests); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
