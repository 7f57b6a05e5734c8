package tokens_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
)

func TestNew(t *testing.T) {
	store, limit := tokens.NewMemory(), tokens.Fixed(1)
	for says, try := range map[string]func() (*tokens.Pool, error){
		"the name is empty":          func() (*tokens.Pool, error) { return tokens.New("", store, limit) },
		`pool "p": the store is nil`: func() (*tokens.Pool, error) { return tokens.New("p", nil, limit) },
		`pool "p": the limit is nil`: func() (*tokens.Pool, error) { return tokens.New("p", store, nil) },
		"tokens.WithHold: 0s is not": func() (*tokens.Pool, error) { return tokens.New("p", store, limit, tokens.WithHold(0)) },
		"tokens.WithHold: 999µs": func() (*tokens.Pool, error) {
			return tokens.New("p", store, limit, tokens.WithHold(999*time.Microsecond))
		},
		"tokens.WithToken: -1s is not":  func() (*tokens.Pool, error) { return tokens.New("p", store, limit, tokens.WithToken(-time.Second)) },
		"tokens.WithToken: 1.0000005s":  func() (*tokens.Pool, error) { return tokens.New("p", store, limit, tokens.WithToken(time.Second+500)) },
		"tokens.WithToken: 2562047h47m": func() (*tokens.Pool, error) { return tokens.New("p", store, limit, tokens.WithToken(1<<63-1)) },
	} {
		p, err := try()
		require.ErrorIs(t, err, tokens.ErrInvalid, says)
		require.ErrorContains(t, err, says)
		require.Nil(t, p)
	}
	for _, d := range []time.Duration{time.Millisecond, storage.MaxSpan * time.Microsecond} {
		_, err := tokens.New("p", store, limit, tokens.WithHold(d), tokens.WithToken(d))
		require.NoError(t, err)
	}
}

// refusing is a store that must not be asked.
type refusing struct{ tokens.Store }

// Bad arguments are refused before the store is asked.
func TestBadArguments(t *testing.T) {
	p, err := tokens.New("p", refusing{}, tokens.Fixed(1))
	require.NoError(t, err)
	ctx := t.Context()
	var none interface {
		Deadline() (time.Time, bool)
		Done() <-chan struct{}
		Err() error
		Value(any) any
	}
	for says, err := range map[string]error{
		`pool "p": the account is empty`: second(p.Reserve(ctx, "")),
		"the account is empty":           second(p.ReserveAs(ctx, "", "1")),
		"the reservation id is empty":    second(p.ReserveAs(ctx, "a", "")),
		"the account is empty ":          second(p.InUse(ctx, "")),
		"the account is empty  ":         second(p.List(ctx, "")),
		"the resource id is empty":       second(p.Release(ctx, "")),
		"the resource id is empty ":      second(p.Renew(ctx, "")),
		"the resource id is empty  ":     p.Reservation("a", "1").Bind(ctx, ""),
		"the account is empty   ":        p.Reservation("", "1").Bind(ctx, "i-1"),
		"the reservation id is empty ":   p.Reservation("a", "").Bind(ctx, "i-1"),
		"the account is empty    ":       p.Reservation("", "1").Cancel(ctx),
		"the reservation id is empty  ":  p.Reservation("a", "").Renew(ctx),
		"the context is nil":             second(p.Reserve(none, "a")),
		"the context is nil ":            p.Reservation("a", "1").Bind(none, "i-1"),
		"fn is nil":                      p.Do(ctx, "a", nil),
	} {
		require.ErrorIs(t, err, tokens.ErrInvalid, says)
		require.ErrorContains(t, err, trimmed(says))
	}
}

func second[T any](_ T, err error) error { return err }

func trimmed(s string) string {
	for s[len(s)-1] == ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// A limit that can't be told, or is none, is the caller's error, and takes no place.
func TestBadLimit(t *testing.T) {
	oops := errors.New("oops")
	for says, limit := range map[string]tokens.Limit{
		"limit -1 is not between 0 and 9007199254740991":               tokens.Fixed(-1),
		"limit 9007199254740992 is not between 0 and 9007199254740991": tokens.Fixed(storage.MaxNumber + 1),
		"the account's limit: oops":                                    func(context.Context, string) (int64, error) { return 1, oops },
	} {
		store := tokens.NewMemory()
		p, err := tokens.New("p", store, limit)
		require.NoError(t, err)
		_, err = p.Reserve(t.Context(), "a")
		require.ErrorContains(t, err, says)
		require.Equal(t, !errors.Is(err, oops), errors.Is(err, tokens.ErrInvalid))
		requireInUse(t, p, "a", 0)
	}
	p, err := tokens.New("p", tokens.NewMemory(), tokens.Fixed(storage.MaxNumber))
	require.NoError(t, err)
	_, err = p.Reserve(t.Context(), "a")
	require.NoError(t, err)
}

// In memory deadlines are exact.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := tokens.New("p", tokens.NewMemory(), tokens.Fixed(1), tokens.WithHold(time.Second), tokens.WithToken(3*time.Second))
		require.NoError(t, err)
		r, err := p.Reserve(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Second - 1)
		e := requireExhausted(t, p, "a")
		require.EqualValues(t, 1, e.RetryAfter)
		require.Equal(t, `tokens: no place is free in pool "p": 1 in use, limit 1, the earliest ends at 2000-01-01T00:00:01Z`, e.Error())
		time.Sleep(e.RetryAfter)
		require.ErrorIs(t, r.Bind(t.Context(), "i-1"), tokens.ErrReservationExpired)
		r, err = p.Reserve(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Second - 1)
		require.NoError(t, r.Bind(t.Context(), "i-1"))
		time.Sleep(3*time.Second - 1)
		require.Equal(t, time.Nanosecond, requireExhausted(t, p, "a").RetryAfter)
		time.Sleep(time.Nanosecond)
		released, err := p.Release(t.Context(), "i-1")
		require.NoError(t, err)
		require.False(t, released)
	})
}

// A place that Do can't give back is told of; fn's error is too.
func TestDoCannotGiveBack(t *testing.T) {
	oops := errors.New("oops")
	p, err := tokens.New("p", keeping{tokens.NewMemory()}, tokens.Fixed(1))
	require.NoError(t, err)
	err = p.Do(t.Context(), "a", func(context.Context, *tokens.Reservation) error { return oops })
	require.ErrorIs(t, err, oops)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, "a place was not given back, and ends at ")
	p, err = tokens.New("p", keeping{tokens.NewMemory()}, tokens.Fixed(1))
	require.NoError(t, err)
	err = p.Do(t.Context(), "a", func(ctx context.Context, r *tokens.Reservation) error { return r.Bind(ctx, "i-1") })
	require.NoError(t, err, "there is nothing to give back")
}

// keeping is a store that can't be reached to cancel.
type keeping struct{ tokens.Store }

func (keeping) Cancel(ctx context.Context, _ tokens.Account, _ string) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("without a bound")
	}
	return storage.ErrUnavailable
}

// A Bind whose answer was lost is not undone.
func TestDoLostBind(t *testing.T) {
	p, err := tokens.New("p", lossy{tokens.NewMemory()}, tokens.Fixed(1))
	require.NoError(t, err)
	err = p.Do(t.Context(), "a", func(ctx context.Context, r *tokens.Reservation) error { return r.Bind(ctx, "i-1") })
	require.ErrorIs(t, err, storage.ErrIndeterminate)
	require.NotContains(t, err.Error(), "not given back")
	requireInUse(t, p, "a", 1)
}

type lossy struct{ tokens.Store }

func (l lossy) Bind(ctx context.Context, a tokens.Account, reservation, resource string, d time.Duration) (tokens.Place, error) {
	_, _ = l.Store.Bind(ctx, a, reservation, resource, d)
	return tokens.Place{}, storage.ErrIndeterminate
}
