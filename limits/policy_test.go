package limits_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// With every strategy, in memory and in Redis: what was used stays used when a
// limit changes, through a table and a cache before it; and 0 blocks.
func TestPolicy(t *testing.T) {
	at := ratelimit.At(limitertest.Start)
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for strategy, newLimiter := range limitertest.Strategies {
			t.Run(strategy, func(t *testing.T) {
				table, err := limits.NewMemory()
				require.NoError(t, err)
				cache := newCache(t, table)
				policy, err := ratelimit.NewPolicyFrom(strategy, newLimiter(store), cache.Source("r"))
				require.NoError(t, err)
				step := func(n int64, want, left int64) {
					t.Helper()
					require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(100)}, {Resource: "r", Account: "own", Quotas: perMinute(n)}}))
					cache.InvalidateAll()
					d, err := policy.Take(t.Context(), "own", 80, at)
					require.NoError(t, err)
					require.Equal(t, [2]int64{want, left}, [2]int64{d.Granted, d.Remaining}, "a limit of %d", n)
				}
				step(0, 0, 0)
				step(100, 80, 20)
				step(50, 0, 0)
				step(0, 0, 0)
				if strategy != "token-bucket" { // whose rate is another with another limit
					step(200, 80, 40)
				}
				d, err := policy.Take(t.Context(), "someone", 80, at)
				require.NoError(t, err)
				require.EqualValues(t, 20, d.Remaining)

				require.NoError(t, table.Replace(nil))
				cache.InvalidateAll()
				_, err = policy.Allow(t.Context(), "own", at)
				require.ErrorIs(t, err, limits.ErrUnknownResource)
			})
		}
	})
}

// A policy's Allow in memory, with quotas of its own and with those of a source.
func BenchmarkPolicy(b *testing.B) {
	table, err := limits.NewMemory(limits.Limit{Resource: "r", Quotas: perMinute(1 << 40)})
	require.NoError(b, err)
	cache := newCache(b, table, limits.WithAge(24*time.Hour))
	limiter := ratelimit.NewSlidingWindow(memory.New())
	fixed, err := ratelimit.NewPolicy("fixed", limiter, perMinute(1<<40)...)
	require.NoError(b, err)
	ofCache, err := ratelimit.NewPolicyFrom("cache", limiter, cache.Source("r"))
	require.NoError(b, err)
	ofMemory, err := ratelimit.NewPolicyFrom("memory", limiter, table.Source("r"))
	require.NoError(b, err)
	for _, p := range []*ratelimit.Policy{fixed, ofCache, ofMemory} {
		b.Run(p.Name(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, err := p.Allow(context.Background(), "acct-1"); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}
