package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
)

// A script covers one slot of a cluster, and all counters of a prefix lie in one
// slot. A call over several prefixes is made in parts, one for each prefix:
//
//  1. Take from each part what its quotas give. A part that refused lately comes first,
//     then the others at the same time, but for those that link requests: where one
//     request's grant decides another part's, the order matters. These come last, one
//     by one. Later parts are asked only for what is left of each request.
//  2. A request is granted the least that its parts gave. Give back the rest.
//
// Until that is done others may be refused what is given back a moment later.
// Nobody is ever granted more than a quota has.

// A part is the part of a call that lies in one slot.
type part struct {
	call  storage.Call
	keys  []string
	of    []int           // the requests of the whole call that the part's requests are of
	cells []*storage.Cell // of all its requests, in the order of the whole call
	left  []int64         // what each of the cells had left when it was asked
	links bool
	ran   bool // without an error
}

// split divides a call into its parts.
func (s *Store) split(c *storage.Call) []*part {
	var parts []*part
	byPrefix := make(map[string]*part)
	spread := make([]int, len(c.Requests)) // how many parts a request has
	for i := range c.Requests {
		for _, cell := range c.Requests[i].Cells {
			p := byPrefix[cell.Key.Prefix]
			if p == nil {
				p = &part{call: storage.Call{Op: c.Op, OwnClock: c.OwnClock, Now: c.Now, Together: c.Together}}
				parts, byPrefix[cell.Key.Prefix] = append(parts, p), p
			}
			if p.add(i, &c.Requests[i], cell) {
				spread[i]++
			}
		}
	}
	for _, p := range parts {
		p.keys = s.keys(&p.call)
		for k, i := range p.of {
			p.links = p.links || c.Op != storage.Use && len(p.of) > 1 && spread[i] > 1
			for j := range p.call.Requests[k].Cells {
				p.cells = append(p.cells, &p.call.Requests[k].Cells[j])
			}
		}
		p.left = make([]int64, len(p.cells))
	}
	return parts
}

// add adds a cell of the i-th request, and tells whether the request is new to the
// part.
func (p *part) add(i int, r *storage.Request, cell storage.Cell) (isNew bool) {
	isNew = len(p.of) == 0 || p.of[len(p.of)-1] != i
	if isNew {
		p.of = append(p.of, i)
		p.call.Requests = append(p.call.Requests, storage.Request{Requested: r.Requested, AllOrNothing: r.AllOrNothing, Granted: r.Granted})
	}
	own := &p.call.Requests[len(p.of)-1]
	own.Cells = append(own.Cells, cell)
	return isNew
}

// runParts executes a call over several slots.
func (s *Store) runParts(b *rediscall.Bound, script *storage.Script, c *storage.Call, parts []*part) error {
	if c.Op != storage.Use {
		for i := range c.Requests {
			c.Requests[i].Granted = c.Requests[i].Requested
		}
	}
	if err := s.take(b, script, c, parts); err != nil {
		return s.undo(b, script, parts, err)
	}
	decide(c)
	if err := s.settle(b, script, c, parts); err != nil {
		return join(fmt.Errorf("%w: charged more than was granted", storage.ErrIndeterminate), err)
	}
	answer(c, parts)
	return nil
}

// take runs the parts, and leaves in each request of the call the least that it
// was given.
func (s *Store) take(b *rediscall.Bound, script *storage.Script, c *storage.Call, parts []*part) error {
	var before, apart, after [][]*part
	first := s.first(c, parts)
	for _, p := range parts {
		switch {
		case p == first:
			before = [][]*part{{p}}
		case p.links:
			after = append(after, []*part{p})
		case apart == nil:
			apart = [][]*part{{p}}
		default:
			apart[0] = append(apart[0], p)
		}
	}
	for _, stage := range slices.Concat(before, apart, after) {
		if err := s.takeParts(b, script, c, stage); err != nil {
			return err
		}
	}
	return nil
}

// first is the part to ask first: of those that refused lately the one that is refilled
// slowest, the first of the call where that is the same, or nil. So the order is one in
// all processes: if two took in different orders, each would have to give back what the
// other's part refused. A part that links requests has to wait for the others.
func (s *Store) first(c *storage.Call, parts []*part) (first *part) {
	if c.Op != storage.CheckAndUse {
		return nil
	}
	for _, p := range parts {
		if !p.links && s.refusals.lately(p.prefix()) && (first == nil || p.rate() < first.rate()) {
			first = p
		}
	}
	return first
}

// rate is what the slowest quota of a part admits, in units a µs.
func (p *part) rate() float64 {
	slowest := math.Inf(1)
	for _, cell := range p.cells {
		slowest = min(slowest, float64(cell.Limit)/float64(cell.Window))
	}
	return slowest
}

// takeParts runs parts at the same time, each for what the parts before left.
func (s *Store) takeParts(b *rediscall.Bound, script *storage.Script, c *storage.Call, parts []*part) error {
	for _, p := range parts {
		p.ask(c)
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = s.runOne(b, script, &p.call, p.keys) })
	}
	wg.Wait()
	for i, p := range parts {
		if errs[i] == nil {
			if refused, gave := p.said(); c.Op != storage.Use && (refused || gave) {
				s.refusals.note(p.prefix(), refused)
			}
			p.given(c)
		}
	}
	return join(errs...)
}

// ask asks a part for what is left of each request, and only asks where nothing will be
// granted any more. Of an only request it then asks at once when all of it would be there.
func (p *part) ask(c *storage.Call) {
	if c.Op == storage.Use {
		return
	}
	left := int64(0)
	for k, i := range p.of {
		r, own := &c.Requests[i], &p.call.Requests[k]
		own.Requested = r.Granted
		if r.AllOrNothing && r.Granted < r.Requested {
			own.Requested = 0
		}
		left = max(left, own.Requested)
	}
	if left == 0 || c.Together && !granted(c) {
		p.call.Op = storage.Check
		if len(p.of) == 1 {
			p.call.Requests[0].Requested = c.Requests[p.of[0]].Requested
		}
	}
}

// granted tells whether all requests of a call are, as yet, in full.
func granted(c *storage.Call) bool {
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Granted < r.Requested {
			return false
		}
	}
	return true
}

// said tells whether a part refused something, and whether it gave something.
func (p *part) said() (refused, gave bool) {
	for k := range p.call.Requests {
		r := &p.call.Requests[k]
		refused, gave = refused || r.Granted < r.Requested, gave || r.Granted > 0
	}
	return refused, gave
}

func (p *part) prefix() string { return p.cells[0].Key.Prefix }

// given puts into the call what a part gave, or, together, what it had.
func (p *part) given(c *storage.Call) {
	p.ran = true
	p.look()
	if c.Op == storage.Use {
		return
	}
	left := p.left
	for k, i := range p.of {
		own := &p.call.Requests[k]
		gave := own.Granted
		if c.Together {
			gave = min(own.Requested, slices.Min(left[:len(own.Cells)]))
			left = left[len(own.Cells):]
		}
		c.Requests[i].Granted = min(c.Requests[i].Granted, gave)
		if c.Op == storage.CheckAndUse && p.call.Op == storage.Check {
			own.Granted = 0 // there is nothing to give back
		}
	}
}

// look notes what each cell had left when it was asked: what it has now, and what
// was used since.
func (p *part) look() {
	n := len(p.cells)
	used := make(map[storage.Key]int64)
	for k := len(p.of) - 1; k >= 0; k-- {
		r := &p.call.Requests[k]
		n -= len(r.Cells)
		for j := range r.Cells {
			cell := &r.Cells[j]
			if p.call.Op == storage.CheckAndUse {
				used[cell.Key] += r.Granted
			}
			p.left[n+j] = cell.Remaining + used[cell.Key]
			if cell.Reached && !p.call.Together && !r.AllOrNothing { // by a lower limit than what was used since
				p.left[n+j] = min(p.left[n+j], r.Granted)
			}
		}
	}
}

// decide makes of what was given what is granted.
func decide(c *storage.Call) {
	if c.Op == storage.Use {
		return
	}
	none := c.Together && !granted(c)
	for i := range c.Requests {
		if r := &c.Requests[i]; none || r.AllOrNothing && r.Granted < r.Requested {
			r.Granted = 0
		}
	}
}

// settle gives back what parts gave and was not granted, and has them tell how
// their counters stand then. A check took nothing: there its parts' answers stand,
// of which RetryAfter may be early where a request was refused by two of them.
func (s *Store) settle(b *rediscall.Bound, script *storage.Script, c *storage.Call, parts []*part) error {
	if c.Op != storage.CheckAndUse {
		return nil
	}
	var open []*part
	for _, p := range parts {
		unsettled := false
		for k, i := range p.of {
			own, r := &p.call.Requests[k], &c.Requests[i]
			unsettled = unsettled || own.Granted > r.Granted || own.Requested < r.Requested
			own.Granted = r.Granted - own.Granted
			own.Requested = r.Requested
			if r.Granted == r.Requested {
				own.Requested = 0 // there is nothing to retry
			}
		}
		if unsettled {
			p.call.Op, p.call.OwnClock = storage.Use, false // given back at the time at which it was taken
			open = append(open, p)
		}
	}
	return s.runDetached(b, script, open)
}

// undo gives back all that was taken, after some part of a call has failed. What was
// given back stays so: how much there was to give back is not known any more.
func (s *Store) undo(b *rediscall.Bound, script *storage.Script, parts []*part, cause error) error {
	var open []*part
	late := false // what time a counter had is not known of a call that brings its own
	for _, p := range parts {
		if !p.ran || p.call.Op == storage.Check {
			continue
		}
		charged := false
		for k := range p.call.Requests {
			r := &p.call.Requests[k]
			if r.Granted < 0 {
				cause = join(fmt.Errorf("%w: a part of the call failed, and another has given back", storage.ErrIndeterminate), cause)
			}
			charged = charged || r.Granted > 0
			r.Granted = -max(r.Granted, 0)
		}
		if charged {
			late = late || !p.call.OwnClock
			p.call.Op, p.call.OwnClock = storage.Use, false
			open = append(open, p)
		}
	}
	if late {
		cause = join(fmt.Errorf("%w: a part of the call failed, and another is given back at the call's time, where not every strategy finds what it recorded later", storage.ErrIndeterminate), cause)
	}
	if err := s.runDetached(b, script, open); err != nil {
		return join(fmt.Errorf("%w: a part of the call failed, and another could not be given back", storage.ErrIndeterminate), cause, err)
	}
	return cause
}

// runDetached runs parts to the end, whether or not the caller goes, who is told
// if it did.
func (s *Store) runDetached(b *rediscall.Bound, script *storage.Script, parts []*part) error {
	if len(parts) == 0 {
		return nil
	}
	own := rediscall.Bind(context.WithoutCancel(b.Context), s.timeout, s.timedOut)
	done := make(chan error, 1)
	go func() {
		defer own.End()
		errs := make([]error, len(parts))
		var wg sync.WaitGroup
		for i, p := range parts {
			wg.Go(func() { errs[i] = s.runOne(own, script, &p.call, p.keys) })
		}
		wg.Wait()
		done <- join(errs...)
	}()
	err, _ := b.Wait(done)
	return err
}

// retrySoon is for units that are there again, in µs, so that nobody asks in a tight loop.
const retrySoon = 1000

// answer puts the answers of the parts into the call. Servers have each their own
// clock: of their times what was checked gets the latest, from which it would count, and
// what was taken the earliest, by which all parts find it when it is given back.
func answer(c *storage.Call, parts []*part) {
	byPrefix := make(map[string]*part, len(parts))
	c.Now = parts[0].call.Now
	for _, p := range parts {
		byPrefix[p.cells[0].Key.Prefix] = p
		if c.Op == storage.Check {
			c.Now = max(c.Now, p.call.Now)
		} else {
			c.Now = min(c.Now, p.call.Now)
		}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		granted := r.Requested
		for j := range r.Cells {
			cell := &r.Cells[j]
			p := byPrefix[cell.Key.Prefix]
			key := cell.Key
			*cell = *p.cells[0]
			cell.Key = key
			cell.Reached = c.Op != storage.Use && p.left[0] < granted
			if cell.Reached && cell.RetryAfter == 0 { // it had none then, and others have given back since
				cell.RetryAfter = retrySoon
			}
			granted = min(granted, p.left[0])
			p.cells, p.left = p.cells[1:], p.left[1:]
		}
	}
}
