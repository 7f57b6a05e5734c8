package ratelimit

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"sort"

	"github.com/granule-limits/ratelimit/storage"
)

// A model is the library as its documentation tells it, slow and plain: every
// use is remembered with its time, nothing is summed or dropped, and the moments
// when more comes are found by trying. Both tellings of each strategy must give
// its answers, to the last digit.
//
// It knows nothing of negative uses and of clocks that were corrected.
type model struct {
	uses map[storage.Key][]use
}

func modelKnows(strategy string) bool {
	return slices.Contains([]string{"sliding-window", "list", "hash", "simple", "sliding-counter", "token-bucket"}, strategy)
}

type use struct {
	at, units int64
	cell      storage.Cell // the quota under which the units were recorded
}

func newModel() *model { return &model{uses: make(map[storage.Key][]use)} }

func (m *model) run(c *storage.Call) {
	if c.Together {
		checked := *c
		checked.Op, checked.Together = storage.Check, false
		m.run(&checked)
		if slices.ContainsFunc(c.Requests, func(r storage.Request) bool { return r.Granted < r.Requested }) {
			m.retryTogether(c)
			for i := range c.Requests {
				c.Requests[i].Granted = 0
			}
			return
		}
	}
	if c.Op == storage.Check {
		m = &model{uses: maps.Clone(m.uses)} // a check leaves no trace
	}
	used := false
	for i := range c.Requests {
		r := &c.Requests[i]
		if c.Op != storage.Use {
			m.grant(c.Now, r)
		}
		if r.Granted > 0 {
			m.record(c.Now, r)
			used = true
		}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		for j := range r.Cells {
			if c.Op == storage.Use || c.Op == storage.CheckAndUse && used {
				m.answer(c.Now, r, &r.Cells[j], r.Granted == r.Requested || c.Op == storage.Use && r.Granted > 0)
			}
		}
	}
}

// retryTogether tells when all requests of a call would fit at once.
func (m *model) retryTogether(c *storage.Call) {
	lacks := make(map[storage.Key]int64)
	for _, r := range c.Requests {
		for _, cell := range r.Cells {
			lacks[cell.Key] = min(lacks[cell.Key]+r.Requested, storage.MaxNumber)
		}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		for j := range r.Cells {
			if cell := &r.Cells[j]; r.Granted < r.Requested {
				cell.RetryAfter = m.until(cell, c.Now, lacks[cell.Key])
			}
		}
	}
}

func (m *model) grant(now int64, r *storage.Request) {
	r.Granted = r.Requested
	for j := range r.Cells {
		cell := &r.Cells[j]
		left := m.left(cell, now)
		cell.Reached = left < r.Granted
		r.Granted = min(r.Granted, left)
	}
	if r.AllOrNothing && r.Granted < r.Requested {
		r.Granted = 0
	}
	for j := range r.Cells {
		m.answer(now, r, &r.Cells[j], r.Granted == r.Requested)
	}
}

func (m *model) record(now int64, r *storage.Request) {
	for j := range r.Cells {
		cell := r.Cells[j]
		at := m.at(&cell, now)
		most := int64(storage.MaxNumber) // what a counter can hold
		if cell.Key.Counter.Value().Strategy == "token-bucket" {
			most = refillOf(cell.Window, cell.Limit).most()
		}
		units := min(r.Granted, most-m.used(&cell, at))
		if units == 0 { // it is full
			continue
		}
		m.uses[cell.Key] = append(slices.Clip(m.uses[cell.Key]), use{at, units, cell})
	}
}

// answer looks for the moments by trying every one at which something changes.
func (m *model) answer(now int64, r *storage.Request, cell *storage.Cell, granted bool) {
	cell.Remaining = m.left(cell, now)
	cell.RetryAfter, cell.NextAfter, cell.ResetAfter = 0, 0, 0
	if !granted {
		cell.RetryAfter = m.until(cell, now, r.Requested)
	}
	cell.NextAfter = max(0, m.first(cell, now, cell.Remaining+1, func(at int64) bool {
		return m.left(cell, at) > cell.Remaining || cell.Remaining == cell.Burst
	}))
	cell.ResetAfter = m.first(cell, now, cell.Burst, func(at int64) bool { return m.used(cell, at) == 0 })
}

// until is how long until so many units are left.
func (m *model) until(cell *storage.Cell, now, units int64) int64 {
	return m.first(cell, now, units, func(at int64) bool { return m.left(cell, at) >= units })
}

// first is how long until something holds, which begins when so many units are left.
func (m *model) first(cell *storage.Cell, now, units int64, holds func(at int64) bool) int64 {
	if holds(now) {
		return 0
	}
	for _, at := range m.moments(cell, units) {
		if at > now && holds(at) {
			return at - now
		}
	}
	return storage.Never
}

// at is the time at which a call is judged in a counter. Time goes back for a
// sliding counter, but not out of the window of the newest use.
func (m *model) at(cell *storage.Cell, now int64) int64 {
	for _, u := range m.uses[cell.Key] {
		if cell.Key.Counter.Value().Strategy == "sliding-counter" {
			u.at -= u.at % cell.Window
		}
		now = max(now, u.at)
	}
	return now
}

func (m *model) left(cell *storage.Cell, at int64) int64 {
	return max(0, cell.Burst-m.used(cell, at))
}

// used is how many units count at a time.
func (m *model) used(cell *storage.Cell, at int64) int64 {
	at = m.at(cell, at)
	switch cell.Key.Counter.Value().Strategy {
	case "token-bucket":
		return m.missing(cell, at)
	case "sliding-counter":
		return m.weighted(cell, at)
	}
	used := int64(0)
	for _, u := range m.uses[cell.Key] {
		if at < ends(cell, u.at) {
			used += u.units
		}
	}
	return used
}

// ends is when a unit used at t counts no more, by the definition of each
// strategy.
func ends(cell *storage.Cell, t int64) int64 {
	w, g := cell.Window, cell.Granularity
	switch cell.Key.Counter.Value().Strategy {
	case "sliding-window":
		return (t/g + w/g) * g
	case "hash":
		return (t/g + w/g + 1) * g
	case "list":
		return t + w
	case "simple":
		return (t/w + 1) * w
	}
	panic("the model does not know " + cell.Key.Counter.Value().Strategy)
}

// moments are all times at which the answer for a counter may change, in order;
// of a bucket and a sliding counter, which change all the time, those at which
// the given units are left or all are.
func (m *model) moments(cell *storage.Cell, units ...int64) []int64 {
	var moments []int64
	switch cell.Key.Counter.Value().Strategy {
	case "sliding-counter":
		for _, n := range append(units, cell.Burst) {
			moments = append(moments, m.leaves(cell, n))
		}
	case "token-bucket":
		newest := m.at(cell, 0)
		level := m.level(cell, newest)
		for _, n := range append(units, cell.Burst) {
			moments = append(moments, m.reaches(cell, newest, level, n))
		}
	default:
		for _, u := range m.uses[cell.Key] {
			moments = append(moments, ends(cell, u.at))
		}
	}
	slices.Sort(moments)
	return moments
}

// The sliding counter: units count in full until their window ends, and then for
// the part of it that a window which ends now still covers.

func (m *model) weighted(cell *storage.Cell, at int64) int64 {
	window := at / cell.Window
	current, previous := new(big.Rat), new(big.Rat)
	for _, u := range m.uses[cell.Key] {
		switch units := big.NewRat(u.units, 1); u.at / cell.Window {
		case window:
			current.Add(current, units)
		case window - 1:
			previous.Add(previous, units)
		}
	}
	previous.Mul(previous, big.NewRat(cell.Window-at%cell.Window, cell.Window))
	return min(ceil(current)+ceil(previous), storage.MaxNumber)
}

// leaves is the first µs at which n units are left of a counter that nobody uses
// any more, found by halving: what counts only falls.
func (m *model) leaves(cell *storage.Cell, n int64) int64 {
	newest := m.at(cell, 0)
	wait := sort.Search(int(2*cell.Window), func(wait int) bool {
		return m.used(cell, newest+int64(wait)) <= cell.Burst-n
	})
	return newest + int64(wait)
}

// The bucket: the level is a fraction, at most the burst, below zero in debt.

// level is what is in the bucket at a time that is not before the newest use.
// Units that were missing when the limit changed are counted whole, and refilled
// at the new pace.
func (m *model) level(cell *storage.Cell, at int64) *big.Rat {
	missing := new(big.Rat)
	rate, last := int64(0), int64(0)
	elapse := func(to, rate int64) {
		missing.Sub(missing, big.NewRat(1, 1).Mul(big.NewRat(to-last, 1), big.NewRat(rate, cell.Window)))
		if missing.Sign() < 0 {
			missing.SetInt64(0)
		}
		last = to
	}
	change := func(to int64) {
		if rate != 0 && rate != to {
			missing.SetInt64(min(ceil(missing), refillOf(cell.Window, to).most()))
		}
		rate = to
	}
	for _, u := range m.uses[cell.Key] {
		change(max(u.cell.Limit, 1))
		elapse(u.at, rate)
		missing.Add(missing, big.NewRat(u.units, 1))
	}
	change(max(cell.Limit, 1))
	if len(m.uses[cell.Key]) > 0 {
		elapse(at, rate)
	}
	return missing.Neg(missing)
}

func (m *model) missing(cell *storage.Cell, at int64) int64 {
	return ceil(new(big.Rat).Neg(m.level(cell, at)))
}

// reaches is the first whole µs at which a bucket that at a time had this level
// holds n units.
func (m *model) reaches(cell *storage.Cell, at int64, level *big.Rat, n int64) int64 {
	lack := new(big.Rat).Sub(big.NewRat(n-cell.Burst, 1), level)
	wait := lack.Mul(lack, big.NewRat(cell.Window, max(cell.Limit, 1)))
	if wait.Sign() <= 0 {
		return at
	}
	return at + min(ceil(wait), storage.MaxNumber)
}

func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return q.Int64()
}
