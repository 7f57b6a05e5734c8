package ratelimit_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// The promises of promise_test.go, with callers that come all at once.

// TestConcurrentPromises sends phases of calls. All calls of a phase have one
// time and are made at once; so the time at which units were recorded is known,
// and nothing else makes room between two looks at a counter: what is missing
// after a phase is what its calls were granted, not a unit more or less.
func TestConcurrentPromises(t *testing.T) {
	for name, store := range map[string]storage.Storage{"memory": memory.New(), "redis": teststore.Redis(t)} {
		for strategy, promise := range promises {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					c := &crowd{limiter: limitertest.Strategies[strategy](store), quotas: drawCrowdQuotas(t)}
					at := limitertest.Start
					for range rapid.IntRange(1, 4).Draw(t, "phases") {
						at = at.Add(time.Duration(rapid.Int64Range(0, 8).Draw(t, "step")) * c.quotas[0].Window / 16)
						c.phase(t, drawCrowdCalls(t, c.quotas), at)
					}
					for counter, admitted := range c.admitted {
						require.False(t, promise(counter.quota, admitted), "%+v admitted %v", counter, admitted)
					}
				})
			})
		}
	}
}

// A crowd is the callers of one limiter, and what they were granted.
type crowd struct {
	limiter  ratelimit.Limiter
	quotas   []ratelimit.Quota
	mu       sync.Mutex
	admitted map[crowdCounter][]admission
}

type crowdCounter struct {
	prefix string // "" of a quota that all share
	quota  ratelimit.Quota
}

type crowdCall struct {
	requests []ratelimit.RequestedQuota
	together bool
}

var crowds atomic.Int64 // no two have a key in common

// drawCrowdQuotas draws two quotas of each prefix, and one that all prefixes
// share.
func drawCrowdQuotas(t *rapid.T) []ratelimit.Quota {
	quotas := []ratelimit.Quota{drawQuota(t), drawQuota(t), drawQuota(t)}
	quotas[1].Window *= 3 // another counter than the first
	quotas[1].Granularity *= 3
	if quotas[1].Window == quotas[0].Window {
		quotas[1].Window, quotas[1].Granularity = 2*quotas[1].Window, 2*quotas[1].Granularity
	}
	quotas[2].PrefixOverride = fmt.Sprint("crowd ", crowds.Add(1))
	quotas[2].Limit *= 2
	return quotas
}

func drawCrowdCalls(t *rapid.T, quotas []ratelimit.Quota) []crowdCall {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) (c crowdCall) {
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "requests") {
			first := rapid.IntRange(0, 2).Draw(t, "first quota")
			c.requests = append(c.requests, ratelimit.RequestedQuota{
				Prefix:       quotas[2].PrefixOverride + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "prefix"),
				Requested:    rapid.Int64Range(0, quotas[0].Limit/2+2).Draw(t, "n"),
				Quotas:       quotas[first:],
				AllOrNothing: rapid.Bool().Draw(t, "all or nothing"),
			})
		}
		c.together = rapid.Bool().Draw(t, "together")
		return c
	}), 4, 12).Draw(t, "calls")
}

// phase makes calls at once, each in a goroutine of its own.
func (c *crowd) phase(t *rapid.T, calls []crowdCall, at time.Time) {
	before := c.remaining(t, at)
	granted := make(map[crowdCounter]int64)
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i, call := range calls {
		wg.Go(func() {
			opts := []ratelimit.CallOption{ratelimit.At(at)}
			if call.together {
				opts = append(opts, ratelimit.Together())
			}
			<-begin
			grants, err := c.limiter.CheckAndUseQuotas(t.Context(), call.requests, opts...)
			if errs[i] = err; err == nil {
				errs[i] = call.wrong(grants)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for j, g := range grants {
				for _, q := range call.requests[j].Quotas {
					granted[counterOf(call.requests[j].Prefix, q)] += g.Granted
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	after := c.remaining(t, at)
	if c.admitted == nil {
		c.admitted = make(map[crowdCounter][]admission)
	}
	for counter, units := range granted {
		require.Equal(t, before[counter]-units, after[counter], "%+v: %d units granted at %v", counter, units, at)
		c.admitted[counter] = append(c.admitted[counter], admission{at.UnixMicro(), units})
	}
}

func counterOf(prefix string, q ratelimit.Quota) crowdCounter {
	if q.PrefixOverride != "" {
		prefix = ""
	}
	return crowdCounter{prefix, q}
}

// wrong tells what is wrong with the grants of a call alone.
func (c *crowdCall) wrong(grants []ratelimit.GrantedQuota) error {
	full, some := true, false
	for i, g := range grants {
		r := &c.requests[i]
		if g.Granted < 0 || g.Granted > r.Requested || r.AllOrNothing && g.Granted != 0 && g.Granted != r.Requested {
			return fmt.Errorf("%d granted of %+v", g.Granted, r)
		}
		full, some = full && g.Granted == r.Requested, some || g.Granted > 0
	}
	if c.together && some && !full {
		return fmt.Errorf("not together: %+v of %+v", grants, c.requests)
	}
	return nil
}

// remaining is what each counter has left.
func (c *crowd) remaining(t *rapid.T, at time.Time) map[crowdCounter]int64 {
	left := make(map[crowdCounter]int64)
	for _, prefix := range []string{"a", "b", "c"} {
		prefix = c.quotas[2].PrefixOverride + prefix
		request := []ratelimit.RequestedQuota{{Prefix: prefix, Quotas: c.quotas}}
		_, grants, err := c.limiter.CheckWithinQuotas(t.Context(), request, ratelimit.At(at))
		require.NoError(t, err)
		for i, q := range c.quotas {
			left[counterOf(prefix, q)] = grants[0].States[i].Remaining
		}
	}
	return left
}

// TestOneInstant has many more units asked for than there are, in one instant:
// exactly the limit is granted.
func TestOneInstant(t *testing.T) {
	for _, store := range []storage.Storage{memory.New(), teststore.Redis(t)} {
		for name, open := range limitertest.Strategies {
			for _, together := range []bool{false, true} {
				limiter := open(store)
				quota := ratelimit.Quota{Limit: 100, Window: time.Minute, PrefixOverride: fmt.Sprint(name, together)}
				opts := []ratelimit.CallOption{ratelimit.At(limitertest.Start)}
				if together {
					opts = append(opts, ratelimit.Together())
				}
				var granted atomic.Int64
				var wg sync.WaitGroup
				for g := range 32 {
					wg.Go(func() {
						for i := range 6 {
							requests := []ratelimit.RequestedQuota{
								{Prefix: fmt.Sprint("p", g), Requested: 1, Quotas: []ratelimit.Quota{quota}, AllOrNothing: i%2 == 0},
								{Prefix: fmt.Sprint("q", g), Requested: 1, Quotas: []ratelimit.Quota{quota}},
							}
							grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, opts...)
							if err != nil {
								t.Error(err)
								return
							}
							granted.Add(grants[0].Granted + grants[1].Granted)
						}
					})
				}
				wg.Wait()
				require.Equal(t, quota.Limit, granted.Load(), "%T, %s, together %t", store, name, together)
			}
		}
	}
}

// TestConcurrentPromisesOwnClock lets the storage stamp the calls of many callers,
// over several windows. In Redis scripts run one after another, and an answer has
// the time at which its units were recorded. (In memory that may be the time of
// another call, a moment later: there TestLinearizable knows better.)
func TestConcurrentPromisesOwnClock(t *testing.T) {
	store := teststore.Redis(t)
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) {
			quota := ratelimit.Quota{Limit: 20, Window: 50 * time.Millisecond, Granularity: 10 * time.Millisecond, Burst: 7}
			policy, err := ratelimit.NewPolicy("p", limitertest.Strategies[name](store), quota)
			require.NoError(t, err)
			var mu sync.Mutex
			admitted := make(map[string][]admission)
			var wg sync.WaitGroup
			for g := range 16 {
				rnd := rand.New(rand.NewPCG(rand.Uint64(), uint64(g)))
				wg.Go(func() {
					for range 60 {
						ask := policy.Take
						if rnd.IntN(2) == 0 {
							ask = policy.AllowN
						}
						key := fmt.Sprint(rnd.IntN(2))
						d, err := ask(t.Context(), key, 1+rnd.Int64N(4))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						admitted[key] = append(admitted[key], admission{d.At().UnixMicro(), d.Granted})
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for key, admitted := range admitted {
				slices.SortFunc(admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
				require.False(t, promise(quota, admitted), "%s admitted %v", key, admitted)
				total := int64(0)
				for _, a := range admitted {
					total += a.units
				}
				require.GreaterOrEqual(t, total, quota.Burst, "hardly anything was admitted")
			}
		})
	}
}
