package rediscall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var errExpired = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// A process is a client that does what a test says.
type process func(ctx context.Context) error

func (p process) Process(ctx context.Context, _ redis.Cmder) error { return p(ctx) }

func TestDoGivesTheAnswer(t *testing.T) {
	b := Bind(t.Context(), time.Minute, errExpired)
	defer b.End()
	answer := errors.New("the answer")
	require.Equal(t, answer, Do(b, process(func(context.Context) error { return answer }), nil))
	require.NoError(t, b.Err(), "an answer does not end the call")
}

func TestDoEndsInTime(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := Bind(t.Context(), time.Millisecond, errExpired)
	defer b.End()
	err := Do(b, process(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}), nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, context.DeadlineExceeded, b.Err())
}

// A client that watches the time too, and finds first that it is up, tells no more
// than that: the error is of the context, whoever was first, and still the client's.
func TestDoClientTimesOut(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for range 100 {
		b := Bind(t.Context(), 0, errExpired)
		result := make(chan error, 1)
		result <- dial
		err, answered := b.Wait(result)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, answered, errors.Is(err, dial))
		b.End()
	}
	b := Bind(t.Context(), time.Minute, errExpired)
	defer b.End()
	require.Equal(t, dial, Do(b, process(func(context.Context) error { return dial }), nil), "a time limit of the client's own")
}

func TestDoEndsWithTheCaller(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	b := Bind(ctx, time.Minute, errExpired)
	defer b.End()
	err := Do(b, process(func(ctx context.Context) error {
		cancel(gone)
		<-ctx.Done()
		return nil
	}), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, gone)
	require.ErrorContains(t, err, "gone")
	require.Equal(t, context.Canceled, b.Err())
}

// An answer that comes after its call has ended is nobody else's.
func TestDoLateAnswer(t *testing.T) {
	late := make(chan struct{})
	var wg sync.WaitGroup
	for range 10 {
		b := Bind(t.Context(), time.Millisecond, errExpired)
		wg.Add(1)
		err := Do(b, process(func(context.Context) error {
			defer wg.Done()
			<-late
			return errors.New("late")
		}), nil)
		require.Equal(t, errExpired, err)
		b.End()
	}
	close(late)
	for range 100 {
		b := Bind(t.Context(), time.Minute, errExpired)
		require.NoError(t, Do(b, process(func(context.Context) error { return nil }), nil))
		b.End()
	}
	wg.Wait()
}

func TestBoundIsAContext(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, 1), time.Now().Add(time.Hour))
	defer cancel()
	b := Bind(parent, 2*time.Hour, errExpired)
	deadline, ok := b.Deadline()
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), deadline, time.Second, "the caller's is not handed on")
	require.Equal(t, 1, b.Value(key{}))

	child, cancelChild := context.WithCancel(b)
	defer cancelChild()
	require.NoError(t, child.Err())
	b.End()
	<-child.Done()
	require.Equal(t, context.Canceled, b.Err())
	b.End() // once more does nothing
}

func TestSleep(t *testing.T) {
	b := Bind(t.Context(), time.Minute, errExpired)
	require.True(t, b.Sleep(time.Microsecond))
	require.False(t, b.Sleep(time.Hour), "there is no time left after it")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, Bind(ctx, time.Hour, errExpired).Sleep(time.Minute), "the caller has gone")
}
