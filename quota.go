package ratelimit

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

const (
	minWindow   = time.Millisecond
	maxGranules = 4096
	// defaultGranules is how many granules a window has if its quota names no
	// Granularity.
	defaultGranules = 10
)

// A Quota is a limit of so many units in so much time.
//
// What a counter has used belongs to its prefix, the strategy, and the quota's
// Window (with the sliding window and the hash limiter also its Granularity). The
// other fields can change at any time: raise or lower Limit, and what was used
// stays used.
type Quota struct {
	// Name is for headers, metrics and messages.
	Name string
	// Limit is the number of units in a Window, at most 2^53-1; 0 admits nothing.
	Limit int64
	// Window is a whole number of µs, from 1 ms to 71 years.
	Window time.Duration
	// Granularity is the width of a granule or bucket: a whole number of µs that
	// divides Window into at most 4096. Zero means Window/10.
	Granularity time.Duration
	// Burst is the capacity of a token bucket; zero means Limit. The other
	// strategies do not use it.
	Burst int64
	// PrefixOverride, if it is not empty, counts for this quota instead of the
	// request's Prefix: a limit that many prefixes share, such as a global one. It
	// never meets a request's own prefix of the same text.
	PrefixOverride string
}

// PerSecond is a Quota of limit units a second.
func PerSecond(limit int64) Quota { return Per(limit, time.Second) }

// PerMinute is a Quota of limit units a minute.
func PerMinute(limit int64) Quota { return Per(limit, time.Minute) }

// PerHour is a Quota of limit units an hour.
func PerHour(limit int64) Quota { return Per(limit, time.Hour) }

// PerDay is a Quota of limit units in 24 hours.
func PerDay(limit int64) Quota { return Per(limit, 24*time.Hour) }

// Per is a Quota of limit units a window.
func Per(limit int64, window time.Duration) Quota { return Quota{Limit: limit, Window: window} }

// Validate tells what is wrong with a quota, if anything: an error that wraps
// [ErrInvalidQuota] and names the field and its value.
func (q Quota) Validate() error {
	switch granularity := q.granularity(); {
	case q.Limit < 0:
		return q.invalid("Limit %d is negative", q.Limit)
	case q.Limit > storage.MaxNumber:
		return q.invalid("Limit %d is above %d", q.Limit, int64(storage.MaxNumber))
	case q.Window < minWindow:
		return q.invalid("Window %v is under %v", q.Window, minWindow)
	case q.Window%time.Microsecond != 0:
		return q.invalid("Window %v is not a whole number of µs", q.Window)
	case micros(q.Window) > storage.MaxSpan:
		return q.invalid("Window %v is above %v", q.Window, duration(storage.MaxSpan))
	case q.Granularity < 0:
		return q.invalid("Granularity %v is negative", q.Granularity)
	case granularity%time.Microsecond != 0 && q.Granularity != 0:
		return q.invalid("Granularity %v is not a whole number of µs", granularity)
	case q.Window%granularity != 0 || granularity%time.Microsecond != 0:
		return q.invalid("Granularity %v%s does not divide Window %v into whole µs", granularity, q.byDefault(), q.Window)
	case q.Window/granularity > maxGranules:
		return q.invalid("Granularity %v cuts Window %v into %d granules, at most %d", granularity, q.Window, q.Window/granularity, maxGranules)
	case q.Burst < 0:
		return q.invalid("Burst %d is negative", q.Burst)
	case q.Burst > storage.MaxNumber:
		return q.invalid("Burst %d is above %d", q.Burst, int64(storage.MaxNumber))
	case q.Burst > 0:
		return validateBucket(q)
	}
	return nil
}

func (q Quota) invalid(format string, args ...any) error {
	name := ""
	if q.Name != "" {
		name = fmt.Sprintf(" %q", q.Name)
	}
	return fmt.Errorf("%w%s: %s", ErrInvalidQuota, name, fmt.Sprintf(format, args...))
}

func (q Quota) granularity() time.Duration {
	if q.Granularity == 0 {
		return q.Window / defaultGranules
	}
	return q.Granularity
}

func (q Quota) byDefault() string {
	if q.Granularity == 0 {
		return " (the default, Window/10)"
	}
	return ""
}

// Granules iterates over the granules that a sliding window counts at a time,
// newest first: the absolute number ⌊at/Granularity⌋ of each, as in 1970 it was
// 0. There are none for a quota that is not valid.
func (q Quota) Granules(at time.Time) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if q.Validate() != nil {
			return
		}
		width := micros(q.granularity())
		newest := floorDiv(at.UnixMicro(), width)
		for i := range micros(q.Window) / width {
			if !yield(newest - i) {
				return
			}
		}
	}
}

// A RequestedQuota asks for units under several quotas, all of which must hold.
type RequestedQuota struct {
	// Prefix says who asks: an account, an address. Any non-empty string.
	Prefix string
	// Requested is the number of units, at most 2^53-1. Zero asks how things
	// stand.
	Requested int64
	// Quotas are looked at in order. No two of them may be the same counter.
	Quotas []Quota
	// AllOrNothing grants nothing rather than a part.
	AllOrNothing bool
}

// A GrantedQuota answers a RequestedQuota.
//
// With 7 of 10 units a minute used, a request for 5 is Granted 3, with the quota
// in ReachedQuotas, Remaining 0 and, if the 7 were used 20 seconds ago in one
// granule, RetryAfter 40s or a little more.
type GrantedQuota struct {
	// Prefix is the request's, also where a quota has a PrefixOverride.
	Prefix string
	// Granted is at most Requested; all of it or 0 with AllOrNothing.
	Granted int64
	// ReachedQuotas are the quotas that made Granted smaller than Requested, in
	// order: each had less left than the ones before it allowed.
	ReachedQuotas []Quota
	// Remaining is what is left after this call in the tightest quota.
	Remaining int64
	// RetryAfter is 0 if the request was granted in full; else how long until the
	// same request, asked again, would be, if nobody else asked; Never if no waiting
	// helps.
	RetryAfter time.Duration
	// ResetAfter is when every quota of the request is back to full.
	ResetAfter time.Duration
	// States has one entry for each quota of the request, in order.
	States []QuotaState
	// At is the time of the call, by the storage's clock: units that turn out not
	// to be needed are given back at that time; see Limiter.UseQuotas.
	At time.Time
	// Degraded says that the answer was given without the storage, which was down:
	// a limiter around this one decided what then holds.
	Degraded bool
}

// A QuotaState is how one quota stands after a call.
type QuotaState struct {
	Remaining  int64         // units
	RetryAfter time.Duration // as in GrantedQuota, as far as this quota goes
	NextAfter  time.Duration // until Remaining grows, if nobody asks; 0 if it is full
	ResetAfter time.Duration // until it is full
}

// Never is the RetryAfter of a request that no waiting will help: it asks for
// more than a quota ever has.
const Never time.Duration = math.MaxInt64

// micros is a duration in whole µs.
func micros(d time.Duration) int64 { return d.Microseconds() }

// duration is a span of µs, where storage.Never stays Never.
func duration(micros int64) time.Duration {
	if micros == storage.Never {
		return Never
	}
	return time.Duration(micros) * time.Microsecond
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
