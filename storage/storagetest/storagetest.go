// Package storagetest tests a [storage.Storage] against its contract. [Run] has a
// case for each promise of the contract, under the promise's name:
//
//   - Atomic: while many goroutines charge two prefixes in one call, no Check of
//     both ever sees them differ.
//   - Shared: equal keys are one counter, within a call and between calls. Keys
//     that differ in one field, or in one awkward byte of the prefix, never meet.
//   - SameAnswer: awkward calls of every strategy, some of them at random, are
//     answered to the last number as by Script.Step over a map.
//   - Clock: a call with OwnClock is stamped with the time of day, in µs, never
//     backwards; a call that brings its time, from 1970 to 2112, keeps it.
//   - Untouched: after a Check, or a call that was granted nothing, counters stand
//     as before.
//   - Kept: counters outlast a pause much shorter than their ResetAfter. The clock
//     of a call that brings its own time may stand still meanwhile: its counters
//     outlast the pause however soon their ResetAfter is.
//   - Forget: forgotten counters are as if never used, and the others as before.
//   - Failure: where contexts end during calls, a counter has at least what was
//     granted, and at most what failed with ErrIndeterminate besides.
//   - Context: with a context that has ended nothing is done, and the error says
//     why.
//   - Borrowed: the call, its slices and the bytes of its prefixes are overwritten
//     as soon as it returns, and the counters stay.
//   - Concurrent: 16 goroutines are granted the limit, to the unit.
//
// The cases use the six strategies through their public constructors and, but
// for the sake of the clock, bring their own times: nearly nothing sleeps. A
// storage whose calls get into each other's way may fail some with
// [storage.ErrUnavailable]; the cases with many goroutines then ask again, a
// bounded number of times. Run the suite with -race: it is a part of the test.
package storagetest

import (
	"fmt"
	"testing"

	"github.com/granule-limits/ratelimit/storage"
)

// Run tests the storages that open returns. Each case, and some parts of cases,
// open one, and want it empty and for themselves; open can close it in a
// t.Cleanup.
//
//	func TestStorage(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Storage { return mystore.New() })
//	}
func Run(t *testing.T, open func(t *testing.T) storage.Storage) {
	t.Helper()
	for i := range promises {
		p := &promises[i]
		t.Run(p.name, func(t *testing.T) { p.test(newTest(t, p, open)) })
	}
}

// A promise is one bullet of the contract: its name and text in the doc comment
// of storage.Storage, and its case.
type promise struct {
	name, text string
	test       func(t *test)
}

var promises = []promise{
	{"Atomic", "Run is one step over all cells of the call. No other call sees, or comes between, a part of it. A storage that divides calls over several servers says what it promises instead.", testAtomic},
	{"Shared", "cells with equal keys are one counter, within a call and between calls; cells whose keys differ in any field, or any byte, never are.", testShared},
	{"SameAnswer", "Run leaves in the call exactly what Script.Step would.", testSameAnswer},
	{"Clock", "a call with OwnClock is stamped by the storage: Now is set, in µs since 1970. Without OwnClock, Now is taken as it is.", testClock},
	{"Untouched", "a Check, and a call that grants nothing, change no state, but for what Step repairs.", testUntouched},
	{"Kept", "a counter is kept at least until its ResetAfter has passed on the storage's clock, and a good while longer if the call brought its own time, which may pass more slowly. State that is older is correct, only useless.", testKept},
	{"Forget", "the counters of the given keys become unused; other counters stay.", testForget},
	{"Failure", "a call that failed with ErrUnavailable or ErrMisconfigured changed nothing; one that may have been executed fails with ErrIndeterminate.", testFailure},
	{"Context", "a context that has ended fails the call before anything is sent, with an error that wraps the context's.", testContext},
	{"Borrowed", "the call, its slices and the bytes of its prefixes belong to the caller again when Run or Forget returns. What is kept must be copied.", testBorrowed},
	{"Concurrent", "all methods may be called from any number of goroutines.", testConcurrent},
}

// A test is a case at work on a storage: a testing.T that knows which promise it
// is about.
type test struct {
	*testing.T
	promise *promise
	open    func(t *testing.T) storage.Storage
	store   storage.Storage
	twin    *twin // of the store
}

func newTest(t *testing.T, p *promise, open func(t *testing.T) storage.Storage) *test {
	sub := &test{T: t, promise: p, open: open, store: open(t)}
	sub.twin = &twin{model: *newModel(), t: sub}
	return sub
}

// part runs a part of the case under a name of its own, on a storage of its own.
func (t *test) part(name string, f func(t *test)) {
	t.Run(name, func(sub *testing.T) { f(newTest(sub, t.promise, t.open)) })
}

// broken reports that the promise is not kept. Unlike fail it may be called from
// any goroutine.
func (t *test) broken(format string, args ...any) {
	t.Helper()
	t.Errorf("%s: %s\nBut %s", t.promise.name, t.promise.text, fmt.Sprintf(format, args...))
}

// fail reports that the promise is not kept, and ends the case.
func (t *test) fail(format string, args ...any) {
	t.Helper()
	t.broken(format, args...)
	t.FailNow()
}

// must ends the case if a call failed that had no reason to.
func (t *test) must(err error) {
	t.Helper()
	if err != nil {
		t.fail("a call failed: %v", err)
	}
}
