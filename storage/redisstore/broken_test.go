package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
)

// A counter into which somebody else wrote is no error, keeps no server busy, hands
// out no more than a limit or two besides, and locks nobody out for longer than a
// window: whatever is in it.
func TestBrokenStates(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	quota := ratelimit.Quota{Limit: 20, Window: 400 * time.Millisecond, Granularity: 100 * time.Millisecond}
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
				state := []byte(client.Get(t.Context(), keys[0]).Val())
				for range 1 + random.IntN(3) {
					if len(state) > 0 {
						state = breakState(random, state)
					}
				}
				if name == "token-bucket" && len(state) == 28 && binary.BigEndian.Uint64(append([]byte{0}, state[7:14]...)) > uint64(time.Now().Add(time.Minute).UnixMicro()) {
					return // it was used for long in advance, which UseQuotas may do
				}
				where += fmt.Sprintf(": %x", state)
				assert.NoError(t, client.Set(t.Context(), keys[0], state, redis.KeepTTL).Err())
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
					if d.Granted > 0 && random.IntN(4) == 0 {
						back := 1 + random.Int64N(d.Granted)
						assert.NoError(t, p.Use(t.Context(), "k", -back, ratelimit.At(d.At())), where)
						granted -= back
					}
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

// breakState changes a number of a state, or a byte, cuts something out, or adds
// something.
func breakState(random *rand.Rand, state []byte) []byte {
	i := random.IntN(len(state))
	switch random.IntN(6) {
	case 0:
		state[i] = byte(random.IntN(256))
	case 1:
		state = state[:i]
	case 2:
		state = append(state, "garbage garbage"[:1+random.IntN(15)]...)
	case 3:
		state = slices.Delete(state, i-i%7, min(len(state), i-i%7+7))
	default:
		now := uint64(time.Now().UnixMicro())
		numbers := []uint64{0, 1, 7, 19, 1000, 1<<53 - 1, 1 << 53, 1<<56 - 1, now, now - 200_000, now + 100_000, now + 3_600_000_000}
		var number [8]byte
		binary.BigEndian.PutUint64(number[:], numbers[random.IntN(len(numbers))])
		copy(state[i-i%7:], number[1:])
	}
	return state
}

// Units can be given back to a counter whose log somebody else wrote into.
func TestBrokenLogGivenBack(t *testing.T) {
	client := redistest.Start(t).Client(t)
	p, err := ratelimit.NewPolicy("p", ratelimit.NewListLimiter(open(t, client)), ratelimit.PerHour(20))
	assert.NoError(t, err)
	const head, uses = 35, 5
	for i := head; i < head+(uses-1)*14; i += 7 {
		for _, number := range []uint64{0, 1, 3, 1<<53 - 1, 1<<56 - 1} {
			key := fmt.Sprintf("%d %d", i, number)
			var taken []ratelimit.Decision
			for range uses {
				d, err := p.Allow(t.Context(), key)
				assert.NoError(t, err)
				taken = append(taken, d)
			}
			stored := client.Keys(t.Context(), "*").Val()
			assert.Len(t, stored, 1)
			written := binary.BigEndian.AppendUint64(nil, number)[1:]
			assert.NoError(t, client.SetRange(t.Context(), stored[0], int64(i), string(written)).Err())
			for _, d := range taken {
				assert.NoError(t, p.Use(t.Context(), key, -1, ratelimit.At(d.At())), key)
				d, err := p.Take(t.Context(), key, 1)
				assert.NoError(t, err, key)
				assert.GreaterOrEqual(t, d.Remaining, int64(0), key)
				assert.LessOrEqual(t, d.Remaining, int64(19), key)
			}
			assert.NoError(t, p.Reset(t.Context(), key))
		}
	}
}
