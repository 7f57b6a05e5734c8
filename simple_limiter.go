package ratelimit

import (
	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/storage"
)

var simple = define(strategy{
	name: "simple",
	Strategy: frame.Strategy{
		Peek: simplePeek,
		Use:  simpleUse,
	},
})

// NewSimpleLimiter counts in fixed windows: window number ⌊now/W⌋ has its own
// count, which starts at nothing. It is the cheapest strategy, two numbers a
// counter, for limits where the edge does not matter.
//
// Promise: at most Limit units in each window that is aligned to a multiple of
// W since 1970; so up to twice the Limit in an interval of length W that lies
// across an edge.
func NewSimpleLimiter(store storage.Storage) Limiter { return newLimiter(store, simple) }

// The words of the state.
const (
	simpleNewest = iota // time of the newest use, µs
	simpleUsed          // units used in the window of that time
)

func simplePeek(s storage.State, c *storage.Cell, at, n int64) frame.Room {
	window := at / c.Window
	if len(s) == 0 || s[simpleNewest]/c.Window < window {
		return frame.Unused(c, n)
	}
	end := (window + 1) * c.Window
	return frame.RoomOf(c, s[simpleUsed], n, end, func(int64) int64 { return end })
}

func simpleUse(s storage.State, c *storage.Cell, at, n int64) storage.State {
	if len(s) == 0 {
		s = storage.State{0, 0}
	}
	current := s[simpleNewest]/c.Window == at/c.Window
	if n < 0 {
		if current {
			s[simpleUsed] = max(0, s[simpleUsed]+n)
		}
		return s
	}
	if !current {
		s[simpleUsed] = 0
	}
	s[simpleNewest] = at
	s[simpleUsed] += min(n, storage.MaxNumber-s[simpleUsed])
	return s
}
