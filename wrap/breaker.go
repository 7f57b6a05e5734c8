package wrap

import (
	"sync"
	"sync/atomic"
	"time"
)

// A breaker keeps calls away from what is down. It opens at the first failure;
// then one call an interval, a real caller's, passes as a probe, and the first
// probe that does not fail closes it.
type breaker struct {
	interval time.Duration
	onChange func(down bool, cause error)
	base     time.Time

	probeAt atomic.Int64  // ns since base, when the next probe passes; 0: closed
	changes atomic.Uint64 // odd: open
	probes  atomic.Int64

	mu   sync.Mutex    // of probeAt and changes together
	told chan struct{} // is closed when the newest change has been told; nil if there is none
}

// enter tells whether a call may pass, and in which state of the breaker it did.
func (b *breaker) enter() (state uint64, pass bool) {
	state = b.changes.Load()
	at := b.probeAt.Load()
	if at == 0 {
		return state, true
	}
	now := b.now()
	if now < at || !b.probeAt.CompareAndSwap(at, now+int64(b.interval)) {
		return state, false
	}
	b.probes.Add(1)
	return state, true
}

// leave takes what came of a call that passed. One that passed in another state
// tells nothing about this one: of the calls that were under way when the breaker
// opened, some may fail, or succeed, long after.
func (b *breaker) leave(state uint64, failure error) {
	if open := state%2 == 1; open == (failure != nil) {
		return // as it was
	}
	before, told, changed := b.change(state, failure != nil)
	if !changed {
		return
	}
	defer close(told)
	if before != nil {
		<-before // in order
	}
	b.onChange(failure != nil, failure)
}

// change opens or closes the breaker, if nobody else did. Who does is to tell of it
// when the change before is told, and then close told.
func (b *breaker) change(state uint64, open bool) (before, told chan struct{}, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changes.Load() != state {
		return nil, nil, false
	}
	if open {
		b.probeAt.Store(b.now() + int64(b.interval))
	} else {
		b.probeAt.Store(0)
	}
	b.changes.Add(1)
	before, b.told = b.told, make(chan struct{})
	return before, b.told, true
}

// now is never 0, which as a time to probe would be closed.
func (b *breaker) now() int64 { return int64(time.Since(b.base)) + 1 }

// wait is how long until the next probe passes; at least a ms, so that who waits
// for it does not spin.
func (b *breaker) wait() time.Duration {
	return max(time.Duration(b.probeAt.Load()-b.now()).Round(time.Microsecond), time.Millisecond)
}
