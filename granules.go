package ratelimit

import (
	"slices"

	"github.com/granule-limits/ratelimit/storage"
)

// granules is the state that the three window strategies have in common: which
// granules of time have units that still count, and how many. A granule is told by
// its start, a multiple of G; it counts for W from there, and late granules longer.
// scripts/granules.lua tells the same in Lua.
//
// Units are only counted up: the state knows how many were used since it began, how
// many of those no longer count, and, in a log, how many it had been at the end of
// each granule. So a decision does not depend on how many granules a window has; and
// as starts and units both rise in the log, what is looked for in it is found by
// bisection.
type granules struct {
	late int64
}

// The words of the state. The newest granule stands apart from the log, so that
// most calls touch nothing else and a counter used once has three words.
const (
	wordNewest = iota // start of the newest granule, µs; the frame relies on it
	wordUsed          // units used since the state began
	wordGone          // those of them that no longer count
	wordHead          // only with a log: the index of its first word; negative if the newest granule is empty
	wordLog           // from here on the entries, one for each older granule, the oldest first
)

// The words of an entry of the log.
const (
	entryStart = iota // of the granule, µs
	entryUsed         // units used up to its end
	entryWords
)

// lasts is how long a granule counts from its start.
func (g *granules) lasts(c *storage.Cell) int64 {
	return c.Window + g.late*c.Granularity
}

func (g *granules) Count(s storage.State, c *storage.Cell, at int64) int64 {
	lasts := g.lasts(c)
	if len(s) == 0 || s[wordNewest]+lasts <= at {
		return 0
	}
	if log := logOf(s); len(log) > 0 && log[entryStart]+lasts <= at {
		_, gone := find(s, entryStart, at-lasts+1)
		return s[wordUsed] - gone
	}
	return s[wordUsed] - s[wordGone]
}

func (g *granules) Till(s storage.State, c *storage.Cell, _, keep int64) int64 {
	start := s[wordNewest]
	if log := logOf(s); len(log) > 0 && (keep > 0 || newestIsEmpty(s)) {
		if i, _ := find(s, entryUsed, s[wordUsed]-keep); i < len(log) {
			start = log[i+entryStart]
		}
	}
	return start + g.lasts(c)
}

func (g *granules) Use(s storage.State, c *storage.Cell, at, n int64) storage.State {
	start, lasts := at-at%c.Granularity, g.lasts(c)
	switch {
	case n < 0 && (len(s) == 0 || start+lasts <= s[wordNewest]): // those units no longer count
		return s
	case n < 0:
		return giveBack(s, start, -n)
	case len(s) == 0 || s[wordUsed] == s[wordGone] || s[wordNewest]+lasts <= at: // nothing counts any more
		return append(s[:0], start, n, 0)
	}
	empty := newestIsEmpty(s)
	if log := logOf(s); len(log) > 0 && log[entryStart]+lasts <= at {
		s = dropExpired(s, at-lasts)
	}
	if n > storage.MaxNumber-s[wordUsed] {
		lower(s, 0, s[wordGone])
		s[wordGone] = 0
		n = min(n, storage.MaxNumber-s[wordUsed])
	}
	switch {
	case n == 0: // it is full
	case empty: // it moves on
		s[wordNewest] = start
		if len(s) > wordHead {
			s[wordHead] = -s[wordHead]
		}
	case s[wordNewest] < start: // the newest granule becomes the last of the log
		if len(s) == wordHead {
			s = append(s, wordLog)
		}
		s = append(s, s[wordNewest], s[wordUsed])
		s[wordNewest] = start
	}
	s[wordUsed] += n
	return s
}

func (*granules) Valid(s storage.State, c *storage.Cell) bool {
	if len(s) < wordHead || s[wordNewest]%c.Granularity != 0 {
		return false
	}
	if len(s) > wordHead {
		head, end := max(s[wordHead], -s[wordHead]), int64(len(s))
		if head < wordLog || head > end || (end-head)%entryWords != 0 {
			return false
		}
	}
	start, used := int64(-1), s[wordGone]
	for log := logOf(s); len(log) > 0; log = log[entryWords:] { // both rise
		if log[entryStart] <= start || log[entryUsed] < used || log[entryStart]%c.Granularity != 0 {
			return false
		}
		start, used = log[entryStart], log[entryUsed]
	}
	return start < s[wordNewest] && used <= s[wordUsed] && s[wordNewest] <= storage.MaxTime && s[wordUsed] <= storage.MaxNumber && s[wordGone] >= 0
}

// logOf is the part of a state that is its log.
func logOf(s storage.State) []int64 {
	if len(s) <= wordHead {
		return nil
	}
	return s[max(s[wordHead], -s[wordHead]):]
}

// newestIsEmpty tells whether all units of the newest granule were given back, but not
// those of the log before it. The granule stays, as time does not go back.
func newestIsEmpty(s storage.State) bool {
	return len(s) > wordHead && s[wordHead] < 0
}

// find is where in the log the first entry begins of which a word is at least so
// much, and how many units were used before its granule. After the log comes the
// newest granule. What is near the log's beginning is found soonest.
func find(s storage.State, word int, least int64) (i int, before int64) {
	log := logOf(s)
	low, high, step := 0, len(log)/entryWords, 0
	before = s[wordGone]
	for low < high {
		i := low + min(step, (high-low)/2)
		if entry := log[i*entryWords:]; entry[word] < least {
			low, before, step = i+1, entry[entryUsed], 2*step+1
		} else {
			high = i
		}
	}
	return low * entryWords, before
}

// dropExpired takes the granules until a time off the log. Their room is used again
// once it is half of the log, so that dropping costs the same however long that is.
func dropExpired(s storage.State, until int64) storage.State {
	i, gone := find(s, entryStart, until+1)
	s[wordGone] = gone
	log := logOf(s)[i:]
	switch gap := len(s) - len(log) - wordLog; {
	case len(log) == 0:
		return s[:wordHead]
	case gap < len(log):
		setHead(s, int64(len(s)-len(log)))
		return s
	default:
		setHead(s, wordLog)
		return append(s[:wordLog], log...)
	}
}

func setHead(s storage.State, head int64) {
	if newestIsEmpty(s) {
		head = -head
	}
	s[wordHead] = head
}

// lower makes the units up to the end of each granule n less, from one of the log on.
func lower(s storage.State, from int, n int64) {
	s[wordUsed] -= n
	log := logOf(s)
	for i := from; i < len(log); i += entryWords {
		log[i+entryUsed] -= n
	}
}

// giveBack takes up to n units out of the granules from the given one on, the first
// ones first. That is where a use at that time was recorded, or in a later one, where time
// had gone on: then what is taken instead expires no later.
func giveBack(s storage.State, given, n int64) storage.State {
	if s[wordNewest] < given {
		return s
	}
	i, before := find(s, entryStart, given)
	if n = min(n, s[wordUsed]-before); n == 0 {
		return s
	}
	log := logOf(s)
	head := len(s) - len(log)
	last, _ := find(s, entryUsed, before+n) // has the last of them
	lower(s, last, n)
	switch {
	case last < len(log) && log[last+entryUsed] == before: // it had no more
		last += entryWords
	case last == len(log) && s[wordUsed] == before && i > 0 && !newestIsEmpty(s):
		s[wordHead] = -s[wordHead]
	}
	s = slices.Delete(s, head+i, head+last)
	if len(logOf(s)) == 0 {
		s = s[:min(len(s), wordHead)]
	}
	return s
}
