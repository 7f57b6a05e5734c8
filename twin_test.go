package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// TestTwin holds the two tellings of each strategy, and a slow model, equal to
// the last digit: the same random calls, with awkward quotas at awkward times, go
// to the Go telling, through miniredis, through a real Redis and to the model.
//
// RATELIMIT_TWIN_SEED replays one sequence, and RATELIMIT_TWIN_CALLS sets how
// many calls a strategy gets.
func TestTwin(t *testing.T) {
	stores := []twin{
		{"memory", memory.New().Run},
		{"redis", teststore.Redis(t).Run},
		{"miniredis", teststore.Miniredis(t).Run},
	}
	for _, s := range strategies {
		t.Run(s.name, func(t *testing.T) {
			for calls := 0; calls < envInt("RATELIMIT_TWIN_CALLS", 20_000); {
				seed := uint64(envInt("RATELIMIT_TWIN_SEED", int(rand.Uint32())))
				n, difference := runEpisode(s, seed, stores)
				if difference != "" {
					t.Fatalf("replay with RATELIMIT_TWIN_SEED=%d -run '%s'\n%s", seed, t.Name(), difference)
				}
				calls += n
			}
		})
	}
}

// Cells of one key are one counter also in one request, which limiters refuse and
// other callers of a storage may make.
func TestTwinOfOneKeyTwice(t *testing.T) {
	redis := teststore.Redis(t)
	for _, s := range strategies {
		for _, op := range []storage.Op{storage.CheckAndUse, storage.Check} {
			var c call
			c.begin(op)
			c.OwnClock, c.Now = false, 1_700_000_000_000_000
			quotas := []Quota{PerMinute(10), PerHour(10)}
			require.NoError(t, c.fill(s, []RequestedQuota{{Prefix: fmt.Sprint(s.name, op), Requested: 3, Quotas: quotas}}, nil))
			c.cells[1] = c.cells[0]
			c.cells[1].Limit, c.cells[1].Burst = 7, 7
			inMemory, inRedis := cloneCall(&c.Call), cloneCall(&c.Call)
			require.NoError(t, memory.New().Run(t.Context(), s.script, inMemory))
			require.NoError(t, redis.Run(t.Context(), s.script, inRedis))
			require.Equal(t, sprintCall(inRedis), sprintCall(inMemory), s.name)
			require.EqualValues(t, 3, inMemory.Requests[0].Granted, s.name)
		}
	}
}

// A twin is one of the tellings.
type twin struct {
	name string
	run  func(context.Context, *storage.Script, *storage.Call) error
}

func envInt(name string, byDefault int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return byDefault
}

// runEpisode sends one sequence of calls, on prefixes of its own, to all twins,
// and tells where the first one differs.
func runEpisode(s *strategy, seed uint64, twins []twin) (calls int, difference string) {
	g := newTraffic(s, seed)
	m := newModel()
	var history strings.Builder
	const length = 80
	for range length {
		call := g.next()
		fmt.Fprintf(&history, "%s\n", sprintCall(call))
		want := cloneCall(call)
		if g.modelled {
			m.run(want)
		} else if err := twins[0].run(context.Background(), s.script, want); err != nil {
			return 0, err.Error()
		}
		for i, twin := range twins {
			if i == 0 && !g.modelled {
				continue
			}
			got := cloneCall(call)
			if err := twin.run(context.Background(), s.script, got); err != nil {
				return 0, fmt.Sprintf("%s: %v\nhistory:\n%s", twin.name, err, &history)
			}
			if got, want := sprintCall(got), sprintCall(want); got != want {
				return 0, fmt.Sprintf("history:\n%s%s answered\n%s\nnot\n%s", &history, twin.name, got, want)
			}
		}
		g.learn(want)
	}
	return length, ""
}

func cloneCall(c *storage.Call) *storage.Call {
	clone := *c
	clone.Requests = slices.Clone(c.Requests)
	for i := range clone.Requests {
		clone.Requests[i].Cells = slices.Clone(c.Requests[i].Cells)
	}
	return &clone
}

func sprintCall(c *storage.Call) string {
	var b strings.Builder
	fmt.Fprintf(&b, "op %d at %d together %t", c.Op, c.Now, c.Together)
	for _, r := range c.Requests {
		fmt.Fprintf(&b, "\n  requested %d all-or-nothing %t granted %d", r.Requested, r.AllOrNothing, r.Granted)
		for _, cell := range r.Cells {
			counter := cell.Key.Counter.Value()
			cell.Key = storage.Key{Prefix: cell.Key.Prefix} // without the handle, of which only an address is printed
			fmt.Fprintf(&b, "\n    %+v %+v", counter, cell)
		}
	}
	return b.String()
}

// traffic makes random calls on a few counters, at times that move by what is
// awkward: nothing, one µs around the moments that the last answer named, years,
// and backwards. Steady traffic is little at a time, for several windows: logs grow
// long, and what expired at their beginning is cleared away.
type traffic struct {
	*rand.Rand
	strategy *strategy
	modelled bool // without what the model does not know
	steady   bool
	prefixes []string
	quotas   []Quota
	now      int64
	used     int64   // the time of the last use
	moments  []int64 // that the last answer named
}

func newTraffic(s *strategy, seed uint64) *traffic {
	g := &traffic{Rand: rand.New(rand.NewPCG(seed, 0)), strategy: s}
	g.modelled = g.IntN(2) == 0 && modelKnows(s.name)
	g.steady = g.IntN(6) == 0
	prefixes, quotas := 1+g.IntN(3), 1+g.IntN(4)
	if g.steady {
		prefixes, quotas = 1, 1
	}
	for i := range prefixes {
		g.prefixes = append(g.prefixes, fmt.Sprintf("%s:%d:%d:%d", s.name, seed, time.Now().UnixNano(), i))
	}
	for range quotas {
		q := g.quota()
		if g.IntN(4) == 0 {
			q.PrefixOverride = g.prefixes[0] // the same text as a prefix, and yet another counter
		}
		g.quotas = append(g.quotas, q)
	}
	g.now = g.Int64N(1 << 51)
	return g
}

// quota is a random one that the strategy can keep.
func (g *traffic) quota() Quota {
	for {
		window := pick(g, 1000, 1_000_000, 60_000_000, 86_400_000_000, 999_983, 7*11*13*17*19, 4096*997, 1+g.Int64N(1<<g.IntN(52)))
		q := Quota{
			Limit:       g.limit(),
			Window:      time.Duration(window) * time.Microsecond,
			Granularity: time.Duration(window/divisor(g, window)) * time.Microsecond,
		}
		if g.IntN(3) == 0 {
			q.Burst = g.limit()
		}
		if g.strategy.check(q) == nil {
			return q
		}
	}
}

func (g *traffic) limit() int64 {
	return pick(g, 0, 1, 2, 3, 5, 10, 97, 1000, 123_457, 94_906_265, storage.MaxNumber, storage.MaxNumber-1, g.Int64N(1<<g.IntN(53)))
}

func pick[T any](g *traffic, choices ...T) T { return choices[g.IntN(len(choices))] }

// divisor is a number of granules into which a window can be cut.
func divisor(g *traffic, window int64) int64 {
	for range 20 {
		if d := pick(g, 1, 2, 3, 7, 10, 60, 77, 4096, 1+g.Int64N(4096)); window%d == 0 {
			return d
		}
	}
	return 1
}

func (g *traffic) next() *storage.Call {
	g.move()
	c := new(call)
	c.Op = pick(g, storage.CheckAndUse, storage.CheckAndUse, storage.CheckAndUse, storage.Check, storage.Use)
	if g.IntN(10) == 0 && !g.steady {
		g.change(&g.quotas[g.IntN(len(g.quotas))])
	}
	var requests []RequestedQuota
	for range 1 + g.IntN(3)*g.IntN(2) {
		requests = append(requests, g.request())
	}
	if err := c.fill(g.strategy, requests, []CallOption{At(time.UnixMicro(g.now))}); err != nil {
		panic(err)
	}
	if c.Op != storage.Use {
		c.Together = g.IntN(6) == 0
	} else {
		for i := range c.Requests {
			g.setUse(&c.Requests[i])
		}
		if !g.modelled && g.IntN(2) == 0 {
			c.Now = pick(g, g.used, max(0, g.used-1), g.now) // units are given back where they were used
			for i := range c.Requests {
				c.Requests[i].Granted = -c.Requests[i].Granted
			}
		}
	}
	return &c.Call
}

func (g *traffic) setUse(r *storage.Request) {
	r.Granted, r.Requested = r.Requested, pick(g, 0, r.Requested, 1)
	if r.Granted > 1000 && g.IntN(4) > 0 {
		r.Granted = g.Int64N(1000)
	}
}

// change raises or lowers a limit: what was used stays used.
func (g *traffic) change(q *Quota) {
	changed := *q
	changed.Limit, changed.Burst = g.limit(), pick(g, 0, g.limit())
	if g.strategy.check(changed) == nil {
		*q = changed
	}
}

func (g *traffic) request() RequestedQuota {
	r := RequestedQuota{Prefix: pick(g, g.prefixes...), AllOrNothing: g.IntN(4) == 0}
	for _, i := range g.Perm(len(g.quotas)) {
		if len(r.Quotas) == 0 || g.IntN(2) == 0 {
			r.Quotas = append(r.Quotas, g.quotas[i])
		}
	}
	r.Quotas = distinct(g.strategy, r.Quotas)
	if g.steady && g.IntN(8) > 0 {
		r.Requested = 1 + g.Int64N(3)
		return r
	}
	limit := r.Quotas[0].Limit
	r.Requested = pick(g, 0, 1, 1, 1, 2, 3, limit, limit+1, limit-1, limit/2, g.Int64N(limit+2), g.limit())
	r.Requested = min(max(r.Requested, 0), storage.MaxNumber)
	return r
}

// distinct leaves out quotas that are the same counter as one before.
func distinct(s *strategy, quotas []Quota) []Quota {
	var cells []storage.Cell
	return slices.DeleteFunc(quotas, func(q Quota) bool {
		var cell storage.Cell
		s.cell(&cell, &q)
		same := slices.ContainsFunc(cells, func(c storage.Cell) bool { return c.Key == cell.Key })
		cells = append(cells, cell)
		return same
	})
}

// move advances the time, or sets it back.
func (g *traffic) move() {
	window := micros(g.quotas[g.IntN(len(g.quotas))].Window)
	const year = 365 * 86_400_000_000
	next := g.now
	kind := g.IntN(12)
	if g.steady && g.IntN(40) > 0 {
		kind = 12
	}
	switch kind {
	case 12:
		next += g.Int64N(window/12 + 1)
	case 0:
	case 1:
		next++
	case 2, 3:
		next += g.Int64N(window/4 + 1)
	case 4:
		next += g.Int64N(2 * window)
	case 5:
		next = next/window*window + pick(g, -1, 0, 1, window-1, window, window+1)
	case 6:
		next -= g.Int64N(2 * window)
	case 7:
		next += pick[int64](g, -year, year, 3*year)
	default:
		if len(g.moments) > 0 {
			next = pick(g, g.moments...) + pick[int64](g, -1, 0, 1)
		}
	}
	if next >= 0 && next <= storage.MaxTime {
		g.now = next
	}
}

// learn takes from an answer the moments at which something changes.
func (g *traffic) learn(c *storage.Call) {
	g.moments = g.moments[:0]
	for _, r := range c.Requests {
		if c.Op != storage.Check && r.Granted > 0 {
			g.used = c.Now
		}
		for _, cell := range r.Cells {
			g.moments = append(g.moments, c.Now+cell.RetryAfter, c.Now+cell.NextAfter, c.Now+cell.ResetAfter)
		}
	}
}
