package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A call is a storage.Call between the caller's requests and the storage, with
// room that is used again.
type call struct {
	storage.Call
	cells []storage.Cell
	known [maxKnown]knownQuota // by cell, of the calls before
}

const maxKnown = 16

// A knownQuota was found valid, and has been put into numbers: most callers ask
// with the same few quotas again and again, and both takes divisions.
type knownQuota struct {
	strategy *strategy
	quota    Quota
	cell     storage.Cell // without the prefix
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(op storage.Op) *call {
	c := calls.Get().(*call)
	c.begin(op)
	return c
}

// begin makes a call as if it were new, but for its requests.
func (c *call) begin(op storage.Op) { c.Op, c.OwnClock, c.Now, c.Together = op, true, 0, false }

// free gives the call back, without the prefixes in it.
func (c *call) free() {
	for i := range c.cells {
		c.cells[i].Key.Prefix = ""
	}
	c.Requests, c.cells = c.Requests[:0], c.cells[:0]
	calls.Put(c)
}

// fill checks the requests and copies them into the call.
func (c *call) fill(s *strategy, requests []RequestedQuota, opts []CallOption) error {
	if len(requests) == 0 {
		return fmt.Errorf("%w: no requests", ErrInvalidRequest)
	}
	if err := c.setOptions(opts); err != nil {
		return err
	}
	cells := 0
	for i := range requests {
		cells += len(requests[i].Quotas)
	}
	if cap(c.cells) < cells {
		c.cells = make([]storage.Cell, 0, cells)
	}
	for i := range requests {
		if err := c.fillRequest(s, i, &requests[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) setOptions(opts []CallOption) error {
	for _, o := range opts {
		c.Together = c.Together || o.together
		if !o.set {
			continue
		}
		if o.at.Before(minTime) || o.at.After(maxTime) { // of which UnixMicro may overflow
			return fmt.Errorf("%w: the time %v is not between 1970 and %d", ErrInvalidRequest, o.at, maxTime.Year())
		}
		c.OwnClock, c.Now = false, o.at.UnixMicro()
	}
	return nil
}

var minTime, maxTime = time.UnixMicro(0).UTC(), time.UnixMicro(storage.MaxTime).UTC()

func (c *call) fillRequest(s *strategy, i int, r *RequestedQuota) error {
	switch {
	case r.Prefix == "":
		return fmt.Errorf("%w: requests[%d]", ErrEmptyPrefix, i)
	case r.Requested < 0:
		return fmt.Errorf("%w: requests[%d].Requested %d is negative", ErrInvalidRequest, i, r.Requested)
	case r.Requested > storage.MaxNumber:
		return fmt.Errorf("%w: requests[%d].Requested %d is above %d", ErrInvalidRequest, i, r.Requested, int64(storage.MaxNumber))
	case len(r.Quotas) == 0:
		return fmt.Errorf("%w: requests[%d] has no Quotas", ErrInvalidRequest, i)
	}
	prefix := shortPrefix(r.Prefix)
	first := len(c.cells)
	for j := range r.Quotas {
		q := &r.Quotas[j]
		cell, err := c.know(s, q)
		if err != nil {
			return fmt.Errorf("%w (requests[%d].Quotas[%d])", err, i, j)
		}
		if !cell.Key.Counter.Value().Shared {
			cell.Key.Prefix = prefix
		}
		for k := range j {
			if other := &c.cells[first+k].Key; other.Counter == cell.Key.Counter && other.Prefix == cell.Key.Prefix {
				return fmt.Errorf("%w: requests[%d].Quotas[%d] and [%d] are the same counter: their %s", ErrInvalidRequest, i, k, j, s.identity(q))
			}
		}
	}
	c.Requests = append(c.Requests, storage.Request{
		Requested:    r.Requested,
		AllOrNothing: r.AllOrNothing,
		Cells:        c.cells[first:len(c.cells):len(c.cells)],
	})
	return nil
}

// know puts the quota of the next cell into its numbers, if it is valid.
func (c *call) know(s *strategy, q *Quota) (*storage.Cell, error) {
	i := len(c.cells)
	c.cells = append(c.cells, storage.Cell{})
	cell := &c.cells[i]
	if i < maxKnown && c.known[i].strategy == s && c.known[i].quota == *q {
		*cell = c.known[i].cell
		return cell, nil
	}
	if err := s.check(*q); err != nil {
		return nil, err
	}
	s.cell(cell, q)
	if i < maxKnown {
		c.known[i] = knownQuota{s, *q, *cell}
	}
	return cell, nil
}

// identity names what two quotas of one prefix must not have in common.
func (s *strategy) identity(q *Quota) string {
	if s.granular {
		return fmt.Sprintf("Window %v and Granularity %v are equal", q.Window, q.granularity())
	}
	return fmt.Sprintf("Window %v is equal", q.Window)
}

// fillGrants takes what a Use is to record from the grants.
func (c *call) fillGrants(requests []RequestedQuota, grants []GrantedQuota) error {
	if len(grants) != len(requests) {
		return fmt.Errorf("%w: %d grants for %d requests", ErrInvalidRequest, len(grants), len(requests))
	}
	for i := range grants {
		g := &grants[i]
		switch {
		case g.Prefix != requests[i].Prefix:
			return fmt.Errorf("%w: grants[%d].Prefix %.200q is not its request's %.200q", ErrInvalidRequest, i, g.Prefix, requests[i].Prefix)
		case g.Granted < 0 && c.OwnClock:
			return fmt.Errorf("%w: grants[%d].Granted %d gives back, and that needs the time at which the units were recorded, the grant's At", ErrInvalidRequest, i, g.Granted)
		case g.Granted > storage.MaxNumber || g.Granted < -storage.MaxNumber:
			return fmt.Errorf("%w: grants[%d].Granted %d is not between ±%d", ErrInvalidRequest, i, g.Granted, int64(storage.MaxNumber))
		}
		c.Requests[i].Granted = g.Granted
	}
	return nil
}

// room is where the grants of requests and the states of quotas go, in as few
// allocations as can be.
func room(requests, quotas int) ([]GrantedQuota, []QuotaState) {
	switch {
	case requests == 1 && quotas == 1:
		one := new(struct {
			grants [1]GrantedQuota
			states [1]QuotaState
		})
		return one.grants[:], one.states[:0]
	case requests == 1 && quotas <= 4:
		few := new(struct {
			grants [1]GrantedQuota
			states [4]QuotaState
		})
		return few.grants[:], few.states[:0]
	}
	return make([]GrantedQuota, requests), make([]QuotaState, 0, quotas)
}

// grants is the answer to the requests.
func (c *call) grants(requests []RequestedQuota) []GrantedQuota {
	grants, states := room(len(requests), len(c.cells))
	at := time.UnixMicro(c.Now)
	for i := range grants {
		r, g := &c.Requests[i], &grants[i]
		g.Prefix = requests[i].Prefix
		g.Granted = r.Granted
		g.At = at
		first := len(states)
		for j := range r.Cells {
			cell := &r.Cells[j]
			states = append(states, stateOf(cell))
			if cell.Reached {
				g.ReachedQuotas = append(g.ReachedQuotas, requests[i].Quotas[j])
			}
		}
		g.States = states[first:len(states):len(states)]
		g.Remaining, g.RetryAfter, g.ResetAfter = summary(r.Cells)
	}
	return grants
}

func stateOf(cell *storage.Cell) QuotaState {
	return QuotaState{
		Remaining:  cell.Remaining,
		RetryAfter: duration(cell.RetryAfter),
		NextAfter:  duration(cell.NextAfter),
		ResetAfter: duration(cell.ResetAfter),
	}
}

// summary is how a request stands: as its tightest quota, its slowest to have
// room again, and its slowest to be full.
func summary(cells []storage.Cell) (remaining int64, retryAfter, resetAfter time.Duration) {
	remaining = storage.MaxNumber
	for i := range cells {
		cell := &cells[i]
		remaining = min(remaining, cell.Remaining)
		retryAfter = max(retryAfter, duration(cell.RetryAfter))
		resetAfter = max(resetAfter, duration(cell.ResetAfter))
	}
	return remaining, retryAfter, resetAfter
}

func (c *call) keys() []storage.Key {
	keys := make([]storage.Key, len(c.cells))
	for i := range c.cells {
		keys[i] = c.cells[i].Key
	}
	return keys
}

const (
	maxPrefix = 200 // bytes
	digested  = "sha256:"
)

// shortPrefix bounds what a caller's prefix can cost: a long one is replaced by
// its digest, and so is one that could be taken for a digest.
func shortPrefix(prefix string) string {
	if len(prefix) <= maxPrefix && !strings.HasPrefix(prefix, digested) {
		return prefix
	}
	sum := sha256.Sum256([]byte(prefix))
	return digested + hex.EncodeToString(sum[:])
}
