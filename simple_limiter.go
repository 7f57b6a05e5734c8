package ratelimit

import (
	"slices"

	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/storage"
)

var simple = define(strategy{
	name:     "simple",
	Strategy: &fixedWindow{},
})

// NewSimpleLimiter counts in fixed windows: window number ⌊now/W⌋ has its own
// count, which starts at nothing. It is the cheapest strategy, two numbers a
// counter, for limits where the edge does not matter.
//
// Promise: at most Limit units in each window that is aligned to a multiple of
// W since 1970; so up to twice the Limit in an interval of length W that lies
// across an edge.
func NewSimpleLimiter(store storage.Storage) Limiter { return newLimiter(store, simple) }

type fixedWindow struct{}

// The words of its state.
const (
	simpleNewest = iota // start of the window of the newest use, µs
	simpleUsed          // units used in it
)

func (*fixedWindow) Count(s storage.State, c *storage.Cell, at int64) int64 {
	if len(s) == 0 || s[simpleNewest]+c.Window <= at {
		return 0
	}
	return s[simpleUsed]
}

func (*fixedWindow) Till(s storage.State, c *storage.Cell, _, _ int64) int64 {
	return s[simpleNewest] + c.Window
}

func (*fixedWindow) Use(s storage.State, c *storage.Cell, at, n int64) storage.State {
	start := at - at%c.Window
	current := len(s) > 0 && s[simpleNewest] == start
	switch {
	case n < 0 && current:
		s[simpleUsed] = max(0, s[simpleUsed]+n)
	case n < 0: // that window is over
	case current:
		s[simpleUsed] += min(n, storage.MaxNumber-s[simpleUsed])
	default:
		s = append(s[:0], start, n)
	}
	return s
}

func (*fixedWindow) Valid(s storage.State, c *storage.Cell) bool {
	return len(s) == 2 && !slices.ContainsFunc(s, frame.OutOfRange) && s[simpleNewest]%c.Window == 0
}
