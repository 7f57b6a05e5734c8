package ratelimit

import (
	"slices"

	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/storage"
)

// granules is the state that the three window strategies have in common: how
// many units were used in each granule of time that still counts, and their sum.
// Granule ⌊t/G⌋ counts during W/G granules, itself included, and late more.
// scripts/granules.lua tells the same in Lua.
//
// Because the sum is kept, a decision does not depend on how many granules a
// window has: it looks at those that have just expired, which Use then drops.
type granules struct {
	late int64
}

// The words of the state. The newest granule stands apart from the older ones,
// so that most calls touch nothing else and a counter used once has four words.
const (
	wordNewest = iota // time of the newest use, µs; the frame relies on it
	wordTotal         // units in all granules of the state
	wordNumber        // the newest granule: its number
	wordCount         // and its units
	wordHead          // only with older granules: the index of the oldest of them
	wordOlder         // from here on (number, units) of each, the oldest first
)

// span is how many granules count at a time, the current one included.
func (g granules) span(c *storage.Cell) int64 {
	return c.Window/c.Granularity + g.late
}

func (g granules) peek(s storage.State, c *storage.Cell, at, n int64) frame.Room {
	span := g.span(c)
	expired := at/c.Granularity - span // the newest granule that no longer counts
	if len(s) == 0 || s[wordNumber] <= expired {
		return frame.Unused(c, n)
	}
	used, older := s[wordTotal], olderGranules(s)
	for len(older) > 0 && older[0] <= expired {
		used -= older[1]
		older = older[2:]
	}
	resetAt := (s[wordNumber] + span) * c.Granularity
	return frame.RoomOf(c, used, n, resetAt, func(keep int64) int64 {
		left := used
		for i := 0; i < len(older); i += 2 {
			if left -= older[i+1]; left <= keep {
				return (older[i] + span) * c.Granularity
			}
		}
		return resetAt
	})
}

func (g granules) use(s storage.State, c *storage.Cell, at, n int64) storage.State {
	number := at / c.Granularity
	if n < 0 {
		return giveBack(s, number, -n)
	}
	expired := number - g.span(c)
	if len(s) == 0 || s[wordTotal] == 0 || s[wordNumber] <= expired { // nothing counts any more
		return append(s[:0], at, n, number, n)
	}
	s = dropOlder(s, expired)
	n = min(n, storage.MaxNumber-s[wordTotal])
	if s[wordNumber] < number && n > 0 {
		if len(s) == wordHead {
			s = append(s, wordOlder)
		}
		s = append(s, s[wordNumber], s[wordCount])
		s[wordNumber], s[wordCount] = number, 0
	}
	s[wordNewest] = at
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
func giveBack(s storage.State, number, n int64) storage.State {
	if len(s) == 0 || s[wordNumber] < number {
		return s
	}
	at := wordNumber
	for i := len(s) - 2; i >= len(s)-len(olderGranules(s)) && s[i] >= number; i -= 2 {
		at = i
	}
	n = min(n, s[at+1])
	s[at+1] -= n
	s[wordTotal] -= n
	if s[at+1] > 0 {
		return s
	}
	if at != wordNumber {
		s = slices.Delete(s, at, at+2)
	} else if len(s) > wordHead { // the newest of the older granules takes its place
		s[wordNumber], s[wordCount] = s[len(s)-2], s[len(s)-1]
		s = s[:len(s)-2]
	}
	if len(olderGranules(s)) == 0 {
		s = s[:min(len(s), wordHead)]
	}
	return s
}
