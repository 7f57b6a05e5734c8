package storagetest

import (
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

func testClock(t *test) {
	t.part("own", clockOwn)
	t.part("given", clockGiven)
	t.part("corrected", clockCorrected)
}

// slack is how far a storage's clock may be from this one's.
const slack = 5 * time.Second

func clockOwn(t *test) {
	newest := time.UnixMicro(0)
	for i := range 300 {
		script, c := callOf(strategies[i%len(strategies)], time.Time{}, want("a", 1, perHour(10)))
		c.Op = storage.Op(i / 2 % 3)
		c.Now = int64(i) // must not be taken for an answer
		before := time.Now()
		t.must(t.twin.Run(t.Context(), script, &c))
		switch at := time.UnixMicro(c.Now); {
		case at.Before(before.Add(-slack)) || at.After(time.Now().Add(slack)):
			t.fail("at %v a call was stamped %d: %v", before.UTC(), c.Now, at.UTC())
		case at.Before(newest):
			t.fail("the clock went back, from %d to %d µs", newest.UnixMicro(), c.Now)
		default:
			newest = at
		}
	}
}

// clockGiven brings times that have little in common with the clock's.
func clockGiven(t *test) {
	for _, s := range strategies {
		for i, at := range []time.Time{time.UnixMicro(0), time.UnixMicro(1), epoch, year(2100), time.UnixMicro(storage.MaxTime)} {
			a, r := t.asker(s), want(fmt.Sprint("user", i), 4, perHour(10))
			a.check(at, r)
			a.take(at, r)
			a.use(at, r)
			a.take(at, r)
		}
	}
}

// clockCorrected goes by the clock where a call said before that it was 2100.
func clockCorrected(t *test) {
	for _, s := range strategies {
		a, r := t.asker(s), want("a", 4, perHour(10))
		a.take(year(2100), r)
		a.take(time.Time{}, r)
		a.take(time.Time{}, r)
	}
}

func year(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }

// testKept uses counters at times far apart, waits, and asks each at its own time
// again.
func testKept(t *test) {
	const pause = 150 * time.Millisecond
	var again []func()
	for _, s := range strategies {
		a := t.asker(s)
		again = append(again, keptInHours(a)...)
		again = append(again, keptStill(a), keptByClock(a))
	}
	again = append(again, keptLonger(t.asker(bucket)), keptLongest(t.asker(bucket)))
	time.Sleep(pause)
	for _, ask := range again {
		ask()
	}
}

func keptInHours(a asker) (again []func()) {
	for i, at := range []time.Time{time.UnixMicro(1), year(1990), epoch, time.Now().Truncate(time.Hour), year(2100)} {
		r := want(fmt.Sprint("user", i), 3, perHour(10))
		a.take(at, r)
		again = append(again, func() {
			a.take(at, r)
			a.take(at.Add(time.Minute), r)
			a.take(at, r)
			a.check(at.Add(24*time.Hour), r)
		})
	}
	return again
}

// keptStill has a clock of its own, that stands still just before all is free.
func keptStill(a asker) (again func()) {
	at := epoch.Truncate(time.Hour).Add(time.Hour - time.Microsecond)
	q := ratelimit.Quota{Limit: 10, Window: time.Hour, Granularity: time.Hour}
	a.take(at, want("still", 3, q))
	return func() { a.take(at, want("still", 10, q)) }
}

// keptByClock is free again in a minute.
func keptByClock(a asker) (again func()) {
	r := want("live", 3, ratelimit.PerMinute(10))
	a.take(time.Time{}, r)
	return func() { a.take(time.Time{}, r) }
}

// keptLonger is free again in a tenth of a second by its first use, and in
// minutes by its second.
func keptLonger(a asker) (again func()) {
	q := perHour(36_000)
	a.take(time.Time{}, want("longer", 1, q))
	a.take(time.Time{}, want("longer", 3000, q))
	return func() { a.take(time.Time{}, want("longer", 1, q)) }
}

// keptLongest is used by two limits in one call: it is free again in milliseconds
// by the one, and in hours by the other.
func keptLongest(a asker) (again func()) {
	fast, slow := perHour(3_600_000), perHour(1)
	a.take(time.Time{}, want("fast first", 1, fast), want("fast first", 1, slow))
	a.take(time.Time{}, want("slow first", 1, slow), want("slow first", 1, fast))
	return func() { a.check(time.Time{}, want("fast first", 1, slow), want("slow first", 1, slow)) }
}
