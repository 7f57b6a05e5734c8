package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A storage promises that a call is one step. Here many goroutines call at once,
// and their answers must be those of the same calls made one after another, each
// somewhere between its beginning and its end: there must be an order in which
// the strategy's own step gives them all, to the last digit. (That the step is
// right is what the twin test shows.)

// linearizations are the kinds of histories.
var linearizations = []linearization{
	// All calls of a round have one time: nothing but the units tells in which
	// order they came.
	{name: "one key", rounds: 10, quotas: []Quota{
		{Limit: 12, Window: 10 * time.Second, Granularity: time.Second},
		{Limit: 20, Window: 35 * time.Second, Granularity: 5 * time.Second, Burst: 15},
	}},
	{name: "several keys", rounds: 10, across: true, quotas: []Quota{
		{Limit: 8, Window: 10 * time.Second, Granularity: time.Second},
		{Limit: 20, Window: 35 * time.Second, Granularity: 5 * time.Second, PrefixOverride: "all"},
	}},
	// The window is so long that no key expires before its history ends, also on a
	// machine that stops for a while between a check and its use.
	{name: "own clock", rounds: 8, ownClock: true, quotas: []Quota{
		{Limit: 60, Window: time.Minute, Granularity: 20 * time.Millisecond},
		{Limit: 120_000, Window: 2 * time.Minute, Granularity: time.Second, Burst: 40}, // a bucket gets 1 unit a ms
	}},
}

func TestLinearizable(t *testing.T) {
	for name, store := range map[string]storage.Storage{"memory": memory.New(), "redis": teststore.Redis(t)} {
		for _, l := range linearizations {
			for _, s := range strategies {
				t.Run(name+"/"+l.name+"/"+s.name, func(t *testing.T) {
					result, info := l.check(s, l.record(t, s, store, 32, l.rounds))
					if result != porcupine.Ok {
						picture := filepath.Join(t.ArtifactDir(), "history.html")
						require.NoError(t, porcupine.VisualizePath(l.model(s), info, picture))
						t.Fatalf("%s; with -artifacts %s shows how far an order was found", result, picture)
					}
				})
			}
		}
	}
}

// The test sees a storage that checks in one step and uses in the next.
func TestLinearizableSeesTornCalls(t *testing.T) {
	for _, l := range linearizations {
		for _, s := range strategies {
			t.Run(l.name+"/"+s.name, func(t *testing.T) {
				result, _ := l.check(s, l.record(t, s, torn{memory.New()}, 8, l.rounds))
				require.Equal(t, porcupine.Illegal, result)
			})
		}
	}
}

// useOf is the call that uses what a check has granted.
func useOf(check *storage.Call) *storage.Call {
	use := cloneCall(check)
	use.Op, use.OwnClock, use.Together = storage.Use, false, false
	for i := range use.Requests {
		for j := range use.Requests[i].Cells {
			use.Requests[i].Cells[j].Reached = false
		}
	}
	return use
}

// torn makes two calls of a CheckAndUse.
type torn struct{ storage.Storage }

func (s torn) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if c.Op != storage.CheckAndUse {
		return s.Storage.Run(ctx, script, c)
	}
	c.Op = storage.Check
	if err := s.Storage.Run(ctx, script, c); err != nil {
		return err
	}
	time.Sleep(time.Microsecond) // others come in between
	use := useOf(c)
	if err := s.Storage.Run(ctx, script, use); err != nil {
		return err
	}
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			cell := &c.Requests[i].Cells[j]
			reached := cell.Reached
			*cell = use.Requests[i].Cells[j]
			cell.Reached = reached
		}
	}
	return nil
}

// A linearization makes histories of one kind, and judges them.
type linearization struct {
	name     string
	rounds   int
	quotas   []Quota
	across   bool // calls have requests of several prefixes, and there are no uses
	ownClock bool // the storage stamps calls; a use has its time from a check
}

var linearKeys atomic.Int64 // no two histories have a key in common

// record has goroutines call a storage all at once, round after round, and writes
// down what they asked, what was answered, and in which round.
func (l linearization) record(t *testing.T, s *strategy, store storage.Storage, goroutines, rounds int) []porcupine.Operation {
	now := time.Now().UnixMicro()
	seed, prefix := rand.Uint64(), fmt.Sprintf("%s %d ", s.name, linearKeys.Add(1))
	callers := make([]*linearTraffic, goroutines)
	for i := range callers {
		callers[i] = &linearTraffic{
			Rand: rand.New(rand.NewPCG(seed, uint64(i))), linearization: l,
			strategy: s, store: store, prefix: prefix,
		}
	}
	var history []porcupine.Operation
	for round := range rounds {
		var wg sync.WaitGroup
		begin, ops := make(chan struct{}), make([]porcupine.Operation, goroutines)
		now += micros(l.quotas[0].Window) * rand.Int64N(8) / 32
		for i, g := range callers {
			g.now = now
			wg.Go(func() {
				ask := g.next()
				<-begin
				answer, err := g.do(t.Context(), ask)
				if err != nil {
					t.Error(err)
				}
				ops[i] = porcupine.Operation{ClientId: i, Input: ask, Output: answer}
			})
		}
		close(begin)
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		history = append(history, timed(ops, round)...)
	}
	return history
}

// timed gives the calls of a round their times: all begin before the first ends.
// The checker tries those first that began first: what changed nothing, which may
// stand wherever its answer fits, then the others by their time. In another order
// it tries ever more of them in vain.
func timed(ops []porcupine.Operation, round int) []porcupine.Operation {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int {
		x, y := a.Output.(*storage.Call), b.Output.(*storage.Call)
		if changes(x) != changes(y) {
			return map[bool]int{false: -1, true: 1}[changes(x)]
		}
		return cmp.Compare(x.Now, y.Now)
	})
	for i := range ops {
		ops[i].Call = int64(2*round*len(ops) + i)
		ops[i].Return = ops[i].Call + int64(len(ops))
	}
	return ops
}

func changes(c *storage.Call) bool {
	return c.Op != storage.Check && slices.ContainsFunc(c.Requests, func(r storage.Request) bool { return r.Granted > 0 })
}

// linearTraffic makes the calls of one goroutine.
type linearTraffic struct {
	*rand.Rand
	linearization
	strategy *strategy
	store    storage.Storage
	prefix   string
	now      int64           // that all goroutines share
	checked  []*storage.Call // what this one checked, to be used
}

func (g *linearTraffic) next() *storage.Call {
	if !g.across && len(g.checked) > 0 && g.IntN(2) == 0 {
		use := useOf(g.checked[0])
		g.checked = g.checked[1:]
		if !g.ownClock {
			use.Now = g.now
		}
		for i := range use.Requests {
			// Above a limit answers do not tell how far, and the checker would have to
			// guess the order of uses, were they not all alike.
			use.Requests[i].Granted = min(use.Requests[i].Granted, 1)
		}
		return use
	}
	op := storage.CheckAndUse
	if g.IntN(4) == 0 {
		op = storage.Check
	}
	return g.make(op)
}

func (g *linearTraffic) make(op storage.Op) *storage.Call {
	c := new(call)
	var requests []RequestedQuota
	for range 1 + g.IntN(2)*g.several() {
		r := RequestedQuota{
			Prefix:       g.prefix + string(rune('a'+g.IntN(2))),
			Requested:    g.Int64N(6),
			AllOrNothing: g.IntN(2) == 0,
			Quotas:       g.quotas,
		}
		if g.across {
			r.Quotas = g.quotas[g.IntN(2):] // all have the shared one
		}
		requests = append(requests, r)
	}
	opts := []CallOption{At(time.UnixMicro(g.now))}
	if g.ownClock {
		opts = nil
	}
	if g.across && g.IntN(3) == 0 {
		opts = append(opts, Together())
	}
	c.Op = op
	if err := c.fill(g.strategy, requests, opts); err != nil {
		panic(err)
	}
	for i := range c.cells { // histories do not share the shared quotas
		if k := &c.cells[i].Key; k.Counter.Value().Shared {
			k.Prefix = g.prefix + k.Prefix
		}
	}
	return &c.Call
}

func (g *linearTraffic) several() int {
	if g.across {
		return 2
	}
	return 0
}

// do makes a call, and returns it with its answers.
func (g *linearTraffic) do(ctx context.Context, ask *storage.Call) (*storage.Call, error) {
	c := cloneCall(ask)
	err := g.store.Run(ctx, g.strategy.script, c)
	if c.Op == storage.Check && err == nil {
		g.checked = append(g.checked, c)
	}
	return c, err
}

// check looks for an order. The bound is no limit of speed: a history is decided
// in a second or, if the checker lost its way, never.
func (l linearization) check(s *strategy, history []porcupine.Operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	return porcupine.CheckOperationsVerbose(l.model(s), history, 5*time.Minute)
}

func (l linearization) model(s *strategy) porcupine.Model {
	m := porcupine.Model{
		Init:  func() any { return counters{} },
		Equal: func(a, b any) bool { return maps.EqualFunc(a.(counters), b.(counters), slices.Equal) },
		Step: func(state, input, output any) (bool, any) {
			return state.(counters).step(s, input.(*storage.Call), output.(*storage.Call))
		},
		DescribeOperation: func(_, output any) string { return sprintCall(output.(*storage.Call)) },
	}
	if !l.across {
		m.Partition = byPrefix
	}
	return m
}

// counters are all states there are, and are never changed.
type counters map[storage.Key]storage.State

// step tells whether these counters give an answer, and what they are then.
func (m counters) step(s *strategy, ask, answer *storage.Call) (bool, counters) {
	c, next := cloneCall(ask), maps.Clone(m)
	c.Now, c.OwnClock = answer.Now, answer.OwnClock
	of := make(map[storage.Key]*storage.State)
	var states []*storage.State
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			key := c.Requests[i].Cells[j].Key
			if of[key] == nil {
				state := slices.Clone(m[key])
				of[key] = &state
			}
			states = append(states, of[key])
		}
	}
	if s.script.Step(c, states) {
		for key, state := range of {
			next[key] = *state
		}
	}
	return reflect.DeepEqual(c, answer), next
}

// byPrefix divides a history into those of its prefixes.
func byPrefix(history []porcupine.Operation) [][]porcupine.Operation {
	of := make(map[string][]porcupine.Operation)
	for _, op := range history {
		prefix := op.Input.(*storage.Call).Requests[0].Cells[0].Key.Prefix
		of[prefix] = append(of[prefix], op)
	}
	return slices.Collect(maps.Values(of))
}
