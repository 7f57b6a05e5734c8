package ratelimit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// wrapped hides what a limiter is, as a Limiter of another package would.
type wrapped struct{ ratelimit.Limiter }

// eachPolicy runs a test on policies over every storage, by the direct way and
// through a Limiter of another package.
func eachPolicy(t *testing.T, test func(t *testing.T, limiter ratelimit.Limiter)) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		limiter := ratelimit.NewSlidingWindow(store)
		t.Run("direct", func(t *testing.T) { test(t, limiter) })
		t.Run("wrapped", func(t *testing.T) { test(t, wrapped{limiter}) })
	})
}

func newPolicy(t *testing.T, limiter ratelimit.Limiter, quotas ...ratelimit.Quota) *ratelimit.Policy {
	t.Helper()
	p, err := ratelimit.NewPolicy(t.Name()[:1]+":%"+t.Name(), limiter, quotas...)
	require.NoError(t, err)
	return p
}

func TestPolicy(t *testing.T) {
	eachPolicy(t, func(t *testing.T, limiter ratelimit.Limiter) {
		ctx, at := t.Context(), ratelimit.At(limitertest.Start)
		hour := ratelimit.PerHour(7)
		p := newPolicy(t, limiter, ratelimit.PerMinute(5), hour)

		d, err := p.Allow(ctx, "bob", at)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 1, d.Granted)
		require.EqualValues(t, 4, d.Remaining)
		require.Equal(t, time.Hour, d.ResetAfter)

		d, err = p.AllowN(ctx, "bob", 5, at) // all or nothing
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Zero(t, d.Granted)
		require.Equal(t, time.Minute, d.RetryAfter)
		require.Equal(t, []ratelimit.Quota{ratelimit.PerMinute(5)}, d.ReachedQuotas)

		d, err = p.Check(ctx, "bob", 5, at)
		require.NoError(t, err)
		require.EqualValues(t, 4, d.Granted)
		require.True(t, d.At().Equal(limitertest.Start))

		d, err = p.Take(ctx, "bob", 9, at) // as many as fit
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.EqualValues(t, 4, d.Granted)
		require.Equal(t, ratelimit.Never, d.RetryAfter)

		require.NoError(t, p.Use(ctx, "bob", 3, at)) // without asking
		later := ratelimit.At(limitertest.Start.Add(time.Minute))
		d, err = p.Allow(ctx, "bob", later)
		require.NoError(t, err)
		require.False(t, d.Allowed, "8 of 7 an hour are used")
		require.Equal(t, []ratelimit.Quota{hour}, d.ReachedQuotas)

		d, err = p.Allow(ctx, "alice", later)
		require.NoError(t, err)
		require.True(t, d.Allowed, "another key")

		require.NoError(t, p.Reset(ctx, "bob"))
		d, err = p.Check(ctx, "bob", 0, later)
		require.NoError(t, err)
		require.EqualValues(t, 5, d.Remaining)
	})
}

// Policies of different names do not share counters, however the names and keys
// are put together.
func TestPolicyNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	digest := sha256.Sum256([]byte("a:" + long)) // what stands in its place
	eachPolicy(t, func(t *testing.T, limiter ratelimit.Limiter) {
		for _, c := range []struct{ name, key string }{
			{"a", "b:c"}, {"a:b", "c"}, {"a%3Ab", "c"}, {"a", "b%3Ac"}, {"a%", "3Ab:c"},
			{"a", long}, {"sha256", hex.EncodeToString(digest[:])}, {"sha256", "x"},
		} {
			p, err := ratelimit.NewPolicy(c.name, limiter, ratelimit.PerMinute(1))
			require.NoError(t, err)
			d, err := p.Allow(t.Context(), c.key, ratelimit.At(limitertest.Start))
			require.NoError(t, err)
			require.True(t, d.Allowed, "%q %q met another policy", c.name, c.key)
			defer func() { require.NoError(t, p.Reset(t.Context(), c.key)) }()
		}
	})
}

// What a policy counts is what its doc says it is to a Limiter.
func TestPolicyPrefix(t *testing.T) {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	for _, l := range []ratelimit.Limiter{limiter, wrapped{limiter}} {
		p, err := ratelimit.NewPolicy("log:in", l, ratelimit.PerMinute(9))
		require.NoError(t, err)
		_, err = p.AllowN(t.Context(), "bob", 2)
		require.NoError(t, err)
	}
	_, grants, err := limiter.CheckWithinQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: "log%3Ain:bob", Quotas: []ratelimit.Quota{ratelimit.PerMinute(9)}}})
	require.NoError(t, err)
	require.EqualValues(t, 5, grants[0].Remaining)
}

func TestPolicySharedQuota(t *testing.T) {
	eachPolicy(t, func(t *testing.T, limiter ratelimit.Limiter) {
		at := ratelimit.At(limitertest.Start)
		global := ratelimit.Quota{Limit: 3, Window: time.Hour, PrefixOverride: t.Name()}
		p := newPolicy(t, limiter, ratelimit.PerMinute(2), global)
		q, err := ratelimit.NewPolicy("other", limiter, global)
		require.NoError(t, err)
		_, err = p.AllowN(t.Context(), "a", 2, at)
		require.NoError(t, err)
		_, err = q.AllowN(t.Context(), "z", 1, at)
		require.NoError(t, err)
		d, err := p.Allow(t.Context(), "b", at)
		require.NoError(t, err)
		require.Equal(t, []ratelimit.Quota{global}, d.ReachedQuotas)
		// Reset leaves alone what other keys have used.
		require.NoError(t, p.Reset(t.Context(), "a"))
		require.NoError(t, q.Reset(t.Context(), "z"))
		d, err = p.Check(t.Context(), "a", 1, at)
		require.NoError(t, err)
		require.Equal(t, []ratelimit.Quota{global}, d.ReachedQuotas)
	})
}

func TestPolicyReachedQuotas(t *testing.T) {
	q := func(limit int64, minutes int) ratelimit.Quota {
		return ratelimit.Per(limit, time.Duration(minutes)*time.Minute)
	}
	all := []ratelimit.Quota{q(9, 1), q(6, 2), q(5, 3), q(7, 4), q(3, 5), q(2, 6)}
	for _, limiter := range []ratelimit.Limiter{ratelimit.NewSimpleLimiter(memory.New()), wrapped{ratelimit.NewSimpleLimiter(memory.New())}} {
		p, err := ratelimit.NewPolicy("p", limiter, all...)
		require.NoError(t, err)
		d, err := p.Check(t.Context(), "a", 8)
		require.NoError(t, err)
		require.Equal(t, []ratelimit.Quota{all[1], all[2], all[4], all[5]}, d.ReachedQuotas)
		d, err = p.Check(t.Context(), "a", 3)
		require.NoError(t, err)
		require.Equal(t, all[5:], d.ReachedQuotas)
		d, err = p.Check(t.Context(), "a", 2)
		require.NoError(t, err)
		require.Empty(t, d.ReachedQuotas)
	}
}

// A limiter that embeds one of this package, and decides otherwise, is asked.
func TestPolicyEmbedded(t *testing.T) {
	refuses := refuser{ratelimit.NewListLimiter(memory.New())}
	p, err := ratelimit.NewPolicy("p", refuses, ratelimit.PerMinute(1))
	require.NoError(t, err)
	d, err := p.Allow(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, d.Allowed)
}

type refuser struct{ *ratelimit.ListLimiter }

func (refuser) CheckAndUseQuotas(_ context.Context, requests []ratelimit.RequestedQuota, _ ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	return []ratelimit.GrantedQuota{{Prefix: requests[0].Prefix}}, nil
}

// Options that say nothing of the time leave it as it was given.
func TestPolicyUseAt(t *testing.T) {
	p, err := ratelimit.NewPolicy("p", ratelimit.NewListLimiter(memory.New()), ratelimit.PerMinute(5))
	require.NoError(t, err)
	at := ratelimit.At(limitertest.Start)
	_, err = p.AllowN(t.Context(), "a", 5, at)
	require.NoError(t, err)
	require.NoError(t, p.Use(t.Context(), "a", -2, at, ratelimit.Together()))
	d, err := p.Check(t.Context(), "a", 5, at)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Granted)
}

func TestPolicyBadInput(t *testing.T) {
	limiter := ratelimit.NewSlidingWindow(untouchable{t})
	minute := ratelimit.PerMinute(1)
	for _, l := range []ratelimit.Limiter{limiter, wrapped{limiter}} {
		for _, name := range []string{"", "é", "a\n", "\x7f"} {
			_, err := ratelimit.NewPolicy(name, l, minute)
			require.ErrorIs(t, err, ratelimit.ErrInvalidRequest, "%q", name)
		}
		_, err := ratelimit.NewPolicy("p", l)
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
		_, err = ratelimit.NewPolicy("p", l, ratelimit.Per(-5, time.Minute))
		require.ErrorIs(t, err, ratelimit.ErrInvalidQuota)
		require.ErrorContains(t, err, "Limit -5")

		p, err := ratelimit.NewPolicy("p", l, minute)
		require.NoError(t, err)
		for _, call := range []func(key string, n int64) error{
			func(key string, n int64) error { _, err := p.AllowN(t.Context(), key, n); return err },
			func(key string, n int64) error { _, err := p.Take(t.Context(), key, n); return err },
			func(key string, n int64) error { _, err := p.Check(t.Context(), key, n); return err },
			func(key string, n int64) error {
				if n == -1 {
					n = -1 << 53
				}
				return p.Use(t.Context(), key, n)
			},
			func(key string, n int64) error { return p.WaitN(t.Context(), key, n) },
		} {
			require.ErrorIs(t, call("", 1), ratelimit.ErrEmptyPrefix)
			require.ErrorIs(t, call("a", -1), ratelimit.ErrInvalidRequest)
			require.ErrorIs(t, call("a", 1<<53), ratelimit.ErrInvalidRequest)
		}
		require.ErrorIs(t, p.Use(t.Context(), "a", -1), ratelimit.ErrInvalidRequest, "of what time?")
		require.ErrorIs(t, p.Use(t.Context(), "a", 1, ratelimit.At(time.Time{})), ratelimit.ErrInvalidRequest)
		require.ErrorIs(t, p.Reset(t.Context(), ""), ratelimit.ErrEmptyPrefix)
		var none context.Context
		_, err = p.Allow(none, "a")
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
	}
	_, err := ratelimit.NewPolicy("p", nil, minute)
	require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
	_, err = ratelimit.NewPolicy("p", limiter, minute, minute)
	require.ErrorContains(t, err, "are the same counter")
}

func TestDo(t *testing.T) {
	eachPolicy(t, func(t *testing.T, limiter ratelimit.Limiter) {
		ctx := t.Context()
		p := newPolicy(t, limiter, ratelimit.PerDay(2))
		remaining := func() int64 {
			d, err := p.Check(ctx, "a", 0)
			require.NoError(t, err)
			return d.Remaining
		}
		failed := errors.New("no luck")
		require.ErrorIs(t, p.Do(ctx, "a", func(context.Context) error { return failed }), failed)
		require.Panics(t, func() { _ = p.Do(ctx, "a", func(context.Context) error { panic("no luck at all") }) })
		require.EqualValues(t, 2, remaining(), "what fails is not charged")

		// Work that is done counts, also when its caller has gone.
		gone, cancel := context.WithCancel(ctx)
		require.NoError(t, p.Do(gone, "a", func(context.Context) error { cancel(); return nil }))
		require.EqualValues(t, 1, remaining())
		require.NoError(t, p.Do(ctx, "a", func(context.Context) error { return nil }))

		err := p.Do(ctx, "a", func(context.Context) error { t.Error("ran"); return nil })
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		var limited *ratelimit.LimitedError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, p.Name(), limited.Policy)
		require.Equal(t, "a", limited.Key)
		require.False(t, limited.Decision.Allowed)
		require.Positive(t, limited.Decision.RetryAfter)
		require.ErrorContains(t, err, "retry after")
	})
}

// Waiting takes no real time here: the clocks of a bubble stand still until all
// in it wait.
func TestWait(t *testing.T) {
	for name, open := range limitertest.Strategies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy(t, open(memory.New()), ratelimit.PerMinute(3))
				start := time.Now()
				for range 12 {
					require.NoError(t, p.Wait(t.Context(), "a"))
				}
				took := time.Since(start)
				require.GreaterOrEqual(t, took, 2*time.Minute)
				most := 4 * time.Minute
				if name == "sliding-counter" { // what is left of a unit counts as one: two a minute
					most = 6 * time.Minute
				}
				require.LessOrEqual(t, took, most)
			})
		})
	}
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(t, ratelimit.NewListLimiter(memory.New()), ratelimit.PerMinute(2))
		require.NoError(t, p.WaitN(t.Context(), "a", 2))
		start := time.Now()

		require.ErrorIs(t, p.WaitN(t.Context(), "a", 3), ratelimit.ErrNeverAllowed)

		near, cancel := context.WithTimeout(t.Context(), time.Minute) // over when the units come
		defer cancel()
		err := p.Wait(near, "a")
		require.ErrorIs(t, err, ratelimit.ErrDeadlineTooNear)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "both are known at once")

		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		err = p.Wait(cancelled, "a")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.ErrorIs(t, p.Wait(cancelled, "a"), context.Canceled)

		enough, cancel := context.WithTimeout(t.Context(), 51*time.Second)
		defer cancel()
		require.NoError(t, p.WaitN(enough, "a", 2))
		require.Equal(t, time.Minute, time.Since(start), "and nothing of it was recorded")
	})
}

// A fair share of a saturated policy is not promised, but that all get through is.
func TestWaitMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(t, ratelimit.NewListLimiter(memory.New()), ratelimit.PerSecond(5))
		start := time.Now()
		done := make(chan error)
		for range 50 {
			go func() { done <- p.Wait(t.Context(), "a") }()
		}
		for range 50 {
			require.NoError(t, <-done)
		}
		require.Equal(t, 9*time.Second, time.Since(start).Truncate(time.Millisecond))
	})
}

// A decision in memory allocates nothing, granted or refused.
func TestPolicyAllocations(t *testing.T) {
	for name, open := range limitertest.Strategies {
		for _, limit := range []int64{1 << 20, 1} {
			p := newPolicy(t, open(memory.New()), ratelimit.Quota{Limit: limit, Window: time.Hour, Granularity: time.Hour})
			allocs := testing.AllocsPerRun(1000, func() {
				if _, err := p.Allow(context.Background(), "a"); err != nil {
					t.Error(err)
				}
			})
			if !raceEnabled { // which adds some of its own
				require.Zero(t, int(allocs), "%s, limit %d", name, limit)
			}
		}
	}
}
