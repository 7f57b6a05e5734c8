// Package frame is the part that all strategies share, in Go: it walks the
// requests of a call and their quotas, takes the smallest remainder, has it
// recorded, and reports how the counters stand. scripts/frame.lua is the same in
// Lua, function by function; change one and the twin test wants the other.
package frame

import (
	"slices"

	"github.com/granule-limits/ratelimit/storage"
)

// A Strategy is what differs from one strategy to the next.
//
// The first word of every state is the time of the newest use recorded in it, or
// any earlier time that makes no difference to the strategy; the rest is its own.
// No state at all means never used.
type Strategy struct {
	// Look tells how many units count at a time that is not before the newest use,
	// when fewer of these will, and fewer than Burst, and when none will. Of no
	// units the times do not matter.
	Look func(s storage.State, c *storage.Cell, at int64) (used, nextAt, resetAt int64)
	// Till tells when no more than keep units will count, which now do.
	Till func(s storage.State, c *storage.Cell, at, keep int64) int64
	// Use records n units, not 0, at a time that is not before the newest use, and
	// returns the new state. A negative n gives back units recorded at that time,
	// which may be before the newest use, and never more than are there.
	Use func(s storage.State, c *storage.Cell, at, n int64) storage.State
}

// Step executes a call; it is the Step of the strategy's storage.Script.
func (f *Strategy) Step(c *storage.Call, states []*storage.State) (changed bool) {
	healed := c.OwnClock && f.heal(c, states)
	if len(states) == 1 && c.Op == storage.CheckAndUse && !c.Together {
		return f.stepOne(c, states[0]) || healed
	}
	if c.Op == storage.Check || c.Together && c.Op == storage.CheckAndUse {
		granted := f.look(c, states)
		if c.Together && !granted {
			for i := range c.Requests {
				c.Requests[i].Granted = 0
			}
		}
		if c.Op == storage.Check || !granted {
			return healed // each request keeps the answer that it found
		}
	}
	used := false
	rest := states
	for i := range c.Requests {
		r := &c.Requests[i]
		mine := rest[:len(r.Cells)]
		rest = rest[len(r.Cells):]
		if c.Op == storage.CheckAndUse && !c.Together {
			f.grant(c, r, mine)
		}
		if r.Granted != 0 {
			f.use(c, r, mine)
			used = true
		}
	}
	for i := range c.Requests { // how the counters stand after everything the call recorded
		r := &c.Requests[i]
		f.report(c, r, states[:len(r.Cells)])
		states = states[len(r.Cells):]
	}
	return used || healed
}

// stepOne is the rest of Step for the commonest call: one counter that is checked
// and used. Without the loops a decision in memory takes a seventh less.
func (f *Strategy) stepOne(c *storage.Call, s *storage.State) (used bool) {
	r := &c.Requests[0]
	cell := &r.Cells[0]
	left := f.left(c, cell, *s)
	r.Granted, cell.Reached = min(r.Requested, left), left < r.Requested
	if r.AllOrNothing && cell.Reached {
		r.Granted = 0
	}
	if r.Granted > 0 {
		*s = f.Use(*s, cell, stamp(c, *s), r.Granted)
	}
	f.stand(c, r, cell, *s)
	return r.Granted > 0
}

// look decides all requests and records nothing, and tells whether all were
// granted in full. That they see each other's grants needs copies of the states
// that they share.
func (f *Strategy) look(c *storage.Call, states []*storage.State) (granted bool) {
	var copies map[*storage.State]bool
	if anyShared(states) {
		states, copies = copyShared(states)
	}
	granted = true
	for i := range c.Requests {
		r := &c.Requests[i]
		mine := states[:len(r.Cells)]
		states = states[len(r.Cells):]
		f.grant(c, r, mine)
		f.report(c, r, mine)
		granted = granted && r.Granted == r.Requested
		for j, s := range mine {
			if copies[s] && r.Granted > 0 {
				*s = f.Use(*s, &r.Cells[j], stamp(c, *s), r.Granted)
			}
		}
	}
	return granted
}

// grant decides one request. A quota is reached when it has less left than the
// quotas before it left of the request.
func (f *Strategy) grant(c *storage.Call, r *storage.Request, states []*storage.State) {
	r.Granted = r.Requested
	for i, s := range states {
		cell := &r.Cells[i]
		left := f.left(c, cell, *s)
		cell.Reached = left < r.Granted
		r.Granted = min(r.Granted, left)
	}
	if r.AllOrNothing && r.Granted < r.Requested {
		r.Granted = 0
	}
}

func (f *Strategy) use(c *storage.Call, r *storage.Request, states []*storage.State) {
	for i, s := range states {
		switch {
		case r.Granted > 0:
			*s = f.Use(*s, &r.Cells[i], stamp(c, *s), r.Granted)
		case len(*s) > 0: // units are given back at the very time at which they were recorded
			*s = f.Use(*s, &r.Cells[i], c.Now, r.Granted)
		}
	}
}

// left is how many units a counter has left.
func (f *Strategy) left(c *storage.Call, cell *storage.Cell, s storage.State) int64 {
	used, _, _ := f.Look(s, cell, stamp(c, s))
	return max(0, cell.Burst-used)
}

// report tells how the counters of a request stand.
func (f *Strategy) report(c *storage.Call, r *storage.Request, states []*storage.State) {
	for i, s := range states {
		f.stand(c, r, &r.Cells[i], *s)
	}
}

// stand tells how one counter stands. What was granted in full has nothing to
// retry.
func (f *Strategy) stand(c *storage.Call, r *storage.Request, cell *storage.Cell, s storage.State) {
	at, want := stamp(c, s), r.Requested
	used, nextAt, resetAt := f.Look(s, cell, at)
	left := max(0, cell.Burst-used)
	cell.Remaining, cell.RetryAfter, cell.NextAfter, cell.ResetAfter = left, 0, 0, 0
	if c.Op == storage.Use {
		cell.Reached = false
		if r.Granted > 0 {
			want = 0
		}
	}
	switch {
	case r.Granted == r.Requested || want <= left:
	case want > cell.Burst:
		cell.RetryAfter = storage.Never
	default:
		cell.RetryAfter = f.Till(s, cell, at, cell.Burst-want) - c.Now
	}
	if used > 0 {
		cell.ResetAfter = resetAt - c.Now
	}
	if left < cell.Burst {
		cell.NextAfter = nextAt - c.Now
	}
}

// stamp is the time at which a call is judged, and recorded, in one counter:
// time never goes backwards for a counter.
func stamp(c *storage.Call, s storage.State) int64 {
	if len(s) == 0 {
		return c.Now
	}
	return max(c.Now, s[0])
}

// heal repairs counters that a clock, since corrected, left more than a window
// in the future: what was used counts as used now. Otherwise they would be
// frozen until that future comes. Times that callers give are taken seriously,
// however far apart they are.
func (f *Strategy) heal(c *storage.Call, states []*storage.State) (healed bool) {
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			cell, s := &c.Requests[i].Cells[j], states[0]
			states = states[1:]
			if stamp(c, *s) <= c.Now+cell.Window {
				continue
			}
			used, _, _ := f.Look(*s, cell, (*s)[0])
			used = min(used, cell.Burst)
			if *s = nil; used > 0 {
				*s = f.Use(nil, cell, c.Now, used)
			}
			healed = true
		}
	}
	return healed
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
