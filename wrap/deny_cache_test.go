package wrap_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/wrap"
)

// cached is a DenyCache and the spy in it.
func cached(opts ...wrap.DenyCacheOption) (*spy, ratelimit.Limiter) {
	inner := &spy{Limiter: ratelimit.NewSlidingWindow(memory.New())}
	return inner, wrap.DenyCache(inner, opts...)
}

// In a refusal period the limiter is asked once, and the times count down.
func TestDenyCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, limiter := cached()
		quota := ratelimit.Quota{Name: "per ten seconds", Limit: 1, Window: 10 * time.Second}
		require.EqualValues(t, 1, use(t, limiter, ask("a", 1, quota)).Granted)
		for period := range 3 {
			start := time.Now()
			for time.Since(start) < 10*time.Second {
				g := use(t, limiter, inFull(ask("a", 1, quota)))
				left := 10*time.Second - time.Since(start)
				require.Equal(t, ratelimit.GrantedQuota{
					Prefix: "a", ReachedQuotas: []ratelimit.Quota{quota}, RetryAfter: left, ResetAfter: left,
					States: []ratelimit.QuotaState{{RetryAfter: left, NextAfter: left, ResetAfter: left}},
					At:     time.UnixMicro(time.Now().UnixMicro()),
				}, g)
				time.Sleep(10 * time.Millisecond)
			}
			require.EqualValues(t, 1, use(t, limiter, ask("a", 1, quota)).Granted)
			require.EqualValues(t, 2*(period+1)+1, inner.calls.Load(), "a grant and a refusal each period")
		}
	})
}

// What is refused here and what goes through.
func TestDenyCacheCovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, limiter := cached()
		quota := ratelimit.Quota{Limit: 10, Window: 10 * time.Second}
		asked := func(requests []ratelimit.RequestedQuota) bool {
			before := inner.calls.Load()
			use(t, limiter, requests)
			return inner.calls.Load() > before
		}
		require.True(t, asked(ask("a", 7, quota)))
		require.True(t, asked(inFull(ask("a", 4, quota))), "refused, with 3 left")
		require.False(t, asked(inFull(ask("a", 4, quota))))
		require.False(t, asked(inFull(ask("a", 5, quota))), "more units")
		require.False(t, asked(inFull(ask("a", 11, quota))))
		require.True(t, asked(inFull(ask("a", 1, quota))), "fewer units: granted")
		require.True(t, asked(ask("a", 4, quota)), "takes the part that is there, 2")
		require.False(t, asked(ask("a", 4, quota)), "nothing is there")
		require.False(t, asked(inFull(ask("a", 4, quota))))
		require.True(t, asked(ask("a", 0, quota)), "asks how things stand")
		require.True(t, asked(ask("a", 1, ratelimit.Quota{Limit: 11, Window: 10 * time.Second})), "another limit")
		require.True(t, asked(ask("b", 4, quota)))
		require.True(t, asked(append(ask("a", 4, quota), ask("b", 4, quota)...)), "several requests")
		quota.Name = "names do not count, but are told"
		require.Equal(t, quota, use(t, limiter, ask("a", 4, quota)).ReachedQuotas[0])
		require.False(t, asked(ask("a", 4, quota)))
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask("a", 4, quota), ratelimit.At(time.Now().Add(time.Minute)))
		require.NoError(t, err)
	})
}

// A refusal for good is repeated no longer than MaxHold, and nor is any other.
func TestDenyCacheMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, limiter := cached(wrap.WithMaxHold(5 * time.Second))
		for _, c := range []struct {
			n     int64
			quota ratelimit.Quota
		}{{1, ratelimit.PerHour(0)}, {3, ratelimit.PerHour(2)}, {2, ratelimit.PerHour(2)}} {
			requests := inFull(ask("a", c.n, c.quota))
			use(t, limiter, requests)
			use(t, limiter, requests)
			before := inner.calls.Load()
			use(t, limiter, requests)
			require.Equal(t, before, inner.calls.Load())
			g := use(t, limiter, requests)
			require.Equal(t, c.n > c.quota.Limit, g.RetryAfter == ratelimit.Never)
			time.Sleep(5 * time.Second)
			use(t, limiter, requests)
			require.Equal(t, before+1, inner.calls.Load())
		}
		inner, limiter = cached(wrap.WithMaxHold(0))
		use(t, limiter, ask("a", 1, ratelimit.PerHour(0)))
		use(t, limiter, ask("a", 1, ratelimit.PerHour(0)))
		require.EqualValues(t, 2, inner.calls.Load())
		require.Zero(t, wrap.Held(limiter))
	})
}

// A Reset through the cache is seen at once, also of shared counters, also by a
// call that is under way.
func TestDenyCacheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, limiter := cached()
		own, shared := ratelimit.PerHour(1), ratelimit.Quota{Limit: 2, Window: time.Hour, PrefixOverride: "all"}
		requests := ask("a", 1, own, shared)
		require.EqualValues(t, 1, use(t, limiter, requests).Granted)
		require.EqualValues(t, 0, use(t, limiter, requests).Granted)
		require.NoError(t, limiter.Reset(t.Context(), ask("a", 0, own)))
		require.EqualValues(t, 1, use(t, limiter, requests).Granted)
		require.EqualValues(t, 0, use(t, limiter, ask("b", 1, own, shared)).Granted)
		require.NoError(t, limiter.Reset(t.Context(), ask("x", 0, shared)))
		require.EqualValues(t, 1, use(t, limiter, ask("b", 1, own, shared)).Granted)

		// The refusal of before a Reset comes in after it.
		answered, proceed := make(chan struct{}), make(chan struct{})
		inner.after = func([]ratelimit.RequestedQuota) { answered <- struct{}{}; <-proceed }
		var wg sync.WaitGroup
		wg.Go(func() { use(t, limiter, requests) })
		<-answered
		inner.after = nil
		require.NoError(t, limiter.Reset(t.Context(), requests))
		close(proceed)
		wg.Wait()
		require.EqualValues(t, 1, use(t, limiter, requests).Granted)
	})
}

// Units given back through the cache can be had at once, also if it is not known
// whether they were; other uses leave it as it is.
func TestDenyCacheGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, limiter := cached()
		own, shared := ratelimit.PerHour(10), ratelimit.Quota{Limit: 5, Window: time.Hour, PrefixOverride: "all"}
		requests := ask("a", 5, own, shared)
		record := func(n int64) error {
			return limiter.UseQuotas(t.Context(), requests, []ratelimit.GrantedQuota{{Prefix: "a", Granted: n}}, time.Now())
		}
		require.EqualValues(t, 5, use(t, limiter, requests).Granted)
		require.Zero(t, use(t, limiter, requests).Granted)
		require.Zero(t, use(t, limiter, ask("b", 1, own, shared)).Granted)

		require.NoError(t, record(-2))
		require.EqualValues(t, 1, use(t, limiter, ask("b", 1, own, shared)).Granted)
		require.EqualValues(t, 1, use(t, limiter, requests).Granted)

		require.Zero(t, use(t, limiter, requests).Granted)
		require.NoError(t, record(1))
		before := inner.calls.Load()
		require.Zero(t, use(t, limiter, requests).Granted)
		require.Equal(t, before, inner.calls.Load(), "still held")

		inner.before = func(context.Context) error { return ratelimit.ErrIndeterminate }
		require.ErrorIs(t, record(-1), ratelimit.ErrIndeterminate)
		inner.before = nil
		use(t, limiter, requests)
		require.Equal(t, before+2, inner.calls.Load())
		require.ErrorIs(t, limiter.UseQuotas(t.Context(), requests, nil, time.Time{}), ratelimit.ErrInvalidRequest)
	})
}

// A degraded refusal is not repeated when the storage is back.
func TestDenyCacheDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		limiter := wrap.DenyCache(wrap.Fallback(p, wrap.WithProbeInterval(time.Minute)))
		p.fail(errGone)
		require.Equal(t, time.Minute, use(t, limiter, ask("a", 1, ratelimit.PerHour(1))).RetryAfter)
		time.Sleep(time.Second)
		require.Equal(t, 59*time.Second, use(t, limiter, ask("a", 1, ratelimit.PerHour(1))).RetryAfter)
		require.Zero(t, wrap.Held(limiter))
	})
}

// The number of refusals that are kept is bounded, expired ones leave first.
func TestDenyCacheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, limiter := cached(wrap.WithMaxEntries(128))
		for i := range 10_000 {
			use(t, limiter, ask(fmt.Sprint(i), 1, ratelimit.PerMinute(0)))
		}
		require.LessOrEqual(t, wrap.Held(limiter), 128)
		require.Greater(t, wrap.Held(limiter), 100)
	})
}

func TestDenyCacheNoBound(t *testing.T) {
	_, limiter := cached(wrap.WithMaxEntries(math.MaxInt))
	for i := range 1000 {
		use(t, limiter, ask(fmt.Sprint(i), 1, ratelimit.PerMinute(0)))
	}
	require.Equal(t, 1000, wrap.Held(limiter))
}

// A refusal takes a bounded number of bytes, however long the prefixes, and long
// ones are told apart.
func TestDenyCacheLongPrefixes(t *testing.T) {
	inner, limiter := cached()
	const size, n = 20_000, 200
	long := func(i int) string { return strings.Repeat("x", size) + fmt.Sprint(i) }
	call := func(i, j int) []ratelimit.RequestedQuota {
		return ask(long(i), 1, ratelimit.Quota{Name: long(i), Limit: 1, Window: time.Hour, PrefixOverride: long(j)})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		use(t, limiter, call(i, i))
		require.Zero(t, use(t, limiter, call(i, i)).Granted)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Equal(t, n, wrap.Held(limiter))
	inner.calls.Store(0)
	g := use(t, limiter, call(0, 0))
	require.Zero(t, inner.calls.Load())
	require.Equal(t, call(0, 0)[0].Quotas, g.ReachedQuotas)
	require.Equal(t, long(0), g.Prefix)
	use(t, limiter, call(1, 0))
	use(t, limiter, call(0, n))
	require.EqualValues(t, 2, inner.calls.Load())
	require.Less(t, after.HeapAlloc, before.HeapAlloc+n*size/2)
}

// What fits again by the limiter's clock, of which less than a µs is cut off, is not
// refused.
func TestDenyCacheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, limiter := cached()
		call := ask("a", 1, ratelimit.Per(1, time.Second))
		time.Sleep(999 * time.Nanosecond)
		use(t, limiter, call)
		time.Sleep(use(t, limiter, call).RetryAfter - 999*time.Nanosecond)
		require.EqualValues(t, 1, use(t, limiter, call).Granted)
	})
}

// TestDenyCacheTwin holds a DenyCache equal to the limiter alone, on random traffic
// of one size of request for each key.
func TestDenyCacheTwin(t *testing.T) {
	for strategy, open := range limitertest.Strategies {
		t.Run(strategy, func(t *testing.T) {
			r := random(t)
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					inner, twin := &spy{Limiter: open(newPlainStore())}, open(newPlainStore())
					limiter := wrap.DenyCache(inner, wrap.WithMaxHold(math.MaxInt64))
					quotas := randomCalls(r, "a")[0][0].Quotas
					for range 200 {
						time.Sleep(time.Duration(r.IntN(4)*r.IntN(700_000)) * time.Microsecond)
						n := pick[int64](r, 1, 1, 2, 5, r.Int64N(12))
						call := ask(fmt.Sprint(n), n, quotas...)
						call[0].AllOrNothing = r.IntN(2) == 0
						before := inner.calls.Load()
						got := use(t, limiter, call)
						want := use(t, twin, call)
						if inner.calls.Load() > before {
							require.Equal(t, want, got)
							continue
						}
						require.Zero(t, want.Granted)
						if len(quotas) == 1 {
							require.Equal(t, want.ReachedQuotas, got.ReachedQuotas)
							require.Equal(t, want.RetryAfter, got.RetryAfter, "%+v %+v", want, got)
							require.Equal(t, want.ResetAfter, got.ResetAfter)
							require.LessOrEqual(t, got.Remaining, want.Remaining)
						}
					}
				})
			}
		})
	}
}

// TestDenyCacheNeverTooMuch asks a real Redis just before: what it would have
// granted then, the cache does not refuse. Sizes and kinds of requests are mixed,
// and several keys share a counter.
func TestDenyCacheNeverTooMuch(t *testing.T) {
	store := teststore.Redis(t)
	for strategy, open := range limitertest.Strategies {
		t.Run(strategy, func(t *testing.T) {
			r := random(t)
			bare := open(store)
			inner := &spy{Limiter: bare}
			limiter := wrap.DenyCache(inner)
			shared := ratelimit.Quota{Limit: 12, Window: 70 * time.Millisecond, PrefixOverride: "all"}
			refused := 0
			for start := time.Now(); time.Since(start) < 150*time.Millisecond; {
				call := ask(pick(r, "a", "b"), 1+r.Int64N(4), ratelimit.Per(5, 30*time.Millisecond), shared)
				call[0].AllOrNothing = r.IntN(2) == 0
				_, would, err := bare.CheckWithinQuotas(context.Background(), call)
				require.NoError(t, err)
				before := inner.calls.Load()
				g := use(t, limiter, call)
				if inner.calls.Load() == before {
					refused++
					require.Zero(t, would[0].Granted, "%+v", call)
				}
				require.GreaterOrEqual(t, g.Granted, would[0].Granted)
			}
			require.NotZero(t, refused)
		})
	}
}
