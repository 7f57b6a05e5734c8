package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
)

// Fields of a counter that somebody else has changed, or deleted, are no error, keep
// no server busy, hand out no more than a limit or two besides, and lock nobody out
// for longer than a window: whatever is in them.
func TestBrokenFields(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	quota := ratelimit.Quota{Limit: 20, Window: 400 * time.Millisecond, Granularity: 100 * time.Millisecond}
	future := time.Now().Add(time.Hour).UnixMicro()
	garbage := []string{
		"", "x", "nan", "-1", "0", "1", "7", "19", "1e1", "1e3", "0x10", "1.5", "1e300", "9007199254740991", "9007199254740993",
		fmt.Sprint(future), fmt.Sprint(future, 3), fmt.Sprint(time.Now().UnixMicro(), 1<<60), "5 5", "1 -9", "0 9007199254740991",
	}
	seed := time.Now().UnixNano()
	for name, open := range limitertest.Strategies {
		limiter := open(store)
		idle := quota.Window + quota.Granularity + 50*time.Millisecond
		if name == "sliding-counter" { // which weighs the window before, too
			idle += quota.Window
		}
		var wg sync.WaitGroup
		var broken atomic.Int32
		for trial := range 60 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(seed), uint64(trial)))
				where := fmt.Sprintf("%s, seed %d, trial %d", name, seed, trial)
				p, err := ratelimit.NewPolicy(fmt.Sprintf("%s %d", name, trial), limiter, quota)
				if !assert.NoError(t, err) {
					return
				}
				for range 1 + random.IntN(15) {
					_, err := p.Take(t.Context(), "k", 1+random.Int64N(3))
					assert.NoError(t, err, where)
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
				}
				keys := client.Keys(t.Context(), fmt.Sprintf("*{%s%%20%d:k}*", name, trial)).Val()
				if len(keys) == 0 {
					return // gone already
				}
				var fields []string
				for field := range client.HGetAll(t.Context(), keys[0]).Val() {
					fields = append(fields, field)
				}
				if len(fields) == 0 {
					return
				}
				for range 1 + random.IntN(3) {
					field, value := fields[random.IntN(len(fields))], garbage[random.IntN(len(garbage))]
					if name == "token-bucket" && field == "full" && value == fmt.Sprint(future) {
						continue // it was used for an hour in advance, which UseQuotas may do
					}
					if random.IntN(5) == 0 {
						where += fmt.Sprintf(": %s deleted", field)
						assert.NoError(t, client.HDel(t.Context(), keys[0], field).Err())
					} else {
						where += fmt.Sprintf(": %s = %q", field, value)
						assert.NoError(t, client.HSet(t.Context(), keys[0], field, value).Err())
					}
				}
				broken.Add(1)
				granted := int64(0)
				for end := time.Now().Add(3 * quota.Window); time.Now().Before(end); time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) {
					n := 1 + random.Int64N(4)
					if random.IntN(3) == 0 {
						n = 1000
					}
					d, err := p.Take(t.Context(), "k", n)
					assert.NoError(t, err, where)
					assert.LessOrEqual(t, d.Granted, quota.Limit, where)
					granted += d.Granted
				}
				assert.LessOrEqual(t, granted, 6*quota.Limit, where)
				time.Sleep(idle)
				d, err := p.Check(t.Context(), "k", quota.Limit)
				assert.NoError(t, err, where)
				assert.True(t, d.Allowed, "%s: locked out: %+v", where, d)
			})
		}
		wg.Wait()
		assert.Greater(t, broken.Load(), int32(30), "%s: most counters were gone, or not found", name)
	}
}
