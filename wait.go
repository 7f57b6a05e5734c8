package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of Policy.Wait, WaitN and Do. A wait that its context ends returns an
// error that wraps the context's.
var (
	// ErrLimited: a quota was reached; see LimitedError.
	ErrLimited = errors.New("ratelimit: limited")
	// ErrDeadlineTooNear: the context will end before the request can be granted;
	// said at once, without waiting.
	ErrDeadlineTooNear = errors.New("ratelimit: the context's deadline is too near")
	// ErrNeverAllowed: no waiting helps; more is asked for than a quota ever has.
	ErrNeverAllowed = errors.New("ratelimit: can never be allowed")
)

// A LimitedError says that a policy refused. errors.Is(err, ErrLimited) finds it.
type LimitedError struct {
	Policy   string // the policy's name
	Key      string // not in the message: it may be personal
	Decision Decision
}

func (e *LimitedError) Error() string {
	if e.Decision.RetryAfter == Never {
		return fmt.Sprintf("%v by policy %q, for good", ErrLimited, e.Policy)
	}
	return fmt.Sprintf("%v by policy %q, retry after %v", ErrLimited, e.Policy, e.Decision.RetryAfter)
}

// Unwrap returns ErrLimited.
func (e *LimitedError) Unwrap() error { return ErrLimited }

// Wait is shorthand for WaitN of 1 unit.
func (p *Policy) Wait(ctx context.Context, key string) error { return p.WaitN(ctx, key, 1) }

// WaitN blocks until n units are granted, all at once, and records them. It
// sleeps for the RetryAfter of a refusal and asks again; of several that wait for
// one key, any may be next. It returns
//
//   - nil when the units are granted;
//   - an error that wraps the context's, when it ends;
//   - ErrDeadlineTooNear, at once, when its deadline comes before the units can;
//   - ErrNeverAllowed, at once, when n is more than a quota ever has;
//   - any error of the limiter, at once.
//
// Only a wait that returns nil has recorded anything, but for ErrIndeterminate.
func (p *Policy) WaitN(ctx context.Context, key string, n int64) error {
	for {
		d, err := p.AllowN(ctx, key, n)
		if err != nil || d.Allowed {
			return err
		}
		if d.RetryAfter == Never {
			return fmt.Errorf("%w: %d units of policy %q", ErrNeverAllowed, n, p.name)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.RetryAfter {
			return fmt.Errorf("%w: policy %q has room in %v", ErrDeadlineTooNear, p.name, d.RetryAfter)
		}
		if err := sleep(ctx, d.RetryAfter); err != nil {
			return fmt.Errorf("ratelimit: waiting for policy %q: %w", p.name, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Do checks that one unit fits, runs the work, and records the unit, as of the
// time of the check, only if the work returned nil: what fails is not charged,
// nor what panics. Refused, it returns a *LimitedError and runs nothing. Work
// that runs at the same time can pass the check together, and the limit with it:
// where that matters use Allow.
//
// An error of recording is returned also though the work was done.
func (p *Policy) Do(ctx context.Context, key string, work func(context.Context) error) error {
	d, err := p.Check(ctx, key, 1)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return &LimitedError{Policy: p.name, Key: key, Decision: d}
	}
	if err := work(ctx); err != nil {
		return err
	}
	// The work is done: it counts, whether or not the caller still waits.
	if err := p.Use(context.WithoutCancel(ctx), key, 1, At(d.At())); err != nil {
		return fmt.Errorf("the work was done, but not recorded: %w", err)
	}
	return nil
}
