package main

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// saying is a contender that gives one answer, and notes that it was opened.
func saying(name string, allowed, refused bool, opened *[]string) contender[string] {
	return contender[string]{name, refused, func() (bench[string], error) {
		*opened = append(*opened, name)
		return bench[string]{call: func(string) (bool, error) { return allowed, nil }}, nil
	}}
}

func TestCompareTakesTurns(t *testing.T) {
	o := small(t)
	o.runs = 3
	var opened []string
	cs := []contender[string]{saying("a", true, false, &opened), saying("b", true, false, &opened), saying("c", false, true, &opened)}
	results, err := compare(o, cs, load[string]{items: userKeys(2), goroutines: 2, batch: 8})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}, opened)
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(t, name, results[i].name)
		require.Len(t, results[i].samples, 3)
		require.Positive(t, results[i].time())
	}
}

// A contender that does not do what the case is about is not measured.
func TestCompareRefusesWrongAnswers(t *testing.T) {
	var opened []string
	for _, c := range []contender[string]{saying("refuses", false, false, &opened), saying("allows", true, true, &opened)} {
		_, err := compare(small(t), []contender[string]{c}, load[string]{items: userKeys(2), goroutines: 1, batch: 8})
		require.ErrorContains(t, err, c.name)
		require.ErrorContains(t, err, answer(c.refused))
	}
}

func TestCompareFails(t *testing.T) {
	broken := errors.New("broken")
	for name, at := range map[string]int{"open": 0, "prime": 1, "begin": 2, "call": 3, "end": 4} {
		t.Run(name, func(t *testing.T) {
			fail := func(step int) error {
				if step == at {
					return broken
				}
				return nil
			}
			closed := 0
			c := contender[string]{name: "c", open: func() (bench[string], error) {
				return bench[string]{
					call:  func(string) (bool, error) { return true, fail(3) },
					prime: func() error { return fail(1) },
					begin: func() error { return fail(2) },
					end:   func(*sample) error { return fail(4) },
					close: func() { closed++ },
				}, fail(0)
			}}
			_, err := compare(small(t), []contender[string]{c}, load[string]{items: userKeys(1), goroutines: 3, batch: 1})
			require.ErrorIs(t, err, broken)
			require.Equal(t, min(at, 1), closed, "what was opened is closed, once")
		})
	}
}

// What is counted is the calls of the run, not those before it.
func TestRunCounts(t *testing.T) {
	var calls, timed atomic.Int64
	var sink atomic.Pointer[[64]byte]
	c := contender[string]{name: "c", open: func() (bench[string], error) {
		return bench[string]{
			call: func(string) (bool, error) {
				calls.Add(1)
				sink.Store(new([64]byte))
				return true, nil
			},
			begin: func() error { timed.Store(calls.Load()); return nil },
		}, nil
	}}
	s, err := runOnce(small(t), c, load[string]{items: userKeys(100), goroutines: 2, batch: 512})
	require.NoError(t, err)
	require.EqualValues(t, 100, timed.Load(), "each item once before")
	n := calls.Load() - 100
	require.Positive(t, n)
	require.Zero(t, n%512)
	require.InDelta(t, 1, s.allocs, 0.5)
	require.GreaterOrEqual(t, s.nanos*float64(n), 1e6, "the run took its time")
}

func TestRatio(t *testing.T) {
	base := result{samples: []sample{{nanos: 10}, {nanos: 1000}, {nanos: 10}}}
	r := result{samples: []sample{{nanos: 20}, {nanos: 2000}, {nanos: 90}}}
	require.InDelta(t, 2, r.ratio(base), 1e-9, "a slow moment that both had is no difference")
	require.InDelta(t, 90, r.time(), 1e-9)
	require.InDelta(t, 10, fastest([]result{r, base}).time(), 1e-9)
	require.InDelta(t, 1.5, median([]float64{2, 1}, func(f float64) float64 { return f }), 1e-9)
}

func TestWorst(t *testing.T) {
	var w worst
	w.see(1, "first")
	w.see(3, "second")
	w.see(2, "third")
	require.Equal(t, worst{3, "second"}, w)
}
