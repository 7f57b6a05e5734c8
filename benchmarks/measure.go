package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

var ctx = context.Background()

// A contender is a library, or one way to use one, in a case. What is asked, a T, is
// ready-made: a key, most of the time.
type contender[T any] struct {
	name    string
	refused bool                     // all answers must be refusals; else none may be
	open    func() (bench[T], error) // a fresh one for each run
}

// A bench is a contender at work. All but call can be nil.
type bench[T any] struct {
	call  func(T) (allowed bool, err error) // by many goroutines
	prime func() error                      // gets it into the state of long use; no time is taken
	begin func() error                      // just before the time is taken
	end   func(*sample) error               // just after, with what was measured
	close func()
}

// A load is what all contenders of a case are asked.
type load[T any] struct {
	name       string
	items      []T // each goroutine asks them all, in an order of its own, again and again
	goroutines int
	batch      int // calls between two looks at the clock
}

// A sample is one run of one contender.
type sample struct {
	nanos  float64 // a call: the time that passed, by the calls of all goroutines
	allocs float64 // a call
}

// A result is the runs of one contender, in order.
type result struct {
	name    string
	samples []sample
}

// compare runs the contenders by turns, so that all of them have the machine's good
// and bad moments, and nobody always goes first.
func compare[T any](o options, contenders []contender[T], l load[T]) ([]result, error) {
	results := make([]result, len(contenders))
	for run := range o.runs {
		for i := range contenders {
			k := (run + i) % len(contenders)
			s, err := runOnce(o, contenders[k], l)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", contenders[k].name, l.name, err)
			}
			results[k].name = contenders[k].name
			results[k].samples = append(results[k].samples, s)
		}
	}
	return results, nil
}

func runOnce[T any](o options, c contender[T], l load[T]) (sample, error) {
	b, err := c.open()
	if err != nil {
		return sample{}, err
	}
	if b.close != nil {
		defer b.close()
	}
	if err := warm(b, l); err != nil {
		return sample{}, err
	}
	if b.begin != nil {
		if err := b.begin(); err != nil {
			return sample{}, err
		}
	}
	s, err := timed(o, b, l, c.refused)
	if err == nil && b.end != nil {
		err = b.end(&s)
	}
	return s, err
}

// warm asks for each item once, so that no key is new and each limit of one unit is
// used up.
func warm[T any](b bench[T], l load[T]) error {
	if b.prime != nil {
		if err := b.prime(); err != nil {
			return err
		}
	}
	return together(min(16, len(l.items)), func(g, goroutines int) error {
		for i := g; i < len(l.items); i += goroutines {
			if _, err := b.call(l.items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// timed is a run. Answers that the case does not have are an error, but for one an
// item, as a window may have ended.
func timed[T any](o options, b bench[T], l load[T], refused bool) (sample, error) {
	orders := make([][]T, l.goroutines)
	for g := range orders {
		orders[g] = slices.Clone(l.items)
		random := rand.New(rand.NewPCG(uint64(g), 1))
		random.Shuffle(len(orders[g]), func(i, j int) { orders[g][i], orders[g][j] = orders[g][j], orders[g][i] })
	}
	counts := make([]tally, l.goroutines)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	err := together(l.goroutines, func(g, _ int) (err error) {
		counts[g], err = ask(b.call, orders[g], l.batch, refused, start.Add(o.time))
		return err
	})
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	if err != nil {
		return sample{}, err
	}
	var all tally
	for _, c := range counts {
		all.calls, all.wrong = all.calls+c.calls, all.wrong+c.wrong
	}
	if all.wrong > int64(len(l.items)) {
		return sample{}, fmt.Errorf("%d of %d answers are not %q", all.wrong, all.calls, answer(refused))
	}
	calls := float64(all.calls)
	return sample{nanos: float64(elapsed) / calls, allocs: float64(after.Mallocs-before.Mallocs) / calls}, nil
}

type tally struct{ calls, wrong int64 }

// ask is what one goroutine does until the time is over.
func ask[T any](call func(T) (bool, error), items []T, batch int, refused bool, until time.Time) (t tally, err error) {
	for at := 0; ; {
		for range batch {
			allowed, err := call(items[at])
			if err != nil {
				return t, err
			}
			if allowed == refused {
				t.wrong++
			}
			if at++; at == len(items) {
				at = 0
			}
		}
		t.calls += int64(batch)
		if !time.Now().Before(until) {
			return t, nil
		}
	}
}

// together runs goroutines and waits for them. It returns the first error.
func together(goroutines int, run func(g, goroutines int) error) error {
	errs := make(chan error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			if err := run(g, goroutines); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// userKeys is keys as a service has them.
func userKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(1_000_000+i)
	}
	return keys
}

// time is the median time of a call, in ns.
func (r result) time() float64 {
	return median(r.samples, func(s sample) float64 { return s.nanos })
}

// allocs is the median number of allocations of a call.
func (r result) allocs() float64 {
	return median(r.samples, func(s sample) float64 { return s.allocs })
}

// ratio is the time of r by that of base: the median of the ratios of runs that came
// one after the other, which a slow minute of the machine leaves alone.
func (r result) ratio(base result) float64 {
	ratios := make([]float64, len(r.samples))
	for i := range ratios {
		ratios[i] = r.samples[i].nanos / base.samples[i].nanos
	}
	return median(ratios, func(f float64) float64 { return f })
}

// fastest is the result with the least median.
func fastest(results []result) result {
	return slices.MinFunc(results, func(a, b result) int {
		if a.time() < b.time() {
			return -1
		}
		return 1
	})
}

func median[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(all[i])
	}
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

func answer(refused bool) string {
	if refused {
		return "refused"
	}
	return "allowed"
}

// A worst is the highest of some ratios, and the case that had it.
type worst struct {
	ratio float64
	where string
}

func (w *worst) see(ratio float64, where string) {
	if ratio > w.ratio {
		*w = worst{ratio, where}
	}
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}
