package storagetest

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A model is what every storage must be equal to: Script.Step over a map that
// keeps everything. It also remembers the last call, as it was asked: that is how
// the cases come by scripts, and by calls such as a Limiter makes.
type model struct {
	counters map[storage.Key]*storage.State
	script   *storage.Script
	asked    storage.Call
}

func newModel() *model {
	return &model{counters: make(map[storage.Key]*storage.State)}
}

func (m *model) Run(_ context.Context, s *storage.Script, c *storage.Call) error {
	m.remember(s, c)
	if c.OwnClock {
		c.Now = time.Now().UnixMicro()
	}
	m.step(s, c)
	return nil
}

func (m *model) Forget(_ context.Context, keys []storage.Key) error {
	for _, k := range keys {
		delete(m.counters, k)
	}
	return nil
}

func (m *model) remember(s *storage.Script, c *storage.Call) {
	m.script, m.asked = s, clone(c)
}

// step keeps none of the call's memory.
func (m *model) step(s *storage.Script, c *storage.Call) {
	own := clone(c)
	states := make([]*storage.State, 0, c.Cells())
	for _, r := range own.Requests {
		for _, cell := range r.Cells {
			if m.counters[cell.Key] == nil {
				m.counters[cell.Key] = new(storage.State)
			}
			states = append(states, m.counters[cell.Key])
		}
	}
	s.Step(c, states)
}

// A twin is a Storage that does everything twice, in the storage under test and
// in a model, and ends the case where they differ. It is for one goroutine.
type twin struct {
	model
	t       *test
	history []string // the last calls
}

func (w *twin) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	w.remember(s, c)
	want := clone(c)
	w.note(describe(c))
	w.do("Run", func() error { return w.t.store.Run(ctx, s, c) })
	if want.OwnClock {
		want.Now = c.Now
	}
	w.step(s, &want)
	if diff := difference(c, &want); diff != "" {
		w.t.fail("this call:\n%s", w.story(diff))
	}
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			cell := &c.Requests[i].Cells[j]
			if state := *w.counters[cell.Key]; !s.Valid(state, cell) {
				w.t.fail("this call:\n%s", w.story(fmt.Sprintf("Step left %d, which Valid says it can't", state)))
			}
		}
	}
	return nil
}

func (w *twin) Forget(ctx context.Context, keys []storage.Key) error {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = describeKey(k)
	}
	w.note("Forget " + strings.Join(names, ", "))
	_ = w.model.Forget(ctx, keys)
	w.do("Forget", func() error { return w.t.store.Forget(ctx, keys) })
	return nil
}

// do calls the storage, which has no reason to fail.
func (w *twin) do(method string, call func() error) {
	defer func() {
		if r := recover(); r != nil {
			w.t.fail("this call:\n%s\n%s", w.story(fmt.Sprintf("%s panicked: %v", method, r)), debug.Stack())
		}
	}()
	if err := call(); err != nil {
		w.t.fail("this call:\n%s", w.story(method+" failed: "+err.Error()))
	}
}

func (w *twin) note(call string) {
	const most = 8
	if len(w.history) == most {
		w.history = slices.Delete(w.history, 0, 1)
	}
	w.history = append(w.history, call)
}

// story is the last call, what was wrong with it, and the calls before it.
func (w *twin) story(wrong string) string {
	last := len(w.history) - 1
	story := "\t" + w.history[last] + "\n" + wrong
	if last > 0 {
		story += "\nThe calls before it, the last one first:"
	}
	for _, call := range slices.Backward(w.history[:last]) {
		story += "\n\t" + call
	}
	return story
}

// clone copies a call, its slices and its strings.
func clone(c *storage.Call) storage.Call {
	out := *c
	out.Requests = slices.Clone(c.Requests)
	for i := range out.Requests {
		cells := slices.Clone(out.Requests[i].Cells)
		for j := range cells {
			k := &cells[j].Key
			k.Prefix = strings.Clone(k.Prefix)
		}
		out.Requests[i].Cells = cells
	}
	return out
}

// difference tells in what two executed calls differ, as far as the first request
// in which they do.
func difference(got, want *storage.Call) string {
	var d differences
	d.compare("Now", got.Now, want.Now)
	d.compare("Op", got.Op, want.Op)
	d.compare("OwnClock", got.OwnClock, want.OwnClock)
	d.compare("Together", got.Together, want.Together)
	d.compare("len(Requests)", len(got.Requests), len(want.Requests))
	for i := 0; i < len(want.Requests) && d == nil; i++ {
		d.compareRequests(fmt.Sprintf("Requests[%d].", i), &got.Requests[i], &want.Requests[i])
	}
	return strings.Join(d, "\n")
}

type differences []string

func (d *differences) compare(name string, got, want any) {
	if got != want {
		*d = append(*d, fmt.Sprintf("%s: got %v, wanted %v", name, got, want))
	}
}

func (d *differences) compareRequests(name string, got, want *storage.Request) {
	d.compare(name+"Requested", got.Requested, want.Requested)
	d.compare(name+"AllOrNothing", got.AllOrNothing, want.AllOrNothing)
	d.compare(name+"Granted", got.Granted, want.Granted)
	d.compare(name+"len(Cells)", len(got.Cells), len(want.Cells))
	for i := range min(len(got.Cells), len(want.Cells)) {
		d.compareCells(fmt.Sprintf("%sCells[%d].", name, i), &got.Cells[i], &want.Cells[i])
	}
}

func (d *differences) compareCells(name string, got, want *storage.Cell) {
	d.compare(name+"Key", describeKey(got.Key), describeKey(want.Key))
	d.compare(name+"Limit", got.Limit, want.Limit)
	d.compare(name+"Burst", got.Burst, want.Burst)
	d.compare(name+"Window", got.Window, want.Window)
	d.compare(name+"Granularity", got.Granularity, want.Granularity)
	d.compare(name+"Remaining", got.Remaining, want.Remaining)
	d.compare(name+"Reached", got.Reached, want.Reached)
	d.compare(name+"RetryAfter", got.RetryAfter, want.RetryAfter)
	d.compare(name+"NextAfter", got.NextAfter, want.NextAfter)
	d.compare(name+"ResetAfter", got.ResetAfter, want.ResetAfter)
}

var ops = [...]string{storage.CheckAndUse: "CheckAndUse", storage.Check: "Check", storage.Use: "Use"}

// describe tells what a call asks.
func describe(c *storage.Call) string {
	var b strings.Builder
	b.WriteString(ops[c.Op])
	if c.Together {
		b.WriteString(" together")
	}
	if c.OwnClock {
		b.WriteString(" by the storage's clock:")
	} else {
		fmt.Fprintf(&b, " at %s:", time.UnixMicro(c.Now).UTC().Format("2006-01-02 15:04:05.000000"))
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		if c.Op == storage.Use {
			fmt.Fprintf(&b, " %d of", r.Granted)
		} else {
			fmt.Fprintf(&b, " %d of", r.Requested)
		}
		for j := range r.Cells {
			fmt.Fprintf(&b, " [%s limit %d]", describeKey(r.Cells[j].Key), r.Cells[j].Limit)
		}
		if r.AllOrNothing {
			b.WriteString(" or nothing")
		}
	}
	return b.String()
}

func describeKey(k storage.Key) string {
	c, shared := k.Counter.Value(), ""
	if c.Shared {
		shared = " shared"
	}
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return fmt.Sprintf("%q %s%s %v/%v", k.Prefix, c.Strategy, shared, micros(c.Window), micros(c.Granularity))
}
