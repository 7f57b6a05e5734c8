package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit/tokens"
)

// account is the only one: there is one semaphore.
const account = "workers"

// runWorker waits for a place, works, and gives it back.
func (s setup) runWorker(ctx context.Context, stdout io.Writer) error {
	pool, closePool, err := s.pool()
	if err != nil {
		return err
	}
	defer closePool()
	err = withPlace(ctx, pool, s.hold, func(ctx context.Context) error {
		fmt.Fprintln(stdout, "has a place")
		select {
		case <-time.After(s.work): // whatever the work is
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err == nil {
		fmt.Fprintln(stdout, "has given it back")
	}
	return err
}

// withPlace waits for a place and runs work while it has it. The context of the work
// ends when the place is lost: then another may have it.
func withPlace(ctx context.Context, pool *tokens.Pool, hold time.Duration, work func(context.Context) error) error {
	for {
		asked := time.Now()
		err := pool.Do(ctx, account, func(ctx context.Context, r *tokens.Reservation) error {
			return whileHeld(ctx, r, asked.Add(hold), hold, work)
		})
		full, ok := errors.AsType[*tokens.ExhaustedError](err)
		if !ok {
			return err
		}
		// A place may be given back sooner than it ends: ask now and then.
		select {
		case <-time.After(min(max(full.RetryAfter, time.Millisecond), hold/4)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errLost = errors.New("the place is lost")

// whileHeld runs work, and renews the reservation until it is done.
func whileHeld(ctx context.Context, r *tokens.Reservation, ends time.Time, hold time.Duration, work func(context.Context) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { lose(renew(ctx, r, ends, hold)) })
	defer wg.Wait()
	defer lose(nil)
	return work(ctx)
}

// renew puts the deadline off, until the context ends or the place is lost. It tries
// often enough that some may fail. By its own clock the place ends when it would if
// the server had got the call at once, which is never later than it ends in fact.
func renew(ctx context.Context, r *tokens.Reservation, ends time.Time, hold time.Duration) error {
	for {
		select {
		case <-time.After(min(hold/5, time.Until(ends))):
		case <-ctx.Done():
			return nil
		}
		asked := time.Now()
		if !asked.Before(ends) {
			return errLost
		}
		call, done := context.WithDeadline(ctx, ends)
		err := r.Renew(call)
		done()
		if err == nil {
			ends = asked.Add(hold)
		} else if errors.Is(err, tokens.ErrReservationExpired) {
			return fmt.Errorf("%w: %w", errLost, err)
		}
	}
}
