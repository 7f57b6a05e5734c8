package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/granule-limits/ratelimit"
)

// Minutes of calls, by the clock of a synctest bubble, which takes no real time.
func TestStaysWithinLimits(t *testing.T) {
	const calls = 2000
	for _, tt := range []struct {
		name    string
		limits  []apiLimit
		workers int
	}{
		{"one worker", published, 1},
		{"eight workers", published, 8},
		{"a worker for each call", published, calls},
		{"both limits bind", []apiLimit{{calls: 25, window: 5 * time.Second}, {calls: 60, window: time.Minute}}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(tt.limits...)
				start := time.Now()
				if err := run(t.Context(), io.Discard, a, calls, tt.workers); err != nil {
					t.Fatal(err)
				}
				if len(a.calls) != calls {
					t.Errorf("the API got %d calls, want %d", len(a.calls), calls)
				}
				for _, l := range a.limits {
					most := mostInAny(l.window, a.calls)
					if most > l.calls {
						t.Errorf("%d calls in some %v, want at most %d", most, l.window, l.calls)
					}
					if most != l.most {
						t.Errorf("the API counted %d calls in some %v, there were %d", l.most, l.window, most)
					}
				}
				if took, want := time.Since(start), needed(tt.limits, calls); took > want {
					t.Errorf("took %v, %v was enough", took, want)
				}
			})
		})
	}
}

// mostInAny counts the slow way, window by window.
func mostInAny(window time.Duration, calls []time.Time) (most int) {
	for i, first := range calls {
		n := 0
		for _, c := range calls[i:] {
			if c.Sub(first) < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// needed is how long the calls take at the pace of the slowest limit, and a
// tenth more for their way there and the edges of windows.
func needed(limits []apiLimit, calls int) (d time.Duration) {
	for _, l := range limits {
		d = max(d, time.Duration(calls/l.calls)*(l.window+margin))
	}
	return d + d/10
}

func TestSummary(t *testing.T) {
	const want = `25 calls after 0s
50 calls after 5.1s
75 calls after 10.2s

80 calls made in 15.3s by 1000 workers; as the API counted them,
at most 25 in any 5s, of 25 allowed
at most 80 in any 1m0s, of 300 allowed
`
	synctest.Test(t, func(t *testing.T) {
		var stdout bytes.Buffer
		if err := run(t.Context(), &stdout, newAPI(published...), 80, 1000); err != nil {
			t.Fatal(err)
		}
		if got := stdout.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// A context that is cancelled ends all waits, at once.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		a := newAPI(published...)
		start := time.Now()
		if err := run(ctx, io.Discard, a, 1000, 8); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want context.Canceled", err)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("took %v, want 7s", took)
		}
		if len(a.calls) != 50 { // 25 at the start, and 25 after 5 seconds
			t.Errorf("the API got %d calls, want 50", len(a.calls))
		}
	})
}

// Somebody else has used some of the API's limits, which a limiter in memory
// cannot know: the first refusal ends all workers, also those that wait.
func TestFirstErrorEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(published...)
		for range 20 {
			if broken := a.call(); broken != nil {
				t.Fatalf("%d calls in %v are too many", broken.calls, broken.window)
			}
		}
		start := time.Now()
		err := run(t.Context(), io.Discard, a, 1000, 100)
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the API's", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v, want no wait for the next window", took)
		}
	})
}

// A wait that cannot end before the deadline does not begin.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		start := time.Now()
		if err := run(ctx, io.Discard, newAPI(published...), 1000, 8); !errors.Is(err, ratelimit.ErrDeadlineTooNear) {
			t.Errorf("got error %v, want ErrDeadlineTooNear", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v, want less than the first window", took)
		}
	})
}

// The pretend API would tell: unlimited, it refuses the call too many.
func TestAPIRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(apiLimit{calls: 3, window: 5 * time.Second})
		for i := range 3 {
			if a.call() != nil {
				t.Errorf("call %d is refused", i+1)
			}
		}
		if a.call() == nil {
			t.Error("call 4 is not refused")
		}
		time.Sleep(5 * time.Second)
		if a.call() != nil {
			t.Error("a call 5 seconds later is refused")
		}
	})
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][2]int{{-1, 1}, {1, 0}} {
		if err := run(t.Context(), io.Discard, newAPI(published...), args[0], args[1]); err == nil {
			t.Errorf("%d calls, %d workers: nil, want an error", args[0], args[1])
		}
	}
}
