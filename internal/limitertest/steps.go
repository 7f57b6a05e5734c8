// Package limitertest has tests that every Limiter must pass, whatever its
// strategy, its storage, and what is wrapped around it.
package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// Strategies are the constructors of all strategies, by name.
var Strategies = map[string]func(storage.Storage) ratelimit.Limiter{
	"sliding-window":  ratelimit.NewSlidingWindow,
	"list":            func(s storage.Storage) ratelimit.Limiter { return ratelimit.NewListLimiter(s) },
	"hash":            ratelimit.NewHashLimiter,
	"simple":          ratelimit.NewSimpleLimiter,
	"sliding-counter": ratelimit.NewSlidingCounter,
	"token-bucket":    ratelimit.NewTokenBucket,
}

// Start is the time of each script's first step. It lies on an edge of every
// window in the scripts.
var Start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	s  = time.Second
	us = time.Microsecond
)

// A Script is a sequence of calls to one limiter, and what they are granted.
type Script struct {
	Name     string
	Strategy string
	Quotas   []ratelimit.Quota
	Steps    []Step
}

// A Step is one CheckAndUseQuotas of prefix "a".
type Step struct {
	At      time.Duration // since Start
	Request int64
	Granted int64
	Retry   time.Duration // wanted RetryAfter
	Left    int64         // wanted Remaining
}

func quota(limit int64, window, granularity time.Duration) []ratelimit.Quota {
	return []ratelimit.Quota{{Limit: limit, Window: window, Granularity: granularity}}
}

const never = ratelimit.Never

// Scripts are worked by hand from the promise of each strategy.
var Scripts = []Script{
	{"a granule frees at its edge", "sliding-window", quota(3, 10*s, 2*s), []Step{
		{0, 2, 2, 0, 1},
		{2*s - us, 1, 1, 0, 0},
		{2*s - us, 1, 0, 8*s + us, 0}, // granule 0 counts while granules 0 to 4 are current
		{10*s - us, 1, 0, us, 0},
		{10 * s, 1, 1, 0, 2},
		{10*s + us, 3, 2, 10*s - us, 0}, // partly
		{20*s - us, 3, 0, us, 0},
		{20 * s, 3, 3, 0, 0},
	}},
	{"the list is exact to the µs", "list", quota(3, 10*s, 2*s), []Step{
		{0, 1, 1, 0, 2},
		{1*s + us, 2, 2, 0, 0},
		{10*s - us, 1, 0, us, 0},
		{10 * s, 1, 1, 0, 0}, // half-open: now - t < W
		{10 * s, 2, 0, 1*s + us, 0},
		{11 * s, 2, 0, us, 0},
		{11*s + us, 2, 2, 0, 0},
	}},
	{"a bucket frees late, never early", "hash", quota(3, 10*s, 2*s), []Step{
		{0, 3, 3, 0, 0},
		{10*s - us, 1, 0, 2*s + us, 0},
		{10 * s, 1, 0, 2 * s, 0},
		{12*s - us, 1, 0, us, 0},
		{12 * s, 1, 1, 0, 2},
	}},
	{"a fixed window ends for everybody", "simple", quota(3, 10*s, 2*s), []Step{
		{9 * s, 3, 3, 0, 0},
		{10*s - us, 1, 0, us, 0},
		{10 * s, 3, 3, 0, 0}, // twice the limit within a second: that is its promise
		{10*s + us, 1, 0, 10*s - us, 0},
		{20 * s, 4, 3, never, 0},
	}},
	{"the previous window goes bit by bit", "sliding-counter", quota(10, 10*s, s), []Step{
		{0, 10, 10, 0, 0},
		{10*s - us, 1, 0, s + us, 0},
		{10 * s, 1, 0, s, 0}, // the previous window counts in full: a unit goes each second
		{11*s - us, 1, 0, us, 0},
		{11 * s, 1, 1, 0, 0},
		{11*s + us, 1, 0, s - us, 0},
		{12 * s, 1, 1, 0, 0},
		{15 * s, 5, 3, 5 * s, 0}, // 5 of the previous, 2 of this one
		{20*s - us, 4, 4, 0, 0},  // 1 of the previous to the very end, 5 of this one
		{20 * s, 1, 1, 0, 0},     // 9 of the previous
		{20*s + us, 1, 0, 1111111 * us, 0},
		{21111111 * us, 1, 0, us, 0}, // 9 × 8888889 / 10000000 is above 8
		{21111112 * us, 1, 1, 0, 0},
		{40*s - us, 0, 0, 0, 9},
		{40 * s, 0, 0, 0, 10},
	}},
	{"a bucket is refilled all the time", "token-bucket", quota(3, 10*s, 2*s), []Step{
		{0, 3, 3, 0, 0},
		{3333332 * us, 1, 0, 2 * us, 0}, // a unit takes 10/3 s
		{3333333 * us, 1, 0, us, 0},
		{3333334 * us, 1, 1, 0, 0},
		{6666666 * us, 1, 0, us, 0}, // nothing is lost to rounding: 2 units at 6666666 2/3 µs
		{6666667 * us, 1, 1, 0, 0},
		{10 * s, 1, 1, 0, 0},
		{60 * s, 4, 3, never, 0},
	}},
	{"a burst is saved up", "token-bucket", []ratelimit.Quota{{Limit: 1, Window: s, Burst: 5}}, []Step{
		{0, 5, 5, 0, 0},
		{500 * time.Millisecond, 1, 0, 500 * time.Millisecond, 0},
		{s, 1, 1, 0, 0},
		{100 * s, 6, 5, never, 0},
	}},
	{"time does not go backwards", "sliding-window", quota(2, 10*s, s), []Step{
		{30 * s, 1, 1, 0, 1},
		{0, 1, 1, 0, 0},      // counts at 30 s
		{0, 1, 0, 40 * s, 0}, // and so it is there until 40 s
		{39 * s, 1, 0, s, 0}, //
		{40 * s, 2, 2, 0, 0}, //
		{-9 * s, 1, 0, 59 * s, 0},
	}},
	{"time does not go backwards", "list", quota(2, 10*s, s), []Step{
		{30 * s, 1, 1, 0, 1},
		{0, 1, 1, 0, 0},
		{0, 1, 0, 40 * s, 0},
		{40*s - us, 1, 0, us, 0},
		{40 * s, 2, 2, 0, 0},
	}},
	{"time does not go backwards", "hash", quota(2, 10*s, s), []Step{
		{30 * s, 1, 1, 0, 1},
		{0, 2, 1, 41 * s, 0},
		{41 * s, 2, 2, 0, 0},
	}},
	{"time does not go backwards", "simple", quota(2, 10*s, s), []Step{
		{30 * s, 1, 1, 0, 1},
		{29 * s, 2, 1, 11 * s, 0},
		{40 * s, 2, 2, 0, 0},
	}},
	{"time does not go backwards", "sliding-counter", quota(2, 10*s, s), []Step{
		{30 * s, 1, 1, 0, 1},
		{29 * s, 2, 1, 21 * s, 0}, // counts at 30 s
		{0, 1, 0, 45 * s, 0},
		{45*s - us, 1, 0, us, 0},
		{45 * s, 1, 1, 0, 0},
		{42 * s, 1, 0, 8 * s, 0}, // in the newest window: 2 of the previous, and 1
		{45*s + us, 1, 0, 5*s - us, 0},
		{50 * s, 1, 1, 0, 0},
	}},
	{"time does not go backwards", "token-bucket", quota(2, 10*s, s), []Step{
		{30 * s, 2, 2, 0, 0},
		{0, 1, 0, 35 * s, 0},
		{35 * s, 1, 1, 0, 0},
	}},
	{"the tighter quota decides", "sliding-window", []ratelimit.Quota{
		{Limit: 5, Window: 60 * s, Granularity: 10 * s},
		{Limit: 2, Window: 3 * s, Granularity: s},
	}, []Step{
		{0, 3, 2, never, 0},
		{s, 2, 0, 2 * s, 0},
		{3 * s, 2, 2, 0, 0},
		{6 * s, 2, 1, 54 * s, 0},
		{60 * s, 2, 2, 0, 0},
	}},
	{"asking for nothing", "sliding-window", quota(1, 10*s, s), []Step{
		{0, 0, 0, 0, 1},
		{0, 1, 1, 0, 0},
		{0, 0, 0, 0, 0},
	}},
	{"a limit of nothing", "sliding-window", quota(0, 10*s, s), []Step{{0, 1, 0, never, 0}, {0, 0, 0, 0, 0}}},
	{"a limit of nothing", "list", quota(0, 10*s, s), []Step{{0, 1, 0, never, 0}}},
	{"a limit of nothing", "hash", quota(0, 10*s, s), []Step{{0, 1, 0, never, 0}}},
	{"a limit of nothing", "simple", quota(0, 10*s, s), []Step{{0, 1, 0, never, 0}}},
	{"a limit of nothing", "sliding-counter", quota(0, 10*s, s), []Step{{0, 1, 0, never, 0}}},
	{"a limit of nothing", "token-bucket", []ratelimit.Quota{{Window: 10 * s, Burst: 5}}, []Step{{0, 1, 0, never, 0}}},
	{"an ordinary daily limit", "sliding-counter", quota(123_457, 24*time.Hour, time.Hour), []Step{
		{0, 123_457, 123_457, 0, 0},
		{24*time.Hour + 699_838*us, 1, 0, us, 0}, // 86,400,000,000 / 123,457 = 699,838.8… µs
		{24*time.Hour + 699_839*us, 1, 1, 0, 0},
		{48 * time.Hour, 123_457, 123_456, 48 * time.Hour, 0},
	}},
	{"an ordinary daily limit", "token-bucket", quota(123_457, 24*time.Hour, time.Hour), []Step{
		{0, 123_457, 123_457, 0, 0},
		{699_838 * us, 1, 0, us, 0}, // 86,400,000,000 / 123,457 = 699,838.8… µs
		{699_839 * us, 1, 1, 0, 0},
		{24 * time.Hour, 123_457, 123_456, 24 * time.Hour, 0}, // full at 48 h to the µs: no drift
	}},
}

// RunScripts runs the scripts of all strategies on what open returns for each.
func RunScripts(t *testing.T, open func(t *testing.T, strategy string) ratelimit.Limiter) {
	for i, script := range Scripts {
		t.Run(fmt.Sprintf("%s/%s", script.Strategy, script.Name), func(t *testing.T) {
			limiter := open(t, script.Strategy)
			prefix := fmt.Sprintf("script %d", i)
			for j, step := range script.Steps {
				grants, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{
					{Prefix: prefix, Requested: step.Request, Quotas: script.Quotas},
				}, ratelimit.At(Start.Add(step.At)))
				require.NoError(t, err)
				g := grants[0]
				require.Equal(t, step, Step{step.At, step.Request, g.Granted, g.RetryAfter, g.Remaining}, "step %d", j)
			}
		})
	}
}
