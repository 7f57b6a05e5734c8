package ratelimit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
)

// A state is not valid, or a step over it ends, grants no more than there is, and leaves a
// valid one: whoever wrote it. Half of them differ in a word or two from one that steps left.
func TestValid(t *testing.T) {
	for _, s := range strategies {
		t.Run(s.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			valid := 0
			for range 100_000 {
				state, now := damaged(rnd, s), int64(1_700_000_000_000_000)
				was, c := slices.Clone(state), stepCall(rnd, s, now)
				if !s.script.Valid(state, &c.Requests[0].Cells[0]) {
					continue
				}
				valid++
				s.script.Step(&c.Call, []*storage.State{&state})
				r := c.Requests[0]
				cell := r.Cells[0]
				require.True(t, s.script.Valid(state, &cell), "%d was left of %d", state, was)
				require.Truef(t, cell.Remaining >= 0 && cell.Remaining <= cell.Burst && cell.RetryAfter >= storage.Never &&
					(c.Op == storage.Use || r.Granted >= 0 && r.Granted <= min(r.Requested, cell.Burst)), "%d: %+v", was, r)
			}
			require.Greater(t, valid, 10_000)
			require.Less(t, valid, 90_000)
		})
	}
}

func stepCall(rnd *rand.Rand, s *strategy, now int64) *call {
	var c call
	c.begin([]storage.Op{storage.CheckAndUse, storage.CheckAndUse, storage.Check, storage.Use}[rnd.IntN(4)])
	c.Now, c.OwnClock = now+rnd.Int64N(3e6), rnd.IntN(2) == 0
	quota := Quota{Limit: 1 + rnd.Int64N(9), Window: 2 * time.Second, Granularity: 500 * time.Millisecond}
	if err := c.fill(s, []RequestedQuota{{Prefix: "a", Requested: rnd.Int64N(5), Quotas: []Quota{quota}}}, nil); err != nil {
		panic(err)
	}
	if c.Op == storage.Use {
		c.Requests[0].Granted = rnd.Int64N(9) - 4
	}
	return &c
}

func damaged(rnd *rand.Rand, s *strategy) storage.State {
	var state storage.State
	for range rnd.IntN(9) {
		s.script.Step(&stepCall(rnd, s, 1_700_000_000_000_000-rnd.Int64N(3e6)).Call, []*storage.State{&state})
	}
	for range rnd.IntN(3) {
		if len(state) == 0 {
			break
		}
		i := rnd.IntN(len(state))
		switch rnd.IntN(4) {
		case 0:
			state[i] = []int64{0, -1, 1, math.MaxInt64, math.MinInt64, storage.MaxNumber, storage.MaxTime, 1_700_000_000_000_000}[rnd.IntN(8)]
		case 1:
			state[i] += rnd.Int64N(9) - 4
		case 2:
			state = slices.Delete(state, i, i+1)
		case 3:
			state = slices.Insert(state, i, state[rnd.IntN(len(state))])
		}
	}
	return state
}
