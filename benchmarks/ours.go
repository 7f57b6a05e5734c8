package main

import (
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const thisLibrary = "this library"

// A limit is what all libraries of a case are set to.
type limit struct {
	units  int
	window time.Duration
}

var (
	// high is never reached in a run. It is no higher as a token bucket here must have
	// Burst times Limit below 2^53.
	high = limit{50_000_000, time.Minute}
	// low is used up at once and stays so over a run.
	low = limit{1, 24 * time.Hour}
	// highHour is high for windows of more granules, which are then as wide.
	highHour = limit{high.units, time.Hour}
)

// A strategy is one of this library, with as many granules as its windows have.
type strategy struct {
	name     string
	limiter  func(storage.Storage) ratelimit.Limiter
	granules int
	granular bool // granules are in its state
}

var strategies = []strategy{
	{"sliding window", ratelimit.NewSlidingWindow, 60, true},
	{"list", func(s storage.Storage) ratelimit.Limiter { return ratelimit.NewListLimiter(s) }, 60, false},
	{"hash", ratelimit.NewHashLimiter, 60, true},
	{"fixed window", ratelimit.NewSimpleLimiter, 60, false},
	{"token bucket", ratelimit.NewTokenBucket, 60, false},
}

var sliding = strategies[0]

// with is the strategy with another number of granules.
func (s strategy) with(granules int) strategy {
	s.name = fmt.Sprintf("%s, %s granules", s.name, thousands(granules))
	s.granules = granules
	return s
}

// quotas is n quotas: the limit itself, and the same limit in windows that are longer.
func (s strategy) quotas(l limit, n int) []ratelimit.Quota {
	quotas := make([]ratelimit.Quota, n)
	for i := range quotas {
		window := l.window * time.Duration(i+1)
		quotas[i] = ratelimit.Quota{Limit: int64(l.units), Window: window, Granularity: window / time.Duration(s.granules)}
	}
	return quotas
}

// policy is the strategy on a storage, for one limit.
func (s strategy) policy(store storage.Storage, l limit, quotas int) (*ratelimit.Policy, error) {
	return ratelimit.NewPolicy("bench", s.limiter(store), s.quotas(l, quotas)...)
}

// inMemory is the strategy as a contender. Of the keys that are given, every granule is in
// use, as of keys that were busy for a whole window, unless the limit is the low one.
func (s strategy) inMemory(l limit, busy []string) contender[string] {
	return contender[string]{s.name, l == low, func() (bench[string], error) {
		policy, err := s.policy(memory.New(), l, 1)
		if err != nil {
			return bench[string]{}, err
		}
		b := bench[string]{call: allow(policy)}
		if s.granular && l != low {
			b.prime = func() error { return fill(policy, busy, time.Now(), l.window/time.Duration(s.granules), s.granules) }
		}
		return b, nil
	}}
}

func allow(policy *ratelimit.Policy) func(string) (bool, error) {
	return func(key string) (bool, error) {
		d, err := policy.Allow(ctx, key)
		return d.Allowed, err
	}
}

// fill uses a unit of each key in each granule of the window that ends now, but for the
// current one.
func fill(policy *ratelimit.Policy, keys []string, now time.Time, granularity time.Duration, granules int) error {
	return together(min(16, len(keys)), func(g, goroutines int) error {
		for i := g; i < len(keys); i += goroutines {
			for back := granules - 1; back > 0; back-- {
				if _, err := policy.Allow(ctx, keys[i], ratelimit.At(now.Add(-time.Duration(back)*granularity))); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
