package ratelimit_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func counterPolicy(t require.TestingT, store storage.Storage, name string, q ratelimit.Quota) *ratelimit.Policy {
	p, err := ratelimit.NewPolicy(name, ratelimit.NewSlidingCounter(store), q)
	require.NoError(t, err)
	return p
}

// What is left at each µs of two windows is what the definition says, and each
// moment that an answer names is the first at which it is so: found by looking at
// every one.
func TestSlidingCounterMicrosecondByMicrosecond(t *testing.T) {
	const w = 1000 // µs
	for _, use := range []struct{ limit, previous, current int64 }{
		{10, 10, 0}, {10, 10, 3}, {10, 7, 5}, {10, 0, 10}, {10, 1, 1}, {7, 3, 6}, {1500, 1500, 700}, {5, 9, 8},
	} {
		q := ratelimit.Per(use.limit, w*time.Microsecond)
		p := counterPolicy(t, memory.New(), "p", q)
		at := func(µs int64) ratelimit.CallOption {
			return ratelimit.At(limitertest.Start.Add(time.Duration(µs) * time.Microsecond))
		}
		require.NoError(t, p.Use(t.Context(), "a", use.previous, at(0)))
		require.NoError(t, p.Use(t.Context(), "a", use.current, at(w)))
		newest := int64(w)
		if use.current == 0 { // and so a use of nothing
			newest = 0
		}
		var left []int64
		for now := newest; now <= 3*w; now++ {
			used := int64(0)
			switch r := now % w; now / w {
			case 0:
				used = use.previous
			case 1:
				used = use.current + (use.previous*(w-r)+w-1)/w
			case 2:
				used = (use.current*(w-r) + w - 1) / w
			}
			left = append(left, max(0, use.limit-used))
		}
		first := func(now int, n int64) time.Duration {
			return time.Duration(slices.IndexFunc(left[now:], func(left int64) bool { return left >= n })) * time.Microsecond
		}
		for now := range left {
			for _, n := range []int64{1, 2, use.limit / 2, use.limit} {
				d, err := p.Check(t.Context(), "a", n, at(newest+int64(now)))
				require.NoError(t, err)
				require.Equal(t, left[now], d.Remaining, "%+v at %d", use, now)
				require.Equal(t, first(now, n), d.RetryAfter, "%+v at %d: %d more", use, now, n)
				if use.previous <= use.limit && use.current <= use.limit {
					require.Equal(t, first(now, use.limit), d.ResetAfter, "%+v at %d", use, now)
				}
			}
		}
	}
}

// The worst case is as bad as the promise says: all of one window in its last µs,
// and what then fits before an interval of length W ends.
func TestSlidingCounterWorstCase(t *testing.T) {
	for _, test := range []struct {
		limit  int64
		window time.Duration
		want   int64
	}{
		{1, time.Second, 1},
		{100, time.Minute, 199},
		{123_457, 24 * time.Hour, 246_913},
		{500, time.Millisecond, 999},
		{501, time.Millisecond, 1000}, // above one unit in 2 µs
		{1000, time.Millisecond, 1998},
	} {
		p := counterPolicy(t, memory.New(), "p", ratelimit.Per(test.limit, test.window))
		edge, admitted := limitertest.Start.Add(test.window), int64(0)
		for _, at := range []time.Time{edge.Add(-time.Microsecond), edge.Add(test.window - 2*time.Microsecond)} {
			d, err := p.Take(t.Context(), "a", test.limit, ratelimit.At(at))
			require.NoError(t, err)
			admitted += d.Granted
		}
		require.Equal(t, test.want, admitted, "%d per %v", test.limit, test.window)
	}
}

// Traffic that knows the edges, and so gets as near to the promise as it can.
func TestSlidingCounterPromiseAtEdges(t *testing.T) {
	const w = 1000 // µs
	rapid.Check(t, func(t *rapid.T) {
		q := ratelimit.Per(rapid.SampledFrom([]int64{1, 2, 3, 10, 499, 501, 3000}).Draw(t, "limit"), w*time.Microsecond)
		p := counterPolicy(t, memory.New(), "p", q)
		var admitted []admission
		now, newest := limitertest.Start.UnixMicro(), int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			edge := now - now%w
			now = rapid.SampledFrom([]int64{now, now + 1, now - 1, edge - 1, edge + w - 2, edge + w - 1, edge + w, edge + 2*w - 2, now + 7, now + w/3}).Draw(t, "now")
			d, err := p.Take(t.Context(), "a", rapid.Int64Range(1, q.Limit).Draw(t, "n"), ratelimit.At(time.UnixMicro(now)))
			require.NoError(t, err)
			if newest = max(newest, now); d.Granted > 0 {
				admitted = append(admitted, admission{newest, d.Granted})
			}
		}
		require.False(t, promises["sliding-counter"](q, admitted), "%d admitted %v", q.Limit, admitted)
	})
}

// What is left of a unit counts as one: who asks again whenever there may be room
// gets a unit less than the limit, and of a single one half.
func TestSlidingCounterUnderDemand(t *testing.T) {
	for limit, want := range map[int64]int64{1: 50, 2: 100, 3: 200, 10: 900, 100: 9900} {
		p := counterPolicy(t, memory.New(), "p", ratelimit.PerMinute(limit))
		_, err := p.Take(t.Context(), "a", limit, ratelimit.At(limitertest.Start.Add(-time.Minute)))
		require.NoError(t, err)
		admitted := int64(0)
		for at := limitertest.Start; at.Before(limitertest.Start.Add(100 * time.Minute)); {
			d, err := p.Allow(t.Context(), "a", ratelimit.At(at))
			require.NoError(t, err)
			admitted += d.Granted
			at = at.Add(d.RetryAfter)
		}
		require.Equal(t, want, admitted, "%d a minute", limit)
	}
}

// Units go back to the window in which they were used, as long as it counts.
func TestSlidingCounterGivesBack(t *testing.T) {
	const s = time.Second
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for i, test := range []struct {
			n    int64
			at   time.Duration // when they were used
			now  time.Duration
			left int64
		}{
			{0, 0, 10 * s, 2},     // of 10: 4 in the window at 0 s, 4 in that at 10 s
			{3, 5 * s, 10 * s, 5}, // the previous one
			{3, 19 * s, 10 * s, 5},
			{9, 0, 10 * s, 6}, // never below nothing
			{9, 10 * s, 10 * s, 6},
			{3, 5 * s, 15 * s, 5}, // 4 + ⌈1 / 2⌉
			{3, 10 * s, 20 * s, 9},
			{3, 20 * s, 20 * s, 6},  // nothing was used then
			{3, 100 * s, 20 * s, 6}, // nor then
		} {
			p := counterPolicy(t, store, fmt.Sprint("case ", i), ratelimit.Per(10, 10*s))
			at := func(d time.Duration) ratelimit.CallOption { return ratelimit.At(limitertest.Start.Add(d)) }
			require.NoError(t, p.Use(t.Context(), "a", 4, at(0)))
			require.NoError(t, p.Use(t.Context(), "a", 4, at(10*s)))
			require.NoError(t, p.Use(t.Context(), "a", -test.n, at(test.at)))
			d, err := p.Check(t.Context(), "a", 0, at(test.now))
			require.NoError(t, err)
			require.Equal(t, test.left, d.Remaining, "case %d", i)
		}
		p := counterPolicy(t, store, "unused", ratelimit.Per(10, 10*s))
		require.NoError(t, p.Use(t.Context(), "a", -3, ratelimit.At(limitertest.Start)))
		d, err := p.Check(t.Context(), "a", 0)
		require.NoError(t, err)
		require.EqualValues(t, 10, d.Remaining)
	})
}

// The figures in the doc of NewSlidingCounter: how many requests it decides
// otherwise than the exact log does, each by what it admitted itself.
func TestSlidingCounterBesideTheLog(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []arrival
		quota    ratelimit.Quota
		want     comparison
	}{
		{"below 80 % of the limit", arrivals(10, 80), ratelimit.PerMinute(100), comparison{46668, 46668, 46668, 0, 0}},
		{"80 to 100 %", arrivals(80, 100), ratelimit.PerMinute(100), comparison{89434, 88713, 88465, 726, 478}},
		{"10 to 200 %", arrivals(10, 200), ratelimit.PerMinute(100), comparison{113320, 81336, 81190, 15499, 15353}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, compare(t, test.requests, test.quota)) })
	}
	// A window of a minute or an hour would prove nothing here: in this log all
	// requests of an hour have the same minute.
	t.Run("access log", func(t *testing.T) {
		log := accessLog(t)
		require.Equal(t, comparison{10000, 9451, 9403, 139, 91}, compare(t, log, ratelimit.PerDay(100)))
		require.Equal(t, comparison{10000, 7760, 7732, 197, 169}, compare(t, log, ratelimit.PerDay(20)))
		require.Equal(t, comparison{10000, 4757, 5610, 306, 1159}, compare(t, log, ratelimit.Per(1, 10*time.Second)))
	})
}

type comparison struct {
	requests        int
	admitted, exact int // by the counter, by the log
	over, under     int // admitted by the counter alone, by the log alone
}

func compare(t *testing.T, requests []arrival, q ratelimit.Quota) comparison {
	counter := counterPolicy(t, memory.New(), "p", q)
	log, err := ratelimit.NewPolicy("p", ratelimit.NewListLimiter(memory.New()), q)
	require.NoError(t, err)
	c := comparison{requests: len(requests)}
	for _, r := range requests {
		got, err := counter.Allow(t.Context(), r.key, ratelimit.At(r.at))
		require.NoError(t, err)
		want, err := log.Allow(t.Context(), r.key, ratelimit.At(r.at))
		require.NoError(t, err)
		c.admitted += int(got.Granted)
		c.exact += int(want.Granted)
		switch {
		case got.Allowed && !want.Allowed:
			c.over++
		case !got.Allowed && want.Allowed:
			c.under++
		}
	}
	return c
}

// An arrival is one request of a key.
type arrival struct {
	key string
	at  time.Time
}

// arrivals is 20 minutes of 50 keys, each of which asks, at random times, for its
// own part of 100 a minute: from low to high per cent.
func arrivals(low, high int64) []arrival {
	rnd := rand.New(rand.NewPCG(1, 1))
	var all []arrival
	for key := range 50 {
		gap := int64(time.Minute) / (low + rnd.Int64N(high-low))
		begin := limitertest.Start.Add(time.Duration(rnd.Int64N(int64(time.Minute))))
		for at := begin; at.Before(begin.Add(20 * time.Minute)); at = at.Add(time.Duration(rnd.Int64N(2 * gap))) {
			all = append(all, arrival{fmt.Sprint(key), at})
		}
	}
	sortByTime(all)
	return all
}

// accessLog is the public log that examples/replay is shown with, by address. It
// lies beside the repository.
func accessLog(t *testing.T) []arrival {
	file, err := os.Open(filepath.Join("..", "shared", "data", "apache_access.log.gz"))
	if err != nil {
		t.Skipf("no access log, the figures for real traffic are not reproduced: %v", err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	var all []arrival
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		address, rest, _ := strings.Cut(lines.Text(), " ")
		_, rest, _ = strings.Cut(rest, "[")
		stamp, _, _ := strings.Cut(rest, "]")
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", stamp)
		require.NoError(t, err)
		all = append(all, arrival{address, at})
	}
	require.NoError(t, lines.Err())
	sortByTime(all)
	return all
}

func sortByTime(all []arrival) {
	slices.SortStableFunc(all, func(a, b arrival) int { return a.at.Compare(b.at) })
}
