package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/granule-limits/ratelimit/storage/memory"
)

// keyCases is what keys cost that are not asked for again, and what many of them do to
// a storage that is bounded.
func keyCases(o options) (report, error) {
	heap, bars, err := heapCase(o)
	if err != nil {
		return report{}, err
	}
	flood, more, err := floodCase(o)
	return report{tables: []table{heap, flood}, bars: append(bars, more...)}, err
}

// heapCase is how much of the heap a key takes that was used once.
func heapCase(o options) (table, []bar, error) {
	t := table{
		caption: fmt.Sprintf("%s keys used once: bytes of the heap for each, and the ratio to go-limiter.", thousands(o.onceKeys)),
		columns: []string{"bytes a key", "ratio"},
	}
	var cs []contender[string]
	for _, s := range strategies {
		cs = append(cs, s.unbounded(o.onceKeys))
	}
	cs = append(cs, memoryPeers(high)...)
	bytes := make([]float64, len(cs))
	for i, c := range cs {
		var err error
		if bytes[i], err = heapPerKey(c, o.onceKeys); err != nil {
			return t, nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	goLimiter := bytes[len(strategies)]
	for i, c := range cs {
		t.add(c.name, figure(bytes[i]), times(bytes[i]/goLimiter))
	}
	return t, []bar{atMost("heap bytes a key, beside go-limiter", bytes[0]/goLimiter, 1, " ×")}, nil
}

// unbounded has room for more than so many keys.
func (s strategy) unbounded(keys int) contender[string] {
	return contender[string]{name: s.name, open: func() (bench[string], error) {
		policy, err := s.policy(memory.New(memory.WithMaxKeys(2*keys)), high, 1)
		return bench[string]{call: allow(policy)}, err
	}}
}

func heapPerKey(c contender[string], keys int) (float64, error) {
	before := heap()
	b, err := c.open()
	if err != nil {
		return 0, err
	}
	for i := range keys {
		if _, err := b.call("user:" + strconv.Itoa(1_000_000+i)); err != nil {
			return 0, err
		}
	}
	after := heap()
	runtime.KeepAlive(b.call)
	if b.close != nil {
		b.close()
	}
	return (after - before) / float64(keys), nil
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one has finalized, and what pools still held
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// stretches is how many parts a flood is measured in.
const stretches = 5

// hotEvery is how many random keys come by between two calls of the hot one.
const hotEvery = 100

// A flood is random keys coming by.
type flood struct {
	text     string // keys are pieces of it
	at       int
	allow    func(string) (bool, error)
	clock    uint32 // what it costs to look twice at it, ns
	admitted int    // of the hot key's calls
	heaps    []float64
	medians  []float64
	tails    []float64 // the 99.9th percentiles
}

// floodCase is random keys through a storage with room for a part of them.
func floodCase(o options) (table, []bar, error) {
	policy, err := sliding.policy(memory.New(memory.WithMaxKeys(o.maxKeys)), low, 1)
	if err != nil {
		return table{}, nil, err
	}
	f := flood{text: randomText(o.floodKeys + keyLength), allow: allow(policy), clock: clockCost()}
	if allowed, err := f.allow("hot"); err != nil || !allowed {
		return table{}, nil, errors.Join(err, errors.New("the hot key was refused at once"))
	}
	t := table{
		caption: fmt.Sprintf("%s random keys through `memory.WithMaxKeys(%d)`, and every %d of them a hot key that is refused.",
			thousands(o.floodKeys), o.maxKeys, hotEvery),
		columns: []string{"heap", "median of a call", "99.9 % of calls", "ratio"},
	}
	nanos := make([]uint32, o.floodKeys/stretches)
	var ratios []float64
	for i := range stretches {
		if err := f.stretch(nanos); err != nil {
			return t, nil, err
		}
		ratios = append(ratios, f.tails[i]/f.medians[i])
		t.add(thousands((i+1)*len(nanos))+" keys", figure(f.heaps[i]/1e6)+" MB", duration(f.medians[i]), duration(f.tails[i]), times(ratios[i]))
	}
	same := func(f float64) float64 { return f }
	return t, []bar{
		atMost("heap after the flood, beside the heap after a fifth of it", f.heaps[stretches-1]/f.heaps[0], 1.05, " ×"),
		atMost("99.9 % of calls, beside the median call", median(ratios, same), 5, " ×"),
		atMost("calls of the hot refused key that were let through", float64(f.admitted), 0, ""),
	}, nil
}

const keyLength = 16

// stretch asks once for each of so many keys, and notes how long it took.
func (f *flood) stretch(nanos []uint32) error {
	for i := range nanos {
		key := f.text[f.at : f.at+keyLength]
		f.at++
		start := time.Now()
		_, err := f.allow(key)
		nanos[i] = uint32(time.Since(start))
		if err != nil {
			return err
		}
		if i%hotEvery != 0 {
			continue
		}
		hot, err := f.allow("hot")
		if err != nil {
			return err
		}
		if hot {
			f.admitted++
		}
	}
	slices.Sort(nanos)
	at := func(share float64) float64 {
		return float64(max(1, nanos[int(share*float64(len(nanos)))]-min(f.clock, nanos[0])))
	}
	f.medians, f.tails = append(f.medians, at(0.5)), append(f.tails, at(0.999))
	f.heaps = append(f.heaps, heap())
	return nil
}

// randomText has a random key at each of its places.
func randomText(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + random.IntN(26))
	}
	return string(text)
}

// clockCost is the median time between two looks at the clock, in ns.
func clockCost() uint32 {
	nanos := make([]uint32, 10_001)
	for i := range nanos {
		start := time.Now()
		nanos[i] = uint32(time.Since(start))
	}
	slices.Sort(nanos)
	return nanos[len(nanos)/2]
}
