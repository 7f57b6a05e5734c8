package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func Example() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	if err := run(context.Background(), os.Stdout, limiter, new(rowStore), numbered(30)); err != nil {
		panic(err)
	}
	// Output:
	// There are 30 rows to insert, and 25 an hour are allowed. A row that fails is not
	// charged, and leaves its place to another.
	//
	//    asked   allowed   inserted   charged
	//       10        10          8         8
	//       10        10          8         8
	//       10         9          8         8
	//        1         1          0         0
	//
	// remaining: 1 of 25
}

func TestChargesWhatWasInserted(t *testing.T) {
	allFail := []row{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}
	for _, tt := range []struct {
		name     string
		rows     []row
		inserted int
	}{
		{"no rows", nil, 0},
		{"one row", numbered(1), 1},
		{"one that fails", []row{5}, 0},
		{"all fail", allFail, 0},
		{"failures before successes", append(allFail, numbered(4)...), 4},
		{"just under the limit", numbered(30), 24},
		{"just at the limit", numbered(31), 25},
		{"far above the limit", numbered(1000), 25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter := ratelimit.NewSlidingWindow(memory.New())
			store := new(rowStore)
			if err := run(t.Context(), io.Discard, limiter, store, tt.rows); err != nil {
				t.Fatal(err)
			}
			if len(store.rows) != tt.inserted {
				t.Errorf("inserted %d rows, want %d", len(store.rows), tt.inserted)
			}
			left, err := remaining(t.Context(), limiter)
			if err != nil {
				t.Fatal(err)
			}
			if want := quotas[0].Limit - int64(tt.inserted); left != want {
				t.Errorf("%d of %d remain after %d successes, want %d", left, quotas[0].Limit, tt.inserted, want)
			}
		})
	}
}

// A context that has ended is told before any work is done.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store := new(rowStore)
	if err := run(ctx, io.Discard, ratelimit.NewSlidingWindow(memory.New()), store, numbered(1)); err == nil {
		t.Error("run returned nil, want the context's error")
	}
	if len(store.rows) != 0 {
		t.Errorf("inserted %d rows, want none", len(store.rows))
	}
}
