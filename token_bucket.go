package ratelimit

import (
	"fmt"
	"slices"

	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/storage"
)

var tokenBucket = define(strategy{
	name:     "token-bucket",
	Strategy: &bucket{},
	validate: validateBucket,
	adapt: func(c *storage.Cell, q Quota) {
		if q.Burst > 0 && q.Limit > 0 {
			c.Burst = q.Burst
		}
	},
})

// NewTokenBucket keeps a level that is refilled continuously, Limit units a
// Window, up to Burst. Choose it for a steady rate with some slack: what was not
// used is saved, up to the Burst, and there is no edge at which much comes free
// at once.
//
// Promise: at most Burst + Limit × T/W units in every interval of length T.
//
// Source: the generic cell rate algorithm (ITU-T I.371), kept as the time at
// which the bucket is full again.
func NewTokenBucket(store storage.Storage) Limiter { return newLimiter(store, tokenBucket) }

type bucket struct{}

// The words of its state. The bucket is full again at bucketFull +
// bucketPart/bucketRate µs: exact, where a level in units would be a fraction.
const (
	bucketNewest = iota // time of the newest use, µs
	bucketFull          // µs since 1970
	bucketPart          // below bucketRate
	bucketRate          // the Limit that the two are told in; 1 for a Limit of 0
)

// refill is the pace of a bucket: n units take n × W/L µs, told as whole µs and
// a numerator over L.
type refill struct{ rate, whole, part int64 }

func refillOf(window, limit int64) refill {
	rate := max(limit, 1) // a limit of 0 admits nothing, but remembers what was used
	return refill{rate, window / rate, window % rate}
}

// most is the largest n that can be told in the numbers that a script has; a
// bucket owes no more than that.
func (r refill) most() int64 {
	return min(storage.MaxNumber/r.rate, storage.MaxSpan/(r.whole+1))
}

// of is the time that n units take: whole µs, and a numerator over the rate.
func (r refill) of(n int64) (whole, part int64) {
	if r.part == 0 { // most paces; divisions are what costs
		return n * r.whole, 0
	}
	p := n * r.part
	return n*r.whole + p/r.rate, p % r.rate
}

// missing is how many units, the last one counted whole, take at least this
// time: a rounded quotient, corrected by exact comparison. The time is at most
// that of r.most() units.
func (r refill) missing(whole, part int64) int64 {
	switch {
	case whole < 0 || whole == 0 && part == 0:
		return 0
	case r.part == 0:
		return (whole + r.whole - 1) / r.whole
	}
	takes := func(n int64) bool { // of(n) is at least the time
		w, p := r.of(n)
		return w > whole || w == whole && p >= part
	}
	n, pace := r.most(), float64(r.whole)+float64(r.part)/float64(r.rate)
	if units := float64(whole) / pace; units < float64(n) {
		n = int64(units)
	}
	for n > 0 && takes(n-1) {
		n--
	}
	for !takes(n) && n < r.most() {
		n++
	}
	return n
}

// fullAt is when the bucket is full, in the pace of the limit that now holds.
// After a change of limit, what was missing at the newest use is refilled at the
// new pace.
func fullAt(s storage.State, c *storage.Cell, r refill) (whole, part int64) {
	if s[bucketRate] == r.rate {
		return s[bucketFull], s[bucketPart]
	}
	old := refillOf(c.Window, s[bucketRate])
	n := old.missing(s[bucketFull]-s[bucketNewest], s[bucketPart])
	whole, part = r.of(min(n, r.most()))
	return s[bucketNewest] + whole, part
}

func (*bucket) Count(s storage.State, c *storage.Cell, at int64) int64 {
	if len(s) == 0 {
		return 0
	}
	r := refillOf(c.Window, c.Limit)
	whole, part := fullAt(s, c, r)
	return r.missing(whole-at, part)
}

func (*bucket) Till(s storage.State, c *storage.Cell, _, keep int64) int64 { // whole µs, rounded up
	r := refillOf(c.Window, c.Limit)
	whole, part := fullAt(s, c, r)
	w, p := r.of(keep)
	if part > p {
		whole++
	}
	return whole - w
}

func (*bucket) Use(s storage.State, c *storage.Cell, at, n int64) storage.State {
	r := refillOf(c.Window, c.Limit)
	if len(s) == 0 {
		s = append(s[:0], at, at, 0, r.rate)
	}
	whole, part := fullAt(s, c, r)
	if n < 0 {
		return bucketGiveBack(s, r, whole, part, at, -n)
	}
	if whole < at {
		whole, part = at, 0
	}
	if n = min(n, r.most()-r.missing(whole-at, part)); n <= 0 {
		return s
	}
	w, p := r.of(n)
	whole, part = whole+w, part+p
	if part >= r.rate {
		whole, part = whole+1, part-r.rate
	}
	return append(s[:0], at, whole, part, r.rate)
}

// bucketGiveBack brings the time at which the bucket is full forward again, less
// what has been refilled since the units were recorded.
func bucketGiveBack(s storage.State, r refill, whole, part, at, n int64) storage.State {
	newest := s[bucketNewest]
	w, p := r.of(min(n, r.most()))
	if w -= max(0, newest-at); w < 0 {
		return s
	}
	whole, part = whole-w, part-p
	if part < 0 {
		whole, part = whole-1, part+r.rate
	}
	if whole < newest {
		whole, part = newest, 0
	}
	return append(s[:0], newest, whole, part, r.rate)
}

func (*bucket) Valid(s storage.State, _ *storage.Cell) bool {
	return len(s) == 4 && !slices.ContainsFunc(s, frame.OutOfRange) && s[bucketNewest] <= min(s[bucketFull], storage.MaxTime) && s[bucketPart] < s[bucketRate]
}

func validateBucket(q Quota) error {
	burst, most := q.Burst, refillOf(micros(q.Window), q.Limit).most()
	if burst == 0 {
		burst = q.Limit
	}
	if q.Limit > 0 && burst > most {
		return fmt.Errorf("%w: Burst %d is too large for a token bucket of %d per %v, at most %d", ErrInvalidQuota, burst, q.Limit, q.Window, most)
	}
	return nil
}
