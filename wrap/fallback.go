package wrap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
)

const defaultProbeInterval = time.Second

// A FallbackLimiter is what Fallback makes: a Limiter that also counts its outages.
type FallbackLimiter struct {
	primary  ratelimit.Limiter
	mode     Mode
	modeOf   func(ratelimit.RequestedQuota) Mode // nil: mode
	breaker  breaker
	degraded atomic.Int64
}

// FallbackStats are what a FallbackLimiter has counted since it was made.
type FallbackStats struct {
	Down     bool  // the primary was down when it was last asked
	Outages  int64 // times that it went down
	Probes   int64 // calls that passed to it while it was down
	Degraded int64 // calls that were answered, or not made, without it
}

// A FallbackOption changes a FallbackLimiter.
type FallbackOption func(*FallbackLimiter)

// WithMode is what answers while the primary is down; Deny if not given.
func WithMode(m Mode) FallbackOption {
	return func(f *FallbackLimiter) { f.mode = m }
}

// WithModeOf chooses what answers by the request, whose Prefix or names of Quotas
// tell whose policy it is. A call of several requests is answered as a whole, by
// the strictest of their modes: Deny before Local before Allow, and of several
// Locals the first.
//
// The function is called for each request of each degraded call and each Reset, by
// many goroutines at a time.
func WithModeOf(modeOf func(ratelimit.RequestedQuota) Mode) FallbackOption {
	return func(f *FallbackLimiter) { f.modeOf = modeOf }
}

// WithProbeInterval is how often a call passes to a primary that is down, to find
// out whether it still is; 1 s if not given or not above zero.
func WithProbeInterval(d time.Duration) FallbackOption {
	return func(f *FallbackLimiter) { f.breaker.interval = d }
}

// WithOnChange is told when the primary goes down, and why, and when it is back,
// with no cause: once each, in order. The caller who found it waits for the
// function, which must not ask this limiter; the others don't.
func WithOnChange(onChange func(down bool, cause error)) FallbackOption {
	return func(f *FallbackLimiter) { f.breaker.onChange = onChange }
}

// Fallback answers when the primary can't: when a call fails with ErrUnavailable
// or ErrIndeterminate. All other errors are the caller's: bad input, also while
// the primary is down; ErrMisconfigured; and whatever a call fails with whose own
// context has ended. What only the primary's strategy refuses, such as two quotas
// of one log, or a token bucket that is too large, may go unseen while it is down.
//
// The first such failure opens a breaker. From then on the primary is not asked,
// but by one call an interval, until it answers: bad input, and calls whose context
// has ended before, do not count as one. Every answer that was given
// without it is marked Degraded.
//
//   - CheckAndUseQuotas and CheckWithinQuotas are answered by the Mode.
//   - UseQuotas is recorded by Local only; Allow drops it and returns nil, and Deny
//     returns the error.
//   - Reset always returns the error, as the primary still counts what it counted;
//     the counters of Local are forgotten in any case.
//
// Units are given back where they were counted: those of a grant that is marked
// Degraded to Local, also when the primary is back, and to nobody with the other
// modes. So hand UseQuotas the grant itself, with another Granted. Policy.Use does
// not know of the mark: do not give back what a Degraded Decision granted. What
// the primary may have taken back, as the call ended with ErrIndeterminate, Local
// does not take back too.
//
// No answer is repaired later: what was granted while the primary was down is
// not charged to it, and a call that ended with ErrIndeterminate, which may have been
// charged, is not charged again.
//
// The caller's time limit must be longer than the primary's own, such as
// redisstore.WithTimeout, or the primary is never found to be down.
func Fallback(primary ratelimit.Limiter, opts ...FallbackOption) *FallbackLimiter {
	f := &FallbackLimiter{primary: orMisconfigured(primary)}
	f.breaker.base = time.Now()
	for _, o := range opts {
		o(f)
	}
	if f.breaker.interval <= 0 {
		f.breaker.interval = defaultProbeInterval
	}
	f.breaker.interval = min(f.breaker.interval, math.MaxInt64/2) // it is added to times
	if f.breaker.onChange == nil {
		f.breaker.onChange = func(bool, error) {}
	}
	return f
}

// Stats can be asked at any time.
func (f *FallbackLimiter) Stats() FallbackStats {
	changes := f.breaker.changes.Load()
	return FallbackStats{
		Down:     changes%2 == 1,
		Outages:  int64(changes+1) / 2,
		Probes:   f.breaker.probes.Load(),
		Degraded: f.degraded.Load(),
	}
}

// CheckAndUseQuotas asks the primary, or is answered by the Mode.
func (f *FallbackLimiter) CheckAndUseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) (grants []ratelimit.GrantedQuota, err error) {
	down, err := f.try(ctx, func() error {
		grants, err = f.primary.CheckAndUseQuotas(ctx, requests, opts...)
		return err
	})
	if !down {
		return grants, err
	}
	m := f.modeFor(requests)
	grants, err = m.limiter().CheckAndUseQuotas(ctx, m.adapt(requests), opts...)
	return f.finish(m, requests, opts, grants), err
}

// CheckWithinQuotas asks the primary, or is answered by the Mode, and then the
// time is by the clock of this process.
func (f *FallbackLimiter) CheckWithinQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) (at time.Time, grants []ratelimit.GrantedQuota, err error) {
	down, err := f.try(ctx, func() error {
		at, grants, err = f.primary.CheckWithinQuotas(ctx, requests, opts...)
		return err
	})
	if !down {
		return at, grants, err
	}
	m := f.modeFor(requests)
	at, grants, err = m.limiter().CheckWithinQuotas(ctx, m.adapt(requests), opts...)
	return at, f.finish(m, requests, opts, grants), err
}

// UseQuotas records with the primary; while that is down only Local records. Units
// of Degraded grants are given back to Local, and never to the primary.
func (f *FallbackLimiter) UseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, at time.Time) error {
	degraded := slices.ContainsFunc(grants, givesBackDegraded)
	down, err := degraded, error(nil)
	if !degraded || slices.ContainsFunc(grants, usesOther) {
		down, err = f.try(ctx, func() error { return f.primary.UseQuotas(ctx, requests, without(grants, givesBackDegraded), at) })
		if !down && (err != nil || !degraded) {
			return err
		}
	}
	switch {
	case !down: // the primary has recorded the others
		grants = without(grants, usesOther)
	case errors.Is(err, ratelimit.ErrIndeterminate): // the primary may have taken back what is its own
		grants = without(grants, givesBackOther)
	}
	m := f.modeFor(requests)
	if bad := m.limiter().UseQuotas(ctx, m.adapt(requests), grants, at); bad != nil {
		return bad
	}
	if m.kind == deny {
		return err
	}
	return nil
}

func givesBackDegraded(g ratelimit.GrantedQuota) bool { return g.Granted < 0 && g.Degraded }
func givesBackOther(g ratelimit.GrantedQuota) bool    { return g.Granted < 0 && !g.Degraded }
func usesOther(g ratelimit.GrantedQuota) bool         { return g.Granted != 0 && !givesBackDegraded(g) }

// without makes those grants ones of nothing that a function names.
func without(grants []ratelimit.GrantedQuota, named func(ratelimit.GrantedQuota) bool) []ratelimit.GrantedQuota {
	if !slices.ContainsFunc(grants, named) {
		return grants
	}
	grants = slices.Clone(grants)
	for i := range grants {
		if named(grants[i]) {
			grants[i].Granted = 0
		}
	}
	return grants
}

// Reset forgets with the primary, and in Local.
func (f *FallbackLimiter) Reset(ctx context.Context, requests []ratelimit.RequestedQuota) error {
	down, err := f.try(ctx, func() error { return f.primary.Reset(ctx, requests) })
	bad := err
	if down {
		bad = unused.Reset(ctx, requests)
	}
	if isBadInput(bad) {
		return bad
	}
	for _, r := range requests {
		if m := f.modeFor([]ratelimit.RequestedQuota{r}); m.kind == local {
			_ = m.local.Reset(context.Background(), []ratelimit.RequestedQuota{r}) // also for a caller who has gone
		}
	}
	return err
}

// try asks the primary, if the breaker lets it. Down means that somebody else must
// answer, and err is why.
func (f *FallbackLimiter) try(ctx context.Context, call func() error) (down bool, err error) {
	gone := ctx != nil && ctx.Err() != nil // its call would ask nothing
	p, ok := f.breaker.enter(!gone)
	if !ok {
		f.degraded.Add(1)
		return true, errDown
	}
	err = call()
	if isBadInput(err) {
		f.breaker.giveBack(p)
		return false, err
	}
	if p.next != 0 {
		f.breaker.probes.Add(1)
	}
	switch {
	case isDown(err) && !hasEnded(ctx):
		f.breaker.leave(p, err)
		f.degraded.Add(1)
		return true, err
	case err == nil || errors.Is(err, ratelimit.ErrMisconfigured):
		f.breaker.leave(p, nil) // it answers
	}
	return false, err
}

// hasEnded tells whether a caller's context is over. Its deadline counts by itself: a
// storage that is bounded by it may fail before the context's timer has fired.
func hasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

var errDown = fmt.Errorf("%w: not asked, as it was down a moment ago", ratelimit.ErrUnavailable)

func isDown(err error) bool {
	return err != nil && (errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrIndeterminate)) &&
		!errors.Is(err, ratelimit.ErrMisconfigured)
}

// modeFor is the strictest mode of the requests.
func (f *FallbackLimiter) modeFor(requests []ratelimit.RequestedQuota) Mode {
	if f.modeOf == nil || len(requests) == 0 {
		return f.mode
	}
	m := f.modeOf(requests[0])
	for _, r := range requests[1:] {
		if other := f.modeOf(r); other.kind < m.kind {
			m = other
		}
	}
	return m
}

// finish makes the mode's answer the caller's.
func (f *FallbackLimiter) finish(m Mode, requests []ratelimit.RequestedQuota, opts []ratelimit.CallOption, grants []ratelimit.GrantedQuota) []ratelimit.GrantedQuota {
	for i := range grants {
		g := &grants[i]
		g.Degraded = true
		if m.kind == deny {
			refuse(g, &requests[i], f.breaker.wait())
			continue
		}
		m.restore(g, &requests[i])
	}
	if m.kind == local && slices.ContainsFunc(grants, isHopeless) {
		m.restoreHope(requests, grants, opts, f.breaker.wait())
	}
	return grants
}

func isHopeless(g ratelimit.GrantedQuota) bool { return g.RetryAfter == ratelimit.Never }

// refuse makes a grant one of nothing, until the next probe. No quota is reached:
// none was asked.
func refuse(g *ratelimit.GrantedQuota, r *ratelimit.RequestedQuota, wait time.Duration) {
	g.Granted, g.Remaining, g.ReachedQuotas = 0, 0, nil
	g.RetryAfter, g.ResetAfter = wait, wait
	if r.Requested == 0 {
		g.RetryAfter = 0
	}
	for i := range g.States {
		g.States[i] = ratelimit.QuotaState{RetryAfter: g.RetryAfter, NextAfter: wait, ResetAfter: wait}
	}
}
