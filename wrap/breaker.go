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

// A pass is what a call has that may ask.
type pass struct {
	state     uint64 // of the breaker when it came
	due, next int64  // of a probe: when it was due, and when the next one is; else 0
}

// enter tells whether a call may pass; only as a probe if the breaker is open.
func (b *breaker) enter(canProbe bool) (p pass, ok bool) {
	p.state = b.changes.Load()
	at := b.probeAt.Load()
	if at == 0 {
		return p, true
	}
	now := b.now()
	next := now + int64(b.interval)
	if !canProbe || now < at || !b.probeAt.CompareAndSwap(at, next) {
		return p, false
	}
	p.due, p.next = at, next
	return p, true
}

// giveBack makes the next call the probe in the place of one that did not reach
// what is down.
func (b *breaker) giveBack(p pass) {
	if p.next != 0 {
		b.probeAt.CompareAndSwap(p.next, p.due)
	}
}

// leave takes what came of a call that asked. One that came in another state
// tells nothing about this one: of the calls that were under way when the breaker
// opened, some may fail, or succeed, long after.
func (b *breaker) leave(p pass, failure error) {
	if open := p.state%2 == 1; open == (failure != nil) {
		return // as it was
	}
	before, told, changed := b.change(p.state, failure != nil)
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
