// Package frame is the part that all strategies share, in Go: it walks the
// requests of a call and their quotas, takes the smallest remainder, has it
// recorded, and reports how the counters stand. scripts/frame.lua is the same in
// Lua, function by function; change one and the twin test wants the other.
package frame

import (
	"slices"

	"github.com/granule-limits/ratelimit/storage"
)

// A Strategy is what differs from one strategy to the next. Its methods keep nothing
// between calls.
//
// The first word of every state is the time of the newest use recorded in it, or
// any earlier time that makes no difference to the strategy; the rest is its own.
// No state at all means never used.
type Strategy interface {
	// Count tells how many units count at a time that is not before the newest use.
	Count(s storage.State, c *storage.Cell, at int64) int64
	// Till tells when no more than keep units will count, fewer than now do.
	Till(s storage.State, c *storage.Cell, at, keep int64) int64
	// Use records n units, not 0, at a time that is not before the newest use, and
	// returns the new state. A negative n gives back units recorded at that time,
	// which may be before the newest use, and never more than are there.
	Use(s storage.State, c *storage.Cell, at, n int64) storage.State
	// Valid is storage.Script's, for a state that has words.
	Valid(s storage.State, c *storage.Cell) bool
}

// Step is the Step of a strategy's storage.Script.
func Step(s Strategy) func(c *storage.Call, states []*storage.State) (changed bool) {
	f := frame{s}
	return func(c *storage.Call, states []*storage.State) bool {
		switch {
		case c.Op == storage.Use || len(states) > 1 && anyShared(states):
			return f.many(c, states)
		case len(c.Requests) == 1:
			return f.one(c, &c.Requests[0], states)
		case c.Together:
			return f.many(c, states)
		}
		changed := false
		for i := range c.Requests {
			r := &c.Requests[i]
			changed = f.one(c, r, states[:len(r.Cells)]) || changed
			states = states[len(r.Cells):]
		}
		return changed
	}
}

// Valid is the Valid of a strategy's storage.Script.
func Valid(s Strategy) func(state storage.State, c *storage.Cell) bool {
	return func(state storage.State, c *storage.Cell) bool { return len(state) == 0 || s.Valid(state, c) }
}

// OutOfRange tells whether a word can be neither a number of units nor a time.
func OutOfRange(n int64) bool { return n < 0 || n > storage.MaxNumber }

type frame struct{ Strategy }

// one is many for a request of the commonest calls: it is checked, no other decides about
// it, and each cell of the call has a counter of its own. So how many units count is known
// after the use.
func (f *frame) one(c *storage.Call, r *storage.Request, states []*storage.State) (changed bool) {
	granted := r.Requested
	for i, s := range states {
		cell := &r.Cells[i]
		if c.OwnClock && ahead(c, cell, *s) {
			f.heal(c, cell, s)
			changed = true
		}
		used := f.Count(*s, cell, stamp(c, *s))
		left := max(0, cell.Burst-used)
		cell.Reached = left < granted
		granted = min(granted, left)
		cell.Remaining = used // for the report
	}
	lacks := int64(0)
	if granted < r.Requested {
		lacks = r.Requested
		if r.AllOrNothing || c.Together {
			granted = 0
		}
	}
	r.Granted = granted
	if c.Op == storage.Check {
		granted = 0
	}
	for i, s := range states {
		cell := &r.Cells[i]
		at := stamp(c, *s)
		if granted > 0 {
			*s = f.Use(*s, cell, at, granted)
			changed = true
		}
		f.report(c, cell, *s, at, cell.Remaining+granted, lacks)
	}
	return changed
}

func (f *frame) many(c *storage.Call, states []*storage.State) (changed bool) {
	healed := c.OwnClock && f.healAll(c, states)
	used := false
	switch {
	case c.Op == storage.CheckAndUse && !c.Together:
		used = f.takeAll(c, states)
	case c.Op == storage.Use || f.tryAll(c, states) && c.Op == storage.CheckAndUse:
		used = f.useAll(c, states)
	default: // the answers are what tryAll found
		return healed
	}
	f.reportAll(c, states)
	return used || healed
}

// takeAll decides the requests in order, and records each before the next, and
// tells whether there was anything to record.
func (f *frame) takeAll(c *storage.Call, states []*storage.State) (used bool) {
	for i := range c.Requests {
		r := &c.Requests[i]
		mine := states[:len(r.Cells)]
		states = states[len(r.Cells):]
		f.decide(c, r, mine)
		if r.Granted > 0 {
			f.use(c, r, mine)
			used = true
		}
	}
	return used
}

// tryAll decides the requests in order and records nothing, and tells whether all
// were granted in full. That they see each other's grants needs copies of the
// states that they share. What the requests found is the answer, but where all are
// granted and will be recorded.
func (f *frame) tryAll(c *storage.Call, states []*storage.State) (granted bool) {
	originals := states
	var copies map[*storage.State]bool
	if anyShared(states) {
		states, copies = copyShared(states)
	}
	granted = true
	rest := states
	for i := range c.Requests {
		r := &c.Requests[i]
		mine := rest[:len(r.Cells)]
		rest = rest[len(r.Cells):]
		f.decide(c, r, mine)
		granted = granted && r.Granted == r.Requested
		if copies == nil {
			continue
		}
		f.reportRequest(c, r, mine)
		for j, s := range mine {
			if copies[s] && r.Granted > 0 {
				*s = f.Use(*s, &r.Cells[j], stamp(c, *s), r.Granted)
			}
		}
	}
	if copies == nil && (c.Op == storage.Check || !granted) {
		f.reportAll(c, states)
	}
	if c.Together && !granted {
		if copies != nil {
			f.retryTogether(c, originals)
		}
		for i := range c.Requests { // each keeps the rest of the answer that it found
			c.Requests[i].Granted = 0
		}
	}
	return granted
}

// retryTogether tells the requests that had no room when all requests of the call would
// have it in their counters, which is later than each by itself.
func (f *frame) retryTogether(c *storage.Call, states []*storage.State) {
	lacks := make(map[*storage.State]int64)
	rest := states
	for i := range c.Requests {
		for range c.Requests[i].Cells {
			lacks[rest[0]] = min(lacks[rest[0]]+c.Requests[i].Requested, storage.MaxNumber)
			rest = rest[1:]
		}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		for j := range r.Cells {
			if cell, s := &r.Cells[j], states[j]; r.Granted < r.Requested {
				at := stamp(c, *s)
				left := max(0, cell.Burst-f.Count(*s, cell, at))
				cell.RetryAfter = f.retryAfter(c, cell, *s, at, left, lacks[s])
			}
		}
		states = states[len(r.Cells):]
	}
}

// useAll records what is granted, and tells whether that was anything.
func (f *frame) useAll(c *storage.Call, states []*storage.State) (used bool) {
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Granted != 0 {
			f.use(c, r, states[:len(r.Cells)])
			used = true
		}
		states = states[len(r.Cells):]
	}
	return used
}

// reportAll tells how the counters stand after everything the call recorded.
func (f *frame) reportAll(c *storage.Call, states []*storage.State) {
	for i := range c.Requests {
		r := &c.Requests[i]
		f.reportRequest(c, r, states)
		states = states[len(r.Cells):]
	}
}

// decide decides one request. A quota is reached when it has less left than the
// quotas before it left of the request.
func (f *frame) decide(c *storage.Call, r *storage.Request, states []*storage.State) {
	r.Granted = r.Requested
	for i := range r.Cells {
		cell, s := &r.Cells[i], *states[i]
		left := max(0, cell.Burst-f.Count(s, cell, stamp(c, s)))
		cell.Reached = left < r.Granted
		r.Granted = min(r.Granted, left)
	}
	if r.AllOrNothing && r.Granted < r.Requested {
		r.Granted = 0
	}
}

func (f *frame) use(c *storage.Call, r *storage.Request, states []*storage.State) {
	for i, s := range states {
		switch {
		case r.Granted > 0:
			*s = f.Use(*s, &r.Cells[i], stamp(c, *s), r.Granted)
		case len(*s) > 0: // units are given back at the very time at which they were recorded
			*s = f.Use(*s, &r.Cells[i], c.Now, r.Granted)
		}
	}
}

// reportRequest tells how the counters of a request stand. What was granted in full has
// nothing to retry.
func (f *frame) reportRequest(c *storage.Call, r *storage.Request, states []*storage.State) {
	lacks := int64(0)
	if r.Granted != r.Requested && (c.Op != storage.Use || r.Granted <= 0) {
		lacks = r.Requested
	}
	for i := range r.Cells {
		cell, s := &r.Cells[i], *states[i]
		at := stamp(c, s)
		f.report(c, cell, s, at, f.Count(s, cell, at), lacks)
		if c.Op == storage.Use {
			cell.Reached = false
		}
	}
}

// report tells how one counter stands, of which so many units count, and when it
// would have the units that a request lacks.
func (f *frame) report(c *storage.Call, cell *storage.Cell, s storage.State, at, used, lacks int64) {
	left := max(0, cell.Burst-used)
	cell.Remaining, cell.RetryAfter, cell.NextAfter, cell.ResetAfter = left, 0, 0, 0
	if used > 0 {
		cell.ResetAfter = f.Till(s, cell, at, 0) - c.Now
	}
	if left < cell.Burst {
		cell.NextAfter = f.Till(s, cell, at, cell.Burst-left-1) - c.Now
	}
	switch {
	case lacks <= left:
	case lacks == left+1 && lacks <= cell.Burst: // which most do
		cell.RetryAfter = cell.NextAfter
	default:
		cell.RetryAfter = f.retryAfter(c, cell, s, at, left, lacks)
	}
}

// retryAfter is how long until a counter has the units that a request lacks.
func (f *frame) retryAfter(c *storage.Call, cell *storage.Cell, s storage.State, at, left, lacks int64) int64 {
	switch {
	case lacks <= left:
		return 0
	case lacks > cell.Burst:
		return storage.Never
	}
	return f.Till(s, cell, at, cell.Burst-lacks) - c.Now
}

// stamp is the time at which a call is judged, and recorded, in one counter:
// time never goes backwards for a counter.
func stamp(c *storage.Call, s storage.State) int64 {
	if len(s) == 0 {
		return c.Now
	}
	return max(c.Now, s[0])
}

// ahead tells whether a clock, since corrected, left a counter more than a window
// in the future.
func ahead(c *storage.Call, cell *storage.Cell, s storage.State) bool {
	return len(s) > 0 && s[0] > c.Now+cell.Window
}

// healAll repairs counters that are ahead of the storage's clock. Times that
// callers give are taken seriously, however far apart they are.
func (f *frame) healAll(c *storage.Call, states []*storage.State) (healed bool) {
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			if cell := &c.Requests[i].Cells[j]; ahead(c, cell, *states[0]) {
				f.heal(c, cell, states[0])
				healed = true
			}
			states = states[1:]
		}
	}
	return healed
}

// heal repairs a counter that is ahead: what was used counts as used now.
// Otherwise it would be frozen until that future comes.
func (f *frame) heal(c *storage.Call, cell *storage.Cell, s *storage.State) {
	used := min(f.Count(*s, cell, (*s)[0]), cell.Burst)
	if *s = nil; used > 0 {
		*s = f.Use(nil, cell, c.Now, used)
	}
}

// anyShared tells whether cells may have states in common. Of very many cells it
// does not look, and says yes.
func anyShared(states []*storage.State) bool {
	for i, s := range states {
		if i > 100 || slices.Contains(states[:i], s) {
			return true
		}
	}
	return false
}

// copyShared replaces the states that several cells share by copies, and names
// the copies.
func copyShared(states []*storage.State) ([]*storage.State, map[*storage.State]bool) {
	count := make(map[*storage.State]int, len(states))
	for _, s := range states {
		count[s]++
	}
	out := slices.Clone(states)
	copyOf := make(map[*storage.State]*storage.State)
	copies := make(map[*storage.State]bool)
	for i, s := range states {
		if count[s] > 1 && copyOf[s] == nil {
			c := slices.Clone(*s)
			copyOf[s], copies[&c] = &c, true
		}
		if copyOf[s] != nil {
			out[i] = copyOf[s]
		}
	}
	return out, copies
}
