package rediscall

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Bound is the context of one call of a store: the caller's, with a time limit. It
// is context.WithTimeoutCause for a third of the allocations, because nothing runs
// until somebody waits: it ends when a Wait or a Do finds that its time is up or
// that the caller has gone, and by End.
type Bound struct {
	context.Context // the caller's

	until   time.Time
	expired error // why it ended, if by its time limit
	gone    chan struct{}

	mu    sync.Mutex
	cause error // why it ended
}

// Bind gives a call a time limit. End must follow.
func Bind(ctx context.Context, limit time.Duration, expired error) *Bound {
	return &Bound{Context: ctx, until: time.Now().Add(limit), expired: expired, gone: make(chan struct{})}
}

// End ends what still waits on behalf of the call.
func (b *Bound) End() { _ = b.end(context.Canceled) }

func (b *Bound) end(cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		b.cause = cause
		close(b.gone)
	}
	return b.cause
}

// Deadline is the time limit, and not the caller's, which Wait watches: a client that
// sets it to a socket fails at that very moment, before the caller's context tells that
// it has ended, with an error that looks like the server's fault.
func (b *Bound) Deadline() (time.Time, bool) { return b.until, true }

// Done is that of context.Context.
func (b *Bound) Done() <-chan struct{} { return b.gone }

// Err is that of context.Context.
func (b *Bound) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.cause == nil:
		return nil
	case errors.Is(b.cause, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Wait waits for a result, and gives up when the time is up or the caller has gone.
func (b *Bound) Wait(result <-chan error) (err error, answered bool) {
	t := timers.Get().(*time.Timer)
	t.Reset(time.Until(b.until))
	defer func() {
		t.Stop()
		timers.Put(t)
	}()
	select {
	case err := <-result:
		if err != nil && !time.Now().Before(b.until) && IsConnection(err) { // the client watched the time too, and was first
			err = fmt.Errorf("%w: %w", b.expired, err)
		}
		return err, true
	case <-t.C:
		return b.end(b.expired), false
	case <-b.Context.Done():
		return b.end(ended(b.Context)), false
	}
}

// ended is why a context ended. Its cause is told, but is not what the error is: it can
// be any error, also one of ours, of another call.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return fmt.Errorf("%w: %v", err, cause)
}

// Sleep tells whether there was time for a pause, and the caller is still there.
func (b *Bound) Sleep(d time.Duration) bool {
	if time.Until(b.until) <= d {
		return false
	}
	t := timers.Get().(*time.Timer)
	t.Reset(d)
	defer func() {
		t.Stop()
		timers.Put(t)
	}()
	select {
	case <-t.C:
		return true
	case <-b.Context.Done():
		return false
	}
}

var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}
