package wrap

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A batch is callers of one set that go together.
//
// The limiter takes the requests of a call in order, and each sees what the ones
// before it were granted: that is the dealing out. What it reports is how the
// counters stand after the call; what they had left for each caller is that and
// what those behind it were granted. The callers work that out for themselves,
// each in its own goroutine and from its own slices.
type batch struct {
	ctx     context.Context
	cancel  context.CancelFunc // nil until it is sent
	callers int                // who have not left
	asks    []ask              // in the order they came, as many for each as the set has requests
	done    chan struct{}

	// Once it is done:
	set      []ratelimit.RequestedQuota
	report   []ratelimit.GrantedQuota
	err      error
	panicked *panicked // nil: it did not
}

// A panicked is a panic of the limiter, which every caller gets. It was in no
// goroutine of theirs, so it tells where.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string {
	return fmt.Sprintf("wrap.Coalesce: the limiter panicked: %v\n\n%s", p.value, p.stack)
}

func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// An ask is one request of one caller.
type ask struct {
	units        int64
	allOrNothing bool
	gone         bool
	request      int   // of the call, in which it went
	granted      int64 // units
	later        int64 // units that the same request of later callers was granted
}

func (b *batch) join(requests []ratelimit.RequestedQuota) (first int) {
	first = len(b.asks)
	for i := range requests {
		b.asks = append(b.asks, ask{units: requests[i].Requested, allOrNothing: requests[i].AllOrNothing})
	}
	b.callers++
	return first
}

// send returns, and lets the callers go on, whatever the limiter does.
func (b *batch) send(limiter ratelimit.Limiter, set []ratelimit.RequestedQuota) {
	b.set, b.err = set, errNotReturned
	defer func() {
		if p := recover(); p != nil {
			b.panicked = &panicked{p, debug.Stack()}
		}
		b.cancel()
		close(b.done)
	}()
	b.report, b.err = limiter.CheckAndUseQuotas(b.ctx, b.requests())
	if b.err == nil {
		b.deal()
	}
}

var errNotReturned = fmt.Errorf("%w: the limiter ended its goroutine", ratelimit.ErrIndeterminate)

// requests are those of the call. Single units that follow on each other are one
// request for all of them: that is the same, and costs the storage the same for a
// thousand as for one.
func (b *batch) requests() []ratelimit.RequestedQuota {
	var requests []ratelimit.RequestedQuota
	run := false
	for i := range b.asks {
		a := &b.asks[i]
		if a.gone {
			continue
		}
		if run && b.isSingle(a) {
			requests[len(requests)-1].Requested++
		} else {
			run = b.isSingle(a)
			r := b.set[i%len(b.set)]
			r.Requested, r.AllOrNothing = a.units, a.allOrNothing && !run
			requests = append(requests, r)
		}
		a.request = len(requests) - 1
	}
	return requests
}

func (b *batch) isSingle(a *ask) bool { return a.units == 1 && len(b.set) == 1 }

// deal gives each ask its part of the grants.
func (b *batch) deal() {
	left, of := int64(0), -1 // of the grant to a run
	for i := range b.asks {
		a := &b.asks[i]
		switch {
		case a.gone:
		case b.isSingle(a):
			if a.request != of {
				left, of = b.report[a.request].Granted, a.request
			}
			a.granted = min(1, left)
			left -= a.granted
		default:
			a.granted = b.report[a.request].Granted
		}
	}
	later := make([]int64, len(b.set))
	for i := len(b.asks) - 1; i >= 0; i-- {
		a := &b.asks[i]
		a.later = later[i%len(b.set)]
		later[i%len(b.set)] += a.granted
	}
}

// answer is what a caller gets whose first ask this is.
func (b *batch) answer(first int, requests []ratelimit.RequestedQuota) []ratelimit.GrantedQuota {
	quotas := 0
	for i := range requests {
		quotas += len(requests[i].Quotas)
	}
	grants := make([]ratelimit.GrantedQuota, len(requests))
	states := make([]ratelimit.QuotaState, 0, quotas)
	for i := range requests {
		start := len(states)
		for j := range requests[i].Quotas {
			states = append(states, b.state(first, i, j))
		}
		g := &grants[i]
		g.Prefix, g.States = requests[i].Prefix, states[start:len(states):len(states)]
		g.Granted, g.Degraded = b.asks[first+i].granted, b.report[b.asks[first+i].request].Degraded
		g.At = b.report[b.asks[first+i].request].At
		b.reached(first, i, &requests[i], g)
		summarize(g)
		if g.Granted < requests[i].Requested && g.RetryAfter == 0 { // others have given back meanwhile
			g.RetryAfter = time.Millisecond // so that who waits for it does not spin
		}
	}
	return grants
}

// state is how a quota stood after the caller's requests.
func (b *batch) state(first, i, j int) ratelimit.QuotaState {
	a := &b.asks[first+i]
	st := b.report[a.request].States[j]
	st.RetryAfter = b.retryAfter(a, st, &b.set[i].Quotas[j])
	for k := range b.set {
		if shares(b.set, k, i, j) {
			st.Remaining += b.asks[first+k].later
		}
	}
	return st
}

// retryAfter is when the ask would fit a quota, as that stands after the call. Of a
// run that is reported for all of its units: for one it is when Remaining grows.
func (b *batch) retryAfter(a *ask, st ratelimit.QuotaState, q *ratelimit.Quota) time.Duration {
	switch {
	case a.granted == a.units:
		return 0
	case !b.isSingle(a):
		return st.RetryAfter
	case st.Remaining > 0:
		return 0
	case q.Limit == 0:
		return ratelimit.Never
	}
	return st.NextAfter
}

// reached finds the quotas that made a grant smaller: each had less left than the
// ones before it allowed.
func (b *batch) reached(first, i int, r *ratelimit.RequestedQuota, g *ratelimit.GrantedQuota) {
	allowed := r.Requested
	if g.Granted == allowed {
		return
	}
	for j := range r.Quotas {
		left := g.States[j].Remaining
		for k := i; k < len(b.set); k++ { // before the requests from this one on
			if shares(b.set, k, i, j) {
				left += b.asks[first+k].granted
			}
		}
		if left < allowed {
			g.ReachedQuotas = append(g.ReachedQuotas, r.Quotas[j])
			allowed = left
		}
	}
}

// summarize makes the whole of a grant from its parts.
func summarize(g *ratelimit.GrantedQuota) {
	g.Remaining = maxUnits
	for i := range g.States {
		st := &g.States[i]
		g.Remaining = min(g.Remaining, st.Remaining)
		g.RetryAfter = max(g.RetryAfter, st.RetryAfter)
		g.ResetAfter = max(g.ResetAfter, st.ResetAfter)
	}
}
