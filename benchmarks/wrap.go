package main

import (
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/wrap"
)

// wrapCases is a key that everybody asks for at once, and keys that are refused again and
// again.
func wrapCases(o options) (report, error) {
	return onRedis(func(s *redisServer) (r report, err error) {
		for _, run := range []func(options, *redisServer) (report, error){hotCase, deniedCase} {
			part, err := run(o, s)
			if err != nil {
				return r, err
			}
			r.tables, r.bars = append(r.tables, part.tables...), append(r.bars, part.bars...)
		}
		return r, nil
	})
}

// wrapped is the sliding window with something around it, on a plain client.
func (s *redisServer) wrapped(name string, l limit, around func(ratelimit.Limiter) ratelimit.Limiter) contender[string] {
	return s.contender(name, l, plainly, func(c goRedis) (bench[string], error) {
		store, err := redisstore.New(c, redisstore.WithTimeout(10*time.Second))
		if err != nil {
			return bench[string]{}, err
		}
		policy, err := ratelimit.NewPolicy("bench", around(sliding.limiter(store)), sliding.quotas(l, 1)...)
		return bench[string]{call: allow(policy)}, err
	})
}

func denyCache(limiter ratelimit.Limiter) ratelimit.Limiter { return wrap.DenyCache(limiter) }

const crowd = 256 // goroutines

func hotCase(o options, s *redisServer) (report, error) {
	l := load[string]{items: userKeys(1), goroutines: crowd, batch: 1, name: "1 key, 256 goroutines"}
	results, err := compare(o, []contender[string]{
		s.wrapped(thisLibrary+", Coalesce", high, wrap.Coalesce),
		s.ours(sliding, high, plainly, 1, nil),
		s.ours(sliding, high, pipelined, 1, nil),
		s.redisRate(high, plainly),
		s.rueidisScript(high),
	}, l)
	if err != nil {
		return report{}, err
	}
	t := table{caption: "One hot key, through `wrap.Coalesce`. The ratio is to the first column."}
	t.addCase(l.name, results)
	granted, err := s.grantedOf(limit{1000, 24 * time.Hour}, 4*1000)
	over := float64(granted - 1000)
	return report{tables: []table{t}, bars: []bar{
		atLeast("256 goroutines on a hot key through Coalesce: calls a second beside redis_rate", results[3].ratio(results[0]), 15, " ×"),
		{"granted by Coalesce of 1,000 units, when asked for 4,000 by 256 goroutines", "exactly 1,000", thousands(int(granted)), over == 0},
	}}, err
}

// grantedOf is how many calls of many goroutines are granted.
func (s *redisServer) grantedOf(l limit, calls int64) (int64, error) {
	b, err := s.wrapped("", l, wrap.Coalesce).open()
	if err != nil {
		return 0, err
	}
	defer b.close()
	var left, granted atomic.Int64
	left.Store(calls)
	err = together(crowd, func(int, int) error {
		for left.Add(-1) >= 0 {
			allowed, err := b.call("hot")
			if err != nil {
				return err
			}
			if allowed {
				granted.Add(1)
			}
		}
		return nil
	})
	return granted.Load(), err
}

// deniedKeys is how many keys are refused again and again.
const deniedKeys = 1000

func deniedCase(o options, s *redisServer) (report, error) {
	t := table{caption: "A flood of refused calls, through `wrap.DenyCache`. The ratio is to the first column."}
	var bars []bar
	var asked worst
	for _, goroutines := range []int{1, crowd} {
		l := load[string]{items: userKeys(min(o.keys, deniedKeys)), goroutines: goroutines, batch: 1}
		l.name = count(len(l.items), "key") + ", " + count(goroutines, "goroutine") + ", refused"
		cached := s.countingDenials(denyCache, len(l.items), l.name, &asked)
		results, err := compare(o, []contender[string]{
			cached,
			s.ours(sliding, low, plainly, 1, nil),
			s.redisRate(low, plainly),
			s.rueidisScript(low),
		}, l)
		if err != nil {
			return report{}, err
		}
		t.addCase(l.name, results)
		bars = append(bars, atLeast(count(goroutines, "goroutine")+" refused through DenyCache: calls a second beside redis_rate", results[2].ratio(results[0]), 50, " ×"))
	}
	return report{tables: []table{t}, bars: append(bars, atMost("refusals that Redis sees of a key in a refusal period, at worst", asked.ratio, 1, ""))}, nil
}

// countingDenials is the DenyCache around a limiter that has used up each key. It counts
// the refusals that Redis sees, by key, from the first on.
func (s *redisServer) countingDenials(around func(ratelimit.Limiter) ratelimit.Limiter, keys int, name string, asked *worst) contender[string] {
	c := s.wrapped(thisLibrary+", DenyCache", low, around)
	open := c.open
	c.open = func() (bench[string], error) {
		b, err := open()
		b.begin = func() error {
			if err := s.resetStats(); err != nil {
				return err
			}
			for _, key := range userKeys(keys) {
				if _, err := b.call(key); err != nil {
					return err
				}
			}
			return nil
		}
		b.end = func(*sample) error {
			calls, _, err := s.evalStats()
			asked.see(float64(calls)/float64(keys), name)
			return err
		}
		return b, err
	}
	return c
}
