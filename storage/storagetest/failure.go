package storagetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// testFailure makes calls whose contexts end meanwhile, sooner and later, and
// compares what they said became of the charge with what did. It is the only way
// to make any storage fail.
func testFailure(t *test) {
	r := want("a", 1, perHour(plenty))
	script, call := callOf(simple, epoch, r)
	var granted, unclear int64
	run := func(ctx context.Context) {
		c := clone(&call)
		switch err := t.store.Run(ctx, script, &c); {
		case err == nil:
			granted++
		case errors.Is(err, storage.ErrIndeterminate):
			unclear++
		case !tellsFate(err):
			t.broken("a call whose context ended meanwhile failed with an error that does not tell what became of it: %v", err)
		}
	}
	for i := range 60 {
		run(endsAtLook(i))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*20*time.Microsecond)
		run(ctx)
		cancel()
	}
	time.Sleep(20 * time.Millisecond) // what was given up on may be executed yet
	charged := plenty - asker{t: t, limiter: simple.new(t.store)}.check(epoch, r)[0].Remaining
	if charged < granted || charged > granted+unclear {
		t.broken("of 120 calls for 1 unit, whose contexts ended meanwhile, %d were granted, %d failed with ErrIndeterminate, and %d were charged", granted, unclear, charged)
	}
}

// tellsFate is whether an error says that nothing was charged: so does that of a
// context, alone, because then nothing was sent.
func tellsFate(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrMisconfigured) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// A lookedAt context ends when it has been asked a number of times how it is.
type lookedAt struct {
	context.Context
	mu    sync.Mutex
	looks int
	done  chan struct{}
}

func endsAtLook(looks int) *lookedAt {
	return &lookedAt{Context: context.Background(), looks: looks, done: make(chan struct{})}
}

func (c *lookedAt) Done() <-chan struct{} {
	_ = c.Err()
	return c.done
}

func (c *lookedAt) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks > 0 {
		c.looks--
		return nil
	}
	select {
	case <-c.done:
	default:
		close(c.done)
	}
	return context.Canceled
}

// testContext makes every kind of call with contexts that have ended.
func testContext(t *test) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	one := []ratelimit.RequestedQuota{want("a", 2, perHour(10))}
	many := []ratelimit.RequestedQuota{want("a", 2, perHour(10), sharedAs("all", perHour(20))), want("b", 2, perHour(10))}

	a := t.asker(sliding)
	a.take(epoch, many...)
	for _, ctx := range []context.Context{canceled, late} {
		for _, requests := range [][]ratelimit.RequestedQuota{one, many} {
			script, c := callOf(sliding, epoch, requests...)
			for op := range ops {
				c.Op = storage.Op(op)
				c.Requests[0].Granted = 1 // of a Use
				t.wantEnded(ctx, describe(&c), func() error { return t.store.Run(ctx, script, &c) })
				a.check(epoch, many...)
			}
			key := c.Requests[0].Cells[0].Key
			t.wantEnded(ctx, "Forget "+describeKey(key), func() error { return t.store.Forget(ctx, []storage.Key{key}) })
			a.check(epoch, many...)
		}
	}
}

func (t *test) wantEnded(ctx context.Context, what string, call func() error) {
	t.Helper()
	switch err := call(); {
	case !errors.Is(err, ctx.Err()):
		t.fail("with a context that has ended (%v), %s\ngot the error %v, wanted one that wraps the context's", ctx.Err(), what, err)
	case errors.Is(err, storage.ErrIndeterminate):
		t.fail("with a context that has ended (%v), %s\ngot an error that says it may have been charged, %v, though nothing was to be sent", ctx.Err(), what, err)
	}
}
