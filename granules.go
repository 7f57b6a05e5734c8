package ratelimit

import (
	"slices"

	"github.com/granule-limits/ratelimit/storage"
)

// granules is the state that the three window strategies have in common: how
// many units were used in each granule of time that still counts, and their sum.
// A granule is told by its start, a multiple of G; it counts for W from there, and
// late granules longer. scripts/granules.lua tells the same in Lua.
//
// Because the sum is kept, a decision does not depend on how many granules a
// window has: it looks at those that have just expired, which Use then drops.
type granules struct {
	late int64
}

// The words of the state. The newest granule stands apart from the older ones,
// so that most calls touch nothing else and a counter used once has three words.
const (
	wordNewest = iota // the newest granule: its start, µs; the frame relies on it
	wordTotal         // units in all granules of the state
	wordCount         // units in the newest granule
	wordHead          // only with older granules: the index of the oldest of them
	wordOlder         // from here on (start, units) of each, the oldest first
)

// lasts is how long a granule counts from its start.
func (g granules) lasts(c *storage.Cell) int64 {
	return c.Window + g.late*c.Granularity
}

func (g granules) count(s storage.State, c *storage.Cell, at int64) int64 {
	lasts := g.lasts(c)
	if len(s) == 0 || s[wordNewest]+lasts <= at {
		return 0
	}
	used := s[wordTotal]
	for older := olderGranules(s); len(older) > 0 && older[0]+lasts <= at; older = older[2:] {
		used -= older[1]
	}
	return used
}

func (g granules) till(s storage.State, c *storage.Cell, at, keep int64) int64 {
	lasts := g.lasts(c)
	if keep == 0 {
		return s[wordNewest] + lasts
	}
	left := s[wordTotal]
	for older := olderGranules(s); len(older) > 0; older = older[2:] {
		if left -= older[1]; left <= keep && older[0]+lasts > at {
			return older[0] + lasts
		}
	}
	return s[wordNewest] + lasts
}

func (g granules) use(s storage.State, c *storage.Cell, at, n int64) storage.State {
	start := at - at%c.Granularity
	if n < 0 {
		return giveBack(s, start, -n)
	}
	lasts := g.lasts(c)
	if len(s) == 0 || s[wordTotal] == 0 || s[wordNewest]+lasts <= at { // nothing counts any more
		return append(s[:0], start, n, n)
	}
	s = dropOlder(s, at-lasts)
	if n = min(n, storage.MaxNumber-s[wordTotal]); n == 0 {
		return s
	}
	if s[wordNewest] < start {
		if len(s) == wordHead {
			s = append(s, wordOlder)
		}
		s = append(s, s[wordNewest], s[wordCount])
		s[wordNewest], s[wordCount] = start, 0
	}
	s[wordTotal] += n
	s[wordCount] += n
	return s
}

// olderGranules is the part of a state that lists the older granules.
func olderGranules(s storage.State) []int64 {
	if len(s) <= wordHead {
		return nil
	}
	return s[s[wordHead]:]
}

// dropOlder takes the expired granules off the sum and off the list. Their room
// is used again once it is half of the list, so that dropping costs the same
// however long the list is.
func dropOlder(s storage.State, expired int64) storage.State {
	older := olderGranules(s)
	for len(older) > 0 && older[0] <= expired {
		s[wordTotal] -= older[1]
		older = older[2:]
	}
	switch gap := len(s) - len(older) - wordOlder; {
	case len(older) == 0:
		return s[:wordHead]
	case gap < len(older):
		s[wordHead] = int64(len(s) - len(older))
		return s
	default:
		s[wordHead] = wordOlder
		return append(s[:wordOlder], older...)
	}
}

// giveBack takes up to n units out of the first granule that is not before the
// given one: that is where a use at that time was recorded, or, where time had
// gone on, a granule that expires no later.
func giveBack(s storage.State, start, n int64) storage.State {
	if len(s) == 0 || s[wordNewest] < start {
		return s
	}
	count := wordCount
	for i := len(s) - 2; i >= len(s)-len(olderGranules(s)) && s[i] >= start; i -= 2 {
		count = i + 1
	}
	n = min(n, s[count])
	s[count] -= n
	s[wordTotal] -= n
	if s[count] > 0 {
		return s
	}
	if count != wordCount {
		s = slices.Delete(s, count-1, count+1)
	} else if len(s) > wordHead { // the newest of the older granules takes its place
		s[wordNewest], s[wordCount] = s[len(s)-2], s[len(s)-1]
		s = s[:len(s)-2]
	}
	if len(olderGranules(s)) == 0 {
		s = s[:min(len(s), wordHead)]
	}
	return s
}
