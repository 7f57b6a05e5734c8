package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A run is a call under way.
type run struct {
	store  *Store
	script *storage.Script
	call   *storage.Call

	items  []*item          // one for each counter
	ofCell []*item          // one for each cell
	states []*storage.State // their words

	loaded bool   // the items are as in the table, or were
	write  *write // what the step wants written
	lost   bool   // the answer to the write, which may have taken effect
	met    bool   // others at the counters
	done   func() // ends its turn at them; nil if it has none
}

func (s *Store) newRun(script *storage.Script, c *storage.Call) (*run, error) {
	r := &run{store: s, script: script, call: c}
	byKey := make(map[storage.Key]*item, c.Cells())
	for cell := range cells(c) {
		it := byKey[cell.Key]
		if it == nil {
			it = &item{key: s.keyOf(&cell.Key)}
			byKey[cell.Key] = it
			r.items = append(r.items, it)
		}
		r.ofCell, r.states = append(r.ofCell, it), append(r.states, &it.words)
	}
	if len(r.items) > maxCounters {
		return nil, tooMany(len(r.items))
	}
	return r, nil
}

func cells(c *storage.Call) func(yield func(*storage.Cell) bool) {
	return func(yield func(*storage.Cell) bool) {
		for i := range c.Requests {
			for j := range c.Requests[i].Cells {
				if !yield(&c.Requests[i].Cells[j]) {
					return
				}
			}
		}
	}
}

// round loads, steps and writes. A write whose answer was lost is sent again, as
// it was, until it is known what came of it: its condition holds once at most.
func (r *run) round(ctx context.Context) *failure {
	if r.met && r.done == nil {
		if f := r.wait(ctx); f != nil {
			return f
		}
	}
	if r.write == nil {
		if f := r.load(ctx); f != nil {
			return f
		}
		var f *failure
		if r.write, f = r.step(); r.write == nil {
			return f // or nothing is to be written
		}
	}
	f := r.store.send(ctx, r.write)
	switch {
	case f == nil:
		r.lost = false
		return nil
	case f.outcome == unknown:
		r.lost = true
		return f
	case f.outcome == stale && (r.lost || len(f.current) > 0):
		return r.find(ctx, f)
	case f.outcome == stale || f.outcome == busy && !r.lost:
		r.again(f)
	}
	return f
}

// again has the next round take the step again, on what the answer brought, or
// else on what it loads.
func (r *run) again(f *failure) {
	r.write, r.met = nil, true
	r.loaded = len(r.items) == 1 && len(f.current) > 0 && r.items[0].take(f.current) == nil
}

// wait has the run take its turn among those that met others.
func (r *run) wait(ctx context.Context) *failure {
	done, waited, err := r.store.turns.wait(ctx, r.items)
	if err != nil {
		return &failure{outcome: unsent, err: err}
	}
	r.done = done
	r.loaded = r.loaded && !waited // or else what was loaded is old
	return nil
}

// end ends the turn, if the run had one.
func (r *run) end() {
	if r.done != nil {
		r.done()
	}
}

// find tells what came of a write that was stale: it may be itself what it met,
// if an answer was lost to us, or to a client that sends again without our knowing.
func (r *run) find(ctx context.Context, f *failure) *failure {
	now := make([]*item, len(r.write.items))
	for i, was := range r.write.items {
		now[i] = &item{key: was.key}
	}
	if len(f.current) > 0 {
		if err := now[0].take(f.current); err != nil {
			return &failure{outcome: refused, err: err}
		}
	} else if lf := r.store.load(ctx, now); lf != nil {
		return lf
	}
	// It took effect on all items or none, but any may have been forgotten since.
	var tooOld *item
	for i, it := range now {
		if it.version.has(r.write.id[:]) {
			r.lost = false
			return nil
		}
		if !it.version.reaches(r.write.items[i].version) {
			tooOld = it
		}
	}
	if r.lost && tooOld != nil {
		return &failure{outcome: untold, err: fmt.Errorf("its answer was lost, and the counter %q was written too often since to tell: %w", tooOld.key, f.err)}
	}
	// It did not take effect, or was forgotten with all of its counters.
	r.lost = false
	r.again(f)
	return f
}

func (r *run) load(ctx context.Context) *failure {
	if r.loaded {
		return nil
	}
	f := r.store.load(ctx, r.items)
	r.loaded = f == nil
	return f
}

// step takes the step on what was loaded. It returns nothing if it changed
// nothing.
func (r *run) step() (*write, *failure) {
	r.loaded = false // from now on
	now := time.Now().UnixMicro()
	if r.call.OwnClock {
		r.call.Now = now
	}
	for _, it := range r.items {
		it.reset()
	}
	i := 0
	for cell := range cells(r.call) {
		if it := r.ofCell[i]; !r.script.Valid(it.words, cell) {
			return nil, &failure{outcome: refused, err: fmt.Errorf("the item %q has a state that this strategy does not write: another program wrote it", it.key)}
		}
		i++
	}
	if !r.script.Step(r.call, r.states) {
		return nil, nil
	}
	i = 0
	for cell := range cells(r.call) {
		r.ofCell[i].keep(now + cell.ResetAfter)
		i++
	}
	w, err := r.store.newWrite(r.items)
	if err != nil {
		return nil, &failure{outcome: refused, err: err}
	}
	return w, nil
}
