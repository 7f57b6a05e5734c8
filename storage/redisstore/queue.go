package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/storage"
)

// ErrQueued is what a call on a Queue returns while it waits for the pipeline to
// be executed.
var ErrQueued = errors.New("redisstore: queued: call again after Exec for the answer")

// A Queue is a Storage that puts calls into a pipeline of the caller's, between
// the caller's own commands; in a TxPipeline they are a part of the transaction.
// Every call is made twice, once to queue it, and again after Exec for its answer:
//
//	pipe := client.TxPipeline()
//	limiter := ratelimit.NewSlidingWindow(store.Queue(pipe))
//	limiter.CheckAndUseQuotas(ctx, requests) // ErrQueued
//	pipe.Incr(ctx, "visits")
//	pipe.Exec(ctx)
//	grants, err := limiter.CheckAndUseQuotas(ctx, requests)
//
// Several calls are queued, and answered, in the same order. When all are answered
// the queue can be used again. A Discard takes them out of the queue, too. Their
// errors are those of a Store: Exec's own error need not be looked at for them.
//
// The script itself is sent each time, because a pipeline cannot mend a NOSCRIPT.
// The time limit is that of Exec. On a cluster all counters of a call must be of
// one prefix. A Queue is for one goroutine at a time, as its pipeline is.
type Queue struct {
	store *Store
	pipe  redis.Pipeliner
	calls []*command
}

var _ storage.Storage = (*Queue)(nil)

// Queue makes a Queue on a pipeline.
func (s *Store) Queue(pipe redis.Pipeliner) *Queue { return &Queue{store: s, pipe: pipe} }

// Run queues a call, or answers it if it was queued and executed.
func (q *Queue) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if err := q.store.check(ctx); err != nil {
		return err
	}
	q.dropDiscarded()
	cmd := newCommand(ctx, eval, &script.Lua, q.store.keys(c), c)
	if len(q.calls) == 0 || !q.calls[0].executed() {
		q.calls = append(q.calls, cmd)
		_ = q.pipe.Process(ctx, cmd) // which only puts it in its place
		return ErrQueued
	}
	done := q.calls[0]
	if !done.asks(cmd) {
		return fmt.Errorf("%w: redisstore.Queue: this call is not the one that was queued in its place", storage.ErrMisconfigured)
	}
	q.calls = q.calls[1:]
	if err := done.Err(); err != nil {
		return failure(outcomeOf(err, &done.ticket).of(c.Op), err)
	}
	return decode(done.Val(), c)
}

// dropDiscarded drops the calls that will not be executed any more, as a Discard took
// them out of the pipeline.
func (q *Queue) dropDiscarded() {
	switch executed := slices.IndexFunc(q.calls, (*command).executed); {
	case executed > 0:
		q.calls = q.calls[executed:]
	case executed < 0 && q.pipe.Len() == 0:
		q.calls = nil
	}
}

// Forget is not for pipelines: use the Store.
func (q *Queue) Forget(context.Context, []storage.Key) error {
	return fmt.Errorf("%w: redisstore.Queue cannot reset counters: use a limiter on the Store itself", storage.ErrMisconfigured)
}

// executed tells whether Exec has been called, whatever came of it.
func (c *command) executed() bool {
	return c.ticket.state.Load() != waiting || c.Err() != nil
}

// asks tells whether two commands ask the same.
func (c *command) asks(other *command) bool {
	return slices.EqualFunc(c.Args(), other.Args(), func(a, b any) bool {
		switch a := a.(type) {
		case *int64:
			b, ok := b.(*int64)
			return ok && *a == *b
		case *string:
			b, ok := b.(*string)
			return ok && *a == *b
		case *ticket:
			b, ok := b.(*ticket)
			return ok && string(a.text) == string(b.text)
		}
		return a == b
	})
}
