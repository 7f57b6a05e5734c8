package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// An admission is what a limiter let through, at the time at which it counts.
type admission struct{ at, units int64 } // µs, units

// The promises, as the constructors' docs give them: each tells the first
// admission at which too much was let through.
var promises = map[string]func(q ratelimit.Quota, admitted []admission) (broken bool){
	"sliding-window": func(q ratelimit.Quota, admitted []admission) bool {
		// at most Limit in any W/G consecutive granules
		width := q.Granularity.Microseconds()
		return anyInterval(admitted, q.Limit, func(from, to int64) bool {
			return to/width-from/width < int64(q.Window/q.Granularity)
		})
	},
	"list": func(q ratelimit.Quota, admitted []admission) bool {
		return anyInterval(admitted, q.Limit, func(from, to int64) bool { return to-from < q.Window.Microseconds() })
	},
	"hash": func(q ratelimit.Quota, admitted []admission) bool {
		return anyInterval(admitted, q.Limit, func(from, to int64) bool { return to-from < q.Window.Microseconds() })
	},
	"simple": func(q ratelimit.Quota, admitted []admission) bool {
		w := q.Window.Microseconds()
		return anyInterval(admitted, q.Limit, func(from, to int64) bool { return from/w == to/w })
	},
	"sliding-counter": func(q ratelimit.Quota, admitted []admission) bool {
		w := q.Window.Microseconds()
		for _, a := range admitted {
			for _, from := range []int64{a.at, max(0, a.at+1-w), a.at - a.at%w} {
				most := q.Limit // in an aligned window
				if r := from % w; r > 0 {
					most += q.Limit * (r - 1) / w
				}
				sum := int64(0)
				for _, b := range admitted {
					if from <= b.at && b.at < from+w {
						sum += b.units
					}
				}
				if sum > most {
					return true
				}
			}
		}
		return false
	},
	"token-bucket": func(q ratelimit.Quota, admitted []admission) bool {
		burst, w := q.Burst, q.Window.Microseconds()
		if burst == 0 {
			burst = q.Limit
		}
		for i := range admitted {
			sum := int64(0)
			for _, a := range admitted[i:] {
				sum += a.units
				if (sum-burst)*w > q.Limit*(a.at-admitted[i].at) {
					return true
				}
			}
		}
		return false
	},
}

// anyInterval tells whether the admissions of any interval exceed the limit.
func anyInterval(admitted []admission, limit int64, within func(from, to int64) bool) bool {
	for i := range admitted {
		sum := int64(0)
		for _, a := range admitted[i:] {
			if within(admitted[i].at, a.at) {
				sum += a.units
			}
		}
		if sum > limit {
			return true
		}
	}
	return false
}

// TestPromises lets random traffic through every strategy, some of which is given
// back, also when it has long expired, and sees that none admits more than it promises,
// nor less than its own answers say: what is asked again after RetryAfter is granted,
// and not a µs before.
func TestPromises(t *testing.T) {
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				q := drawQuota(t)
				limiter := limitertest.Strategies[name](memory.New())
				admitted := drive(t, limiter, q)
				require.False(t, promise(q, admitted), "%+v admitted %v", q, admitted)
			})
		})
	}
}

func drawQuota(t *rapid.T) ratelimit.Quota {
	granules := rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 60}).Draw(t, "granules")
	width := rapid.Int64Range(1000, 20_000_000).Draw(t, "width")
	return ratelimit.Quota{
		Limit:       rapid.Int64Range(0, 50).Draw(t, "limit"),
		Window:      time.Duration(granules*width) * time.Microsecond,
		Granularity: time.Duration(width) * time.Microsecond,
		Burst:       rapid.SampledFrom([]int64{0, 1, 5, 100}).Draw(t, "burst"),
	}
}

// drive sends traffic, mostly forwards in time, and returns what was admitted, and not
// given back, at the time at which it was recorded.
func drive(t *rapid.T, limiter ratelimit.Limiter, q ratelimit.Quota) []admission {
	var admitted []admission
	var grants []ratelimit.GrantedQuota // of admitted
	now, newest := limitertest.Start, int64(0)
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		now = now.Add(time.Duration(rapid.Int64Range(-1, 8).Draw(t, "step")) * q.Window / 16)
		n := rapid.Int64Range(0, q.Limit+2).Draw(t, "n")
		g := ask(t, limiter, q, n, now)
		if g.Granted < n && g.RetryAfter < ratelimit.Never {
			require.Less(t, look(t, limiter, q, n, now.Add(g.RetryAfter-time.Microsecond)), n, "granted before RetryAfter")
			require.Equal(t, n, look(t, limiter, q, n, now.Add(g.RetryAfter)), "not granted after RetryAfter")
		}
		if g.Granted > 0 {
			newest = max(newest, now.UnixMicro())
			admitted = append(admitted, admission{newest, g.Granted})
			grants = append(grants, g)
		}
		if i := rapid.IntRange(0, 3*len(grants)).Draw(t, "gives back"); i < len(grants) {
			back := rapid.Int64Range(0, admitted[i].units).Draw(t, "units")
			admitted[i].units -= back
			grants[i].Granted = -back
			requests := []ratelimit.RequestedQuota{{Prefix: "a", Quotas: []ratelimit.Quota{q}}}
			require.NoError(t, limiter.UseQuotas(t.Context(), requests, grants[i:i+1], grants[i].At))
		}
	}
	return admitted
}

func ask(t *rapid.T, limiter ratelimit.Limiter, q ratelimit.Quota, n int64, at time.Time) ratelimit.GrantedQuota {
	grants, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: "a", Requested: n, Quotas: []ratelimit.Quota{q}}}, ratelimit.At(at))
	require.NoError(t, err)
	return grants[0]
}

func look(t *rapid.T, limiter ratelimit.Limiter, q ratelimit.Quota, n int64, at time.Time) int64 {
	_, grants, err := limiter.CheckWithinQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: "a", Requested: n, Quotas: []ratelimit.Quota{q}}}, ratelimit.At(at))
	require.NoError(t, err)
	return grants[0].Granted
}
