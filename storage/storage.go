// Package storage is the contract between rate-limiting strategies and the
// places that keep their counters.
//
// A strategy is a [Script]: the same small step told in Lua, for storages that
// run scripts, and in Go, for storages that hold or load state themselves. A
// storage knows no strategy, and a strategy knows no storage. Package
// storagetest runs this contract, bullet by bullet, against any [Storage].
package storage

import (
	"context"
	"errors"
	"unique"
)

// Errors of a storage that failed. Which one it is tells the caller what became
// of the call's charge.
var (
	// ErrUnavailable: the storage could not be reached or would not serve the
	// call, and nothing was charged.
	ErrUnavailable = errors.New("ratelimit: storage unavailable, nothing charged")
	// ErrIndeterminate: the call was sent and its answer lost; it may have been
	// charged, at most once.
	ErrIndeterminate = errors.New("ratelimit: answer lost, what came of the call is unknown")
	// ErrMisconfigured: the storage answered, and asking again will not help: a
	// key of another type, a missing permission, keys that cannot be used
	// together. Nothing was charged.
	ErrMisconfigured = errors.New("ratelimit: storage misconfigured")
)

// Numbers in a call are whole and at most MaxNumber, so that Go's int64 and the
// doubles of Lua agree to the last digit. Instants and spans are in µs.
const (
	MaxNumber = 1<<53 - 1 // units
	MaxTime   = 1<<52 - 1 // µs since 1970: the year 2112
	MaxSpan   = 1 << 51   // µs: 71 years

	// Never, as a Cell's RetryAfter, says that no waiting helps.
	Never = -1
)

// A Storage runs the steps of strategies over the state of counters.
//
// A Storage must keep these promises; package storagetest has a case for each:
//
//   - Atomic: Run is one step over all cells of the call. No other call sees, or
//     comes between, a part of it. A storage that divides calls over several
//     servers says what it promises instead.
//   - Shared: cells with equal keys are one counter, within a call and between
//     calls; cells whose keys differ in any field, or any byte, never are.
//   - Same answer: Run leaves in the call exactly what Script.Step would.
//   - Clock: a call with OwnClock is stamped by the storage: Now is set, in µs
//     since 1970. Without OwnClock, Now is taken as it is.
//   - Untouched: a Check, and a call that grants nothing, change no state, but for
//     what Step repairs.
//   - Kept: a counter is kept at least until its ResetAfter has passed on the
//     storage's clock, and a good while longer if the call brought its own time,
//     which may pass more slowly. State that is older is correct, only useless.
//   - Forget: the counters of the given keys become unused; other counters stay.
//   - Failure: a call that failed with ErrUnavailable or ErrMisconfigured changed
//     nothing; one that may have been executed fails with ErrIndeterminate.
//   - Context: a context that has ended fails the call before anything is sent,
//     with an error that wraps the context's.
//   - Borrowed: the call, its slices and the bytes of its prefixes belong to the
//     caller again when Run or Forget returns. What is kept must be copied.
//   - Concurrent: all methods may be called from any number of goroutines.
type Storage interface {
	// Run executes the call and writes its answers into it.
	Run(ctx context.Context, s *Script, c *Call) error
	// Forget deletes the state of the given counters.
	Forget(ctx context.Context, keys []Key) error
}

// A Script is one strategy, told twice. Scripts are made once, by the strategy,
// and are never changed.
type Script struct {
	// Name is the strategy's name, as in Counter.Strategy.
	Name string
	// Lua is the whole script; scripts/README.md has its calling convention.
	Lua string
	// Step executes the call on the given states, one for each cell of each
	// request in order; cells with equal keys have the same *State. Call.Now must
	// be set, and there is at least one request, each with at least one cell. It
	// writes the answers into the call and reports whether any state was changed
	// and has to be kept. It may be run again on the same call, for a storage that
	// tries again.
	Step func(c *Call, states []*State) (changed bool)
	// Valid tells whether a Step may have left a state for a cell. Step trusts the states that it is
	// given: a storage that loads them from where others could write to asks this first,
	// and fails a call on a state that is not valid with ErrMisconfigured.
	Valid func(s State, c *Cell) bool
}

// A State is all that a strategy keeps for one counter: a few words, or none if
// the counter was never used. Storages copy, compare and save it, and give no
// meaning to its words.
type State []int64

// An Op is what a Call asks for.
type Op uint8

// The operations.
const (
	// CheckAndUse grants what fits and records it.
	CheckAndUse Op = iota
	// Check says what would be granted, and changes nothing.
	Check
	// Use records Request.Granted units unconditionally. A negative number gives
	// back units that were recorded at Call.Now, or later where time had gone on, never
	// more than are there.
	// RetryAfter then tells when Requested units would fit.
	Use
)

// A Call is one atomic step: what is asked, and room for the answer.
type Call struct {
	Op       Op
	OwnClock bool  // the storage stamps the call
	Now      int64 // the time of the call, µs since 1970; an answer with OwnClock
	Together bool  // of a Check or CheckAndUse: all requests are granted in full, or none
	Requests []Request
}

// A Request is granted the smallest remainder over its cells.
type Request struct {
	Requested    int64
	AllOrNothing bool
	Cells        []Cell
	// Granted is an answer, but for Use, where it says how many units to record.
	Granted int64
}

// A Key identifies a counter. All of its fields do.
type Key struct {
	Prefix string // 1 to 200 bytes of any value
	// Counter is a handle, so that to compare it, and to keep it, is cheap. It is made
	// by unique.Make; its zero value is none.
	Counter unique.Handle[Counter]
}

// A Counter is the part of a Key that many prefixes have in common.
type Counter struct {
	Strategy    string // letters, digits, '-' and '_'
	Shared      bool   // the prefix is a quota's PrefixOverride, not a request's own
	Window      int64  // µs
	Granularity int64  // µs; 0 where it makes no difference to the counter
}

// A Cell is one quota of one request: the numbers that the step judges by, and
// the answers.
type Cell struct {
	Key Key

	Limit       int64 // units a window
	Burst       int64 // units at once: a token bucket's capacity, elsewhere the limit
	Window      int64 // µs
	Granularity int64 // µs

	// The answers: how the counter stands after the call. Times are µs from
	// Call.Now.
	Remaining  int64
	Reached    bool  // this cell made the grant smaller than the cells before it left it
	RetryAfter int64 // until the request would fit here; 0 if it was granted in full, or Never
	NextAfter  int64 // until Remaining grows; 0 if it can't
	ResetAfter int64 // until the counter is as if never used
}

// Cells is the number of cells of all requests.
func (c *Call) Cells() int {
	n := 0
	for i := range c.Requests {
		n += len(c.Requests[i].Cells)
	}
	return n
}
