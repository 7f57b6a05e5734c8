package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// Calls in the caller's pipeline stand between the caller's own commands, also in
// a transaction, and are charged once; a server that does not know the script is
// no matter.
func TestQueue(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 0)
	single, many := server.Client(t), cluster.Client(t)
	for name, pipe := range map[string]redis.Pipeliner{
		"pipeline": single.Pipeline(), "transaction": single.TxPipeline(), "cluster": many.Pipeline(),
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, single, redisstore.WithNamespace(name))
			if name == "cluster" {
				var err error
				store, err = redisstore.New(many, redisstore.WithTimeout(10*time.Second))
				require.NoError(t, err)
			}
			for strategy, make := range limitertest.Strategies {
				limiter := make(store.Queue(pipe))
				policy, err := ratelimit.NewPolicy("p", limiter, ratelimit.PerHour(3))
				require.NoError(t, err)
				key := fmt.Sprintf("{p%%3A%s}", strategy)
				for round := range int64(2) { // the queue can be used again
					before := pipe.Set(t.Context(), key, round, time.Minute)
					_, err = policy.AllowN(t.Context(), strategy, 2)
					require.ErrorIs(t, err, redisstore.ErrQueued)
					between := pipe.Incr(t.Context(), key)
					_, err = policy.Take(t.Context(), strategy, 2)
					require.ErrorIs(t, err, redisstore.ErrQueued)
					after := pipe.Incr(t.Context(), key)
					require.NoError(t, single.ScriptFlush(t.Context()).Err())
					_, err := pipe.Exec(t.Context())
					require.NoError(t, err)

					require.NoError(t, before.Err())
					require.Equal(t, round+1, between.Val())
					require.Equal(t, round+2, after.Val())
					first, err := policy.AllowN(t.Context(), strategy, 2)
					require.NoError(t, err)
					require.Equal(t, 2-2*round, first.Granted)
					second, err := policy.Take(t.Context(), strategy, 2)
					require.NoError(t, err)
					require.Equal(t, 1-round, second.Granted)
					require.Zero(t, second.Remaining)
				}
			}
		})
	}
}

// What became of a queued call is told as for any other.
func TestQueueFailures(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ReadTimeout: 200 * time.Millisecond, DialerRetries: 1})
	defer client.Close()
	store := open(t, client)
	request := ask(1, ratelimit.PerHour(9))
	require.NoError(t, client.Ping(t.Context()).Err())

	queued := func(pipe redis.Pipeliner, exec func()) error {
		limiter := ratelimit.NewSlidingWindow(store.Queue(pipe))
		_, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.ErrorIs(t, err, redisstore.ErrQueued)
		exec()
		_, err = limiter.CheckAndUseQuotas(t.Context(), request)
		return err
	}
	exec := func(pipe redis.Pipeliner) func() {
		return func() { _, _ = pipe.Exec(t.Context()) }
	}

	pipe := client.Pipeline()
	proxy.Set(redistest.SwallowReplies)
	require.ErrorIs(t, queued(pipe, exec(pipe)), ratelimit.ErrIndeterminate)
	check := ratelimit.NewSlidingWindow(store.Queue(pipe))
	_, _, err := check.CheckWithinQuotas(t.Context(), request)
	require.ErrorIs(t, err, redisstore.ErrQueued)
	exec(pipe)()
	_, _, err = check.CheckWithinQuotas(t.Context(), request)
	require.ErrorIs(t, err, ratelimit.ErrUnavailable, "a check charges nothing, whatever became of it")
	proxy.Set(redistest.Refuse)
	require.NoError(t, client.Close())
	gone := redis.NewClient(&redis.Options{Addr: proxy.Addr, DialerRetries: 1})
	defer gone.Close()
	pipe = gone.Pipeline()
	require.ErrorIs(t, queued(pipe, exec(pipe)), ratelimit.ErrUnavailable)
	proxy.Set(redistest.None)

	// A transaction whose watched key has changed was not executed.
	direct := server.Client(t)
	err = direct.Watch(t.Context(), func(tx *redis.Tx) error {
		require.NoError(t, server.Client(t).Set(t.Context(), "watched", "changed", 0).Err())
		pipe := tx.TxPipeline()
		require.ErrorIs(t, queued(pipe, exec(pipe)), ratelimit.ErrUnavailable)
		return nil
	}, "watched")
	require.NoError(t, err)

	// Answers are for the calls that were queued, in their order.
	pipe = direct.Pipeline()
	limiter := ratelimit.NewSlidingWindow(store.Queue(pipe))
	_, err = limiter.CheckAndUseQuotas(t.Context(), request)
	require.ErrorIs(t, err, redisstore.ErrQueued)
	exec(pipe)()
	_, err = limiter.CheckAndUseQuotas(t.Context(), ask(2, ratelimit.PerHour(9)))
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
	require.NoError(t, err)
	require.EqualValues(t, 7, grants[0].Remaining, "what was swallowed was charged once, what was refused never")
	require.ErrorIs(t, limiter.Reset(t.Context(), request), ratelimit.ErrMisconfigured)
}

// What a Discard took out of the pipeline is not waited for, whatever was queued after
// it, and nothing is queued twice.
func TestQueueDiscard(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	pipe := client.TxPipeline()
	limiter := ratelimit.NewSlidingWindow(store.Queue(pipe))
	request := ask(1, ratelimit.PerHour(9))
	for i, before := range []func(){func() {}, func() { pipe.Ping(t.Context()) }} {
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(2, ratelimit.PerHour(9)))
		require.ErrorIs(t, err, redisstore.ErrQueued)
		pipe.Discard()
		before()
		_, err = limiter.CheckAndUseQuotas(t.Context(), request)
		require.ErrorIs(t, err, redisstore.ErrQueued)
		_, err = pipe.Exec(t.Context())
		require.NoError(t, err)
		grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.NoError(t, err)
		require.EqualValues(t, 8-i, grants[0].Remaining)
	}
}
