package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
)

// The workers are processes: this one, run again.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") {
		main()
		return
	}
	os.Exit(m.Run())
}

// One is killed, the others get a place each, and in the end all are back.
func TestRun(t *testing.T) {
	s := setup{redis: redistest.Start(t).Addr, name: "test", places: 2, hold: 2 * time.Second, work: 3 * time.Second}
	var stdout bytes.Buffer
	if err := s.run(t.Context(), &stdout, 3); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + stdout.String())
	for what, want := range map[string]int{"has a place": 3, "is killed": 1, "has given it back": 2, "0 places are taken": 1} {
		if n := strings.Count(stdout.String(), what); n != want {
			t.Errorf("%d times %q, want %d", n, what, want)
		}
	}
}

func TestNoRedis(t *testing.T) {
	s := setup{redis: "127.0.0.1:1", name: "test", places: 1, hold: time.Second, work: time.Millisecond}
	if err := s.runWorker(t.Context(), io.Discard); err == nil {
		t.Error("no error")
	}
}

func newPool(t *testing.T, store tokens.Store, hold time.Duration) *tokens.Pool {
	pool, err := tokens.New("test", store, tokens.Fixed(1), tokens.WithHold(hold))
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// Who works for longer than the place is held keeps it, and who waits gets it as soon
// as it is given back.
func TestRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, tokens.NewMemory(), time.Second)
		start := time.Now()
		done := make(chan error)
		go func() {
			done <- withPlace(t.Context(), pool, time.Second, func(context.Context) error {
				time.Sleep(time.Minute)
				return nil
			})
		}()
		synctest.Wait()
		var waited time.Duration
		go func() {
			done <- withPlace(t.Context(), pool, time.Second, func(context.Context) error {
				waited = time.Since(start)
				return nil
			})
		}()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		if waited < time.Minute || waited > time.Minute+time.Second {
			t.Errorf("waited %v, want a minute", waited)
		}
	})
}

// deaf is a store that can't be reached to renew after a while.
type deaf struct {
	tokens.Store
	after time.Time
}

func (d deaf) RenewHold(ctx context.Context, a tokens.Account, reservation string, hold time.Duration) (tokens.Place, error) {
	if time.Now().After(d.after) {
		return tokens.Place{}, errors.New("down")
	}
	return d.Store.RenewHold(ctx, a, reservation, hold)
}

// Who can't renew stops when another can get the place, to the moment.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		pool := newPool(t, deaf{tokens.NewMemory(), start.Add(10 * time.Second)}, time.Second)
		err := withPlace(t.Context(), pool, time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, errLost) {
			t.Error(err)
		}
		if took := time.Since(start); took != 11*time.Second {
			t.Errorf("stopped after %v", took)
		}
		if n, err := pool.InUse(t.Context(), account); n != 0 || err != nil {
			t.Error(n, err)
		}
	})
}

// Who waits can leave.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, tokens.NewMemory(), time.Hour)
		if _, err := pool.Reserve(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := withPlace(ctx, pool, time.Hour, func(context.Context) error { return fmt.Errorf("ran") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
