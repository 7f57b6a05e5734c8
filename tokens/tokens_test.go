package tokens_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/tokens"
)

func TestStores(t *testing.T) {
	worlds(t, map[string]func(t *testing.T, w world){
		"Life":               testLife,
		"Exhausted":          testExhausted,
		"LoweredLimit":       testLoweredLimit,
		"LimitZero":          testLimitZero,
		"EndedHold":          testEndedHold,
		"EndedToken":         testEndedToken,
		"Renew":              testRenew,
		"Repeated":           testRepeated,
		"ReserveAs":          testReserveAs,
		"ReserveAsAgain":     testReserveAsAgain,
		"AlreadyBound":       testAlreadyBound,
		"Names":              testNames,
		"Do":                 testDo,
		"EndedContext":       testEndedContext,
		"NeverAboveTheLimit": testNeverAboveTheLimit,
		"OneResource":        testOneResource,
		"Many":               testMany,
		"Model":              testModel,
	})
}

// From the reservation to the release.
func testLife(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(2))
	start := time.Now()
	r, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "a", r.Account())
	require.WithinDuration(t, start.Add(hold), r.Ends(), w.inexact)
	requireInUse(t, p, "a", 1)
	requireInUse(t, p, "b", 0)

	w.advance(30 * time.Minute)
	require.NoError(t, r.Bind(ctx, "i-1"))
	places, err := p.List(ctx, "a")
	require.NoError(t, err)
	require.Len(t, places, 1)
	require.Equal(t, r.ID(), places[0].Reservation)
	require.Equal(t, "i-1", places[0].Resource)
	require.True(t, r.Ends().Equal(places[0].Ends))
	requireInUse(t, p, "a", 1)

	w.advance(9 * time.Hour) // longer than the hold
	requireInUse(t, p, "a", 1)
	released, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.True(t, released)
	requireInUse(t, p, "a", 0)
	released, err = p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.False(t, released)
	released, err = p.Release(ctx, "i-2")
	require.NoError(t, err)
	require.False(t, released)
}

func testExhausted(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(2))
	first, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	w.advance(20 * time.Minute)
	_, err = p.Reserve(ctx, "a")
	require.NoError(t, err)

	e := requireExhausted(t, p, "a")
	require.Equal(t, []any{"a", int64(2), int64(2)}, []any{e.Account, e.InUse, e.Limit})
	require.InDelta(t, 40*time.Minute, e.RetryAfter, float64(w.inexact))
	places, err := p.List(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, first.ID(), places[0].Reservation)
	require.True(t, places[0].Ends.Equal(e.EarliestEnd))
	requireInUse(t, p, "a", 2)
	_, err = p.Reserve(ctx, "b")
	require.NoError(t, err, "another account")

	require.NoError(t, first.Cancel(ctx))
	_, err = p.Reserve(ctx, "a")
	require.NoError(t, err)
	requireExhausted(t, p, "a")
}

// What is taken stays, and nothing more is given until fewer are in use.
func testLoweredLimit(t *testing.T, w world) {
	ctx := t.Context()
	limit := int64(4)
	p := w.pool(t, func(context.Context, string) (int64, error) { return limit, nil })
	var all []*tokens.Reservation
	for range 4 {
		r, err := p.Reserve(ctx, "a")
		require.NoError(t, err)
		all = append(all, r)
		w.advance(time.Minute * 10)
	}
	limit = 2
	e := requireExhausted(t, p, "a")
	require.Equal(t, []int64{4, 2}, []int64{e.InUse, e.Limit})
	require.InDelta(t, 40*time.Minute, e.RetryAfter, float64(w.inexact), "until three have ended")
	require.NoError(t, all[0].Bind(ctx, "i-1"), "what was taken can be bound")
	require.NoError(t, all[1].Cancel(ctx))
	require.NoError(t, all[2].Cancel(ctx))
	requireExhausted(t, p, "a")
	_, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	_, err = p.Reserve(ctx, "a")
	require.NoError(t, err)
	limit = 3
	_, err = p.Reserve(ctx, "a")
	require.NoError(t, err, "raised")
	requireExhausted(t, p, "a")
}

func testLimitZero(t *testing.T, w world) {
	e := requireExhausted(t, w.pool(t, tokens.Fixed(0)), "a")
	require.Equal(t, ratelimit.Never, e.RetryAfter)
	require.Zero(t, e.InUse)
	require.True(t, e.EarliestEnd.IsZero())
	require.Contains(t, e.Error(), "its limit is 0")
}

func testEndedHold(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(1))
	r, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	w.advance(hold - 2*time.Minute)
	requireExhausted(t, p, "a")
	w.advance(2 * time.Minute)
	require.ErrorIs(t, r.Bind(ctx, "i-1"), tokens.ErrReservationExpired)
	require.ErrorIs(t, r.Renew(ctx), tokens.ErrReservationExpired)
	require.NoError(t, r.Cancel(ctx))
	requireInUse(t, p, "a", 0)

	second, err := p.Reserve(ctx, "a")
	require.NoError(t, err, "its place is back")
	requireExhausted(t, p, "a") // once
	require.ErrorIs(t, r.Bind(ctx, "i-1"), tokens.ErrReservationExpired)
	require.NoError(t, r.Cancel(ctx), "and is not the second's")
	require.NoError(t, second.Bind(ctx, "i-1"))
	released, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.True(t, released)
}

func testEndedToken(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(1))
	r := reserveAndBind(t, p, "a", "i-1")
	w.advance(token - 2*time.Minute)
	requireExhausted(t, p, "a")
	w.advance(2 * time.Minute)
	_, err := p.Renew(ctx, "i-1")
	require.ErrorIs(t, err, tokens.ErrNotBound)
	require.ErrorIs(t, r.Bind(ctx, "i-1"), tokens.ErrReservationExpired)
	requireInUse(t, p, "a", 0)
	released, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.False(t, released)
	reserveAndBind(t, p, "a", "i-1")
	requireExhausted(t, p, "a")
}

func testRenew(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(1))
	r, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	for range 5 { // far longer than a hold
		w.advance(40 * time.Minute)
		require.NoError(t, r.Renew(ctx))
	}
	requireExhausted(t, p, "a")
	require.NoError(t, r.Bind(ctx, "i-1"))
	require.ErrorIs(t, r.Renew(ctx), tokens.ErrAlreadyBound)
	for range 5 {
		w.advance(8 * time.Hour)
		ends, err := p.Renew(ctx, "i-1")
		require.NoError(t, err)
		places, err := p.List(ctx, "a")
		require.NoError(t, err)
		require.True(t, ends.Equal(places[0].Ends))
	}
	requireExhausted(t, p, "a")

	short := w.pool(t, tokens.Fixed(1)) // a deadline is never brought forward
	reserveAndBind(t, short, "a", "i-1")
	before, err := short.List(ctx, "a")
	require.NoError(t, err)
	place, err := w.store.Renew(ctx, short.Name(), "i-1", time.Minute)
	require.NoError(t, err)
	require.True(t, before[0].Ends.Equal(place.Ends))
}

// Everything twice, and the same outcome.
func testRepeated(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(3))
	r := reserveAndBind(t, p, "a", "i-1")
	ends := r.Ends()
	w.advance(time.Hour)
	require.NoError(t, r.Bind(ctx, "i-1"))
	if w.inexact == 0 {
		require.True(t, ends.Equal(r.Ends()), "a token once")
	} else {
		require.WithinDuration(t, ends.Add(-time.Hour), r.Ends(), w.inexact)
	}
	requireInUse(t, p, "a", 1)
	require.ErrorIs(t, r.Cancel(ctx), tokens.ErrAlreadyBound)
	require.ErrorIs(t, r.Cancel(ctx), tokens.ErrAlreadyBound)
	again := p.Reservation("a", r.ID())
	require.Zero(t, again.Ends())
	require.NoError(t, again.Bind(ctx, "i-1"), "from another process")
	for range 2 {
		_, err := p.Renew(ctx, "i-1")
		require.NoError(t, err)
	}
	requireInUse(t, p, "a", 1)

	other, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, other.Cancel(ctx))
	require.NoError(t, other.Cancel(ctx))
	requireInUse(t, p, "a", 1)
	require.ErrorIs(t, other.Bind(ctx, "i-2"), tokens.ErrReservationExpired)
}

func testReserveAs(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(1))
	first, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err)
	w.advance(30 * time.Minute)
	second, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err, "the same place")
	require.InDelta(t, 0, first.Ends().Sub(second.Ends()), float64(30*w.inexact))
	requireInUse(t, p, "a", 1)
	w.advance(31 * time.Minute)
	requireInUse(t, p, "a", 0) // the second did not put it off
	third, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err)
	require.NoError(t, third.Bind(ctx, "i-1"))
	fourth, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err)
	require.ErrorIs(t, fourth.Cancel(ctx), tokens.ErrAlreadyBound)
	_, err = p.ReserveAs(ctx, "a", "job 8")
	require.ErrorIs(t, err, tokens.ErrExhausted)
	_, err = p.ReserveAs(ctx, "b", "job 7")
	require.NoError(t, err, "another account")
}

// A reservation whose token has ended can be made again, and is not bound.
func testReserveAsAgain(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(2))
	first, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err)
	require.NoError(t, first.Bind(ctx, "i-1"))
	w.advance(time.Hour)
	reserveAndBind(t, p, "a", "i-2") // which lasts longer
	w.advance(token - time.Hour + 2*time.Minute)
	second, err := p.ReserveAs(ctx, "a", "job 7")
	require.NoError(t, err)
	requireInUse(t, p, "a", 2)
	require.NoError(t, second.Renew(ctx), "it is held")
	require.NoError(t, second.Bind(ctx, "i-3"))
}

func testAlreadyBound(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(3))
	first := reserveAndBind(t, p, "a", "i-1")
	require.ErrorIs(t, first.Bind(ctx, "i-2"), tokens.ErrAlreadyBound)
	released, err := p.Release(ctx, "i-2")
	require.NoError(t, err)
	require.False(t, released, "a bind that failed has bound nothing")

	for _, account := range []string{"a", "b"} {
		second, err := p.Reserve(ctx, account)
		require.NoError(t, err)
		require.ErrorIs(t, second.Bind(ctx, "i-1"), tokens.ErrAlreadyBound)
		require.NoError(t, second.Cancel(ctx), "and is still held")
	}
	elsewhere := w.pool(t, tokens.Fixed(1))
	reserveAndBind(t, elsewhere, "a", "i-1") // ids are a pool's own
	_, err = elsewhere.Release(ctx, "i-1")
	require.NoError(t, err)

	released, err = p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.True(t, released)
	reserveAndBind(t, p, "b", "i-1") // free again, for another account
	require.ErrorIs(t, first.Bind(ctx, "i-1"), tokens.ErrReservationExpired)
	w.advance(token)
	reserveAndBind(t, p, "a", "i-1") // and again once the token has ended
	requireInUse(t, p, "a", 1)
}

// Names that differ never meet, whatever is in them.
func testNames(t *testing.T, w world) {
	ctx := t.Context()
	awkward := []string{
		"a", "A", " ", "a:b", "b", "a}", "{a}", "{", "}", "%7B", "a\x00", "\x00", "\xff\xfe", "é", "e\u0301", ":", "::", "a:", ":a", "\r\n", "*", "0", "-1", "nil",
		strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 202), "sha256:", "sha256:" + strings.Repeat("0", 64),
		strings.Repeat("{", 3000), "12:abc", "a:deadlines", "a:index", "aa",
		fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Repeat("x", 201)))),
	}
	pools := []string{"a", "a:b", "a:a", "aa", "{a", "}", "sha256:", strings.Repeat("x", 200), strings.Repeat("x", 201)}
	type key struct{ pool, name string }
	var all []key
	for _, pool := range pools {
		for _, name := range awkward {
			all = append(all, key{pool, name})
		}
	}
	for _, k := range all { // one place each, and one token
		p := w.named(t, k.pool, tokens.Fixed(1))
		r, err := p.ReserveAs(ctx, k.name, "r"+k.name)
		require.NoError(t, err, "%.50q", k)
		require.NoError(t, r.Bind(ctx, k.name), "%.50q", k)
	}
	for _, k := range all {
		p := w.named(t, k.pool, tokens.Fixed(1))
		places, err := p.List(ctx, k.name)
		require.NoError(t, err)
		require.Len(t, places, 1, "%.50q", k)
		require.Equal(t, []string{"r" + k.name, k.name}, []string{places[0].Reservation, places[0].Resource})
		released, err := p.Release(ctx, k.name)
		require.NoError(t, err)
		require.True(t, released, "%.50q", k)
		requireInUse(t, p, k.name, 0)
	}
}

func testDo(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(1))
	oops := errors.New("oops")
	free := func(why string) {
		t.Helper()
		requireInUse(t, p, "a", 0, why)
	}
	err := p.Do(ctx, "a", func(ctx context.Context, r *tokens.Reservation) error {
		requireInUse(t, p, "a", 1)
		return oops
	})
	require.Same(t, oops, err)
	free("failed")
	require.NoError(t, p.Do(ctx, "a", func(context.Context, *tokens.Reservation) error { return nil }))
	free("left without binding")
	require.PanicsWithValue(t, "boom", func() {
		_ = p.Do(ctx, "a", func(context.Context, *tokens.Reservation) error { panic("boom") })
	})
	free("panicked")
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = p.Do(ctx, "a", func(context.Context, *tokens.Reservation) error { runtime.Goexit(); return nil })
	})
	wg.Wait()
	free("ended its goroutine")
	cancelled, cancel := context.WithCancel(ctx)
	err = p.Do(cancelled, "a", func(ctx context.Context, _ *tokens.Reservation) error { cancel(); return ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
	free("its context has ended")
	err = p.Do(ctx, "a", func(ctx context.Context, r *tokens.Reservation) error { return r.Cancel(ctx) })
	require.NoError(t, err)

	err = p.Do(ctx, "a", func(ctx context.Context, r *tokens.Reservation) error {
		require.NoError(t, r.Bind(ctx, "i-1"))
		return oops
	})
	require.Same(t, oops, err)
	requireInUse(t, p, "a", 1, "what is bound stays")
	err = p.Do(ctx, "a", func(context.Context, *tokens.Reservation) error { t.Error("ran without a place"); return nil })
	require.ErrorIs(t, err, tokens.ErrExhausted)
}

func testEndedContext(t *testing.T, w world) {
	p := w.pool(t, tokens.Fixed(2))
	r := reserveAndBind(t, p, "a", "i-1")
	held, err := p.Reserve(t.Context(), "a")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, e1 := p.Reserve(ctx, "b")
	_, e2 := p.Release(ctx, "i-1")
	_, e3 := p.Renew(ctx, "i-1")
	_, e4 := p.InUse(ctx, "a")
	_, e5 := p.List(ctx, "a")
	for i, err := range []error{e1, e2, e3, e4, e5, r.Bind(ctx, "i-1"), held.Cancel(ctx), held.Renew(ctx)} {
		require.ErrorIs(t, err, context.Canceled, i)
	}
	requireInUse(t, p, "a", 2)
	requireInUse(t, p, "b", 0)
}

// 32 goroutines, and never more at a time than the limit.
func testNeverAboveTheLimit(t *testing.T, w world) {
	const limit, goroutines, rounds = 5, 32, 25
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(limit))
	var now, most, given atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for round := range rounds {
				r, err := p.Reserve(ctx, "a")
				if errors.Is(err, tokens.ErrExhausted) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				given.Add(1)
				resource := fmt.Sprint(i, " ", round)
				if round%2 == 0 {
					err = r.Bind(ctx, resource)
				}
				now.Add(-1)
				if round%2 == 0 && err == nil {
					_, err = p.Release(ctx, resource)
				} else {
					err = errors.Join(err, r.Cancel(ctx))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(limit))
	require.GreaterOrEqual(t, given.Load(), int64(limit))
	requireInUse(t, p, "a", 0)
}

// Of many that bind one resource one succeeds.
func testOneResource(t *testing.T, w world) {
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(8))
	for round := range 10 {
		resource := fmt.Sprint("i-", round)
		var succeeded atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			r, err := p.Reserve(ctx, fmt.Sprint("account ", i%3))
			require.NoError(t, err)
			wg.Go(func() {
				switch err := r.Bind(ctx, resource); {
				case err == nil:
					succeeded.Add(1)
				case errors.Is(err, tokens.ErrAlreadyBound):
					if err := r.Cancel(ctx); err != nil {
						t.Error(err)
					}
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, succeeded.Load())
		released, err := p.Release(ctx, resource)
		require.NoError(t, err)
		require.True(t, released)
		for i := range 3 {
			requireInUse(t, p, fmt.Sprint("account ", i), 0)
		}
	}
}

// More holders than a Lua call takes arguments, all of which end at once.
func testMany(t *testing.T, w world) {
	const many = 8400
	ctx := t.Context()
	p := w.pool(t, tokens.Fixed(many))
	var wg sync.WaitGroup
	for i := range 7 {
		wg.Go(func() {
			for j := range many / 7 {
				if _, err := p.ReserveAs(ctx, "a", fmt.Sprint(i, " ", j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	places, err := p.List(ctx, "a")
	require.NoError(t, err)
	require.Len(t, places, many)
	for i := range places[1:] {
		require.False(t, places[i+1].Ends.Before(places[i].Ends))
	}
	requireExhausted(t, p, "a")
	w.advance(hold)
	requireInUse(t, p, "a", 0)
}

func requireInUse(t testing.TB, p *tokens.Pool, account string, want int64, why ...any) {
	t.Helper()
	n, err := p.InUse(context.Background(), account)
	require.NoError(t, err)
	require.Equal(t, want, n, why...)
}

func requireExhausted(t testing.TB, p *tokens.Pool, account string) *tokens.ExhaustedError {
	t.Helper()
	_, err := p.Reserve(context.Background(), account)
	require.ErrorIs(t, err, tokens.ErrExhausted)
	var e *tokens.ExhaustedError
	require.ErrorAs(t, err, &e)
	require.Equal(t, p.Name(), e.Pool)
	return e
}

func reserveAndBind(t testing.TB, p *tokens.Pool, account, resource string) *tokens.Reservation {
	t.Helper()
	r, err := p.Reserve(context.Background(), account)
	require.NoError(t, err)
	require.NoError(t, r.Bind(context.Background(), resource))
	return r
}
