package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A HeaderForm is a way to tell clients how their quotas stand; see WithHeaders.
type HeaderForm int

const (
	// RateLimitFields are RateLimit-Policy and RateLimit, with all quotas, as in
	// draft-ietf-httpapi-ratelimit-headers-11.
	RateLimitFields HeaderForm = iota + 1
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset of the tightest quota.
	// Reset is the seconds until the quota is full again or, where the request was
	// refused, until it can be made.
	XRateLimit
	// XRateLimitEpoch is XRateLimit with Reset as seconds since 1970.
	XRateLimitEpoch
	// OldRateLimitFields are RateLimit-Limit, -Remaining and -Reset, as in drafts up
	// to 06, with the meaning of XRateLimit.
	OldRateLimitFields
)

const (
	maxInteger = 999_999_999_999_999 // what an Integer of a structured field can hold
	maxSeconds = 1<<31 - 1           // what every client can read as delta-seconds, RFC 9111
)

// The fields in Go's canonical form, for which http.Header needs no conversion.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldRateLimit = "Ratelimit"
	fieldRetry     = "Retry-After"
	fieldExpose    = "Access-Control-Expose-Headers"
)

// fields are the header fields of a middleware, as far as they are the same for
// all answers.
type fields struct {
	quotas []namedQuota // of all policies, in order
	policy string       // the value of RateLimit-Policy; empty if it is not told
	older  []olderForm
	expose string // what Access-Control-Expose-Headers is to name; empty if nothing
}

// An olderForm is three fields for the tightest quota.
type olderForm struct {
	limit, remaining, reset string // their names
	epoch                   bool   // reset is since 1970
}

func newFields(quotas []namedQuota, forms []HeaderForm, unit string, cors bool) (fields, error) {
	f := fields{quotas: quotas}
	if strings.ContainsFunc(unit, func(c rune) bool { return c < ' ' || c > '~' }) {
		return f, fmt.Errorf("the unit %q is not printable ASCII, and can't be in a header", unit)
	}
	var names []string
	seen := make(map[HeaderForm]bool)
	for _, form := range forms {
		if seen[form] {
			continue
		}
		seen[form] = true
		switch form {
		case RateLimitFields:
			f.policy = policyField(quotas, unit)
			names = append(names, "RateLimit-Policy", "RateLimit")
		case XRateLimit, XRateLimitEpoch:
			f.older = append(f.older, olderForm{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", form == XRateLimitEpoch})
			names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
		case OldRateLimitFields:
			f.older = append(f.older, olderForm{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", false})
			names = append(names, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
		default:
			return f, fmt.Errorf("there is no header form %d", form)
		}
	}
	if seen[XRateLimit] && seen[XRateLimitEpoch] {
		return f, errors.New("X-RateLimit-Reset is either seconds from now or since 1970, not both")
	}
	if cors {
		f.expose = strings.Join(append(names, fieldRetry), ", ")
	}
	return f, nil
}

// policyField is the value of RateLimit-Policy.
func policyField(quotas []namedQuota, unit string) string {
	items := make([]string, len(quotas))
	for i, q := range quotas {
		items[i] = fmt.Sprintf("%s;q=%d", quote(q.name), q.limit)
		if unit != "" && unit != "requests" {
			items[i] += ";qu=" + quote(unit)
		}
		if q.windows {
			items[i] += fmt.Sprintf(";w=%d", q.window)
		}
	}
	return strings.Join(items, ", ")
}

// quote writes printable ASCII as a String of a structured field.
func quote(s string) string { return strconv.Quote(s) }

// set tells how a call left the quotas.
func (f *fields) set(h http.Header, c *call) {
	f.setExpose(h)
	if f.policy != "" {
		values := [2]string{f.policy, f.rateLimit(c)}
		setList(h, fieldPolicy, values[0:1:1])
		setList(h, fieldRateLimit, values[1:2:2])
	}
	for _, form := range f.older {
		f.setOlder(h, form, c)
	}
}

func (f *fields) setExpose(h http.Header) {
	if f.expose != "" && h.Get(fieldExpose) != "*" {
		setList(h, fieldExpose, []string{f.expose})
	}
}

// setList sets a field that is a list. What a middleware around this one has told
// stays.
func setList(h http.Header, field string, values []string) {
	if before := h[field]; len(before) > 0 {
		values[0] = strings.Join(before, ", ") + ", " + values[0]
	}
	h[field] = values
}

// rateLimit is the value of RateLimit.
func (f *fields) rateLimit(c *call) string {
	var room [256]byte
	b := room[:0]
	f.each(c, func(q *namedQuota, s ratelimit.QuotaState) {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, q.item...)
		remaining, t := q.stand(c, s)
		b = strconv.AppendInt(b, remaining, 10)
		if t > 0 { // else the quota is full, and no time will add to it
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, t, 10)
		}
	})
	return string(b)
}

// stand is what a client has left of a quota, and within how many seconds it
// can't have more.
func (q *namedQuota) stand(c *call, s ratelimit.QuotaState) (remaining, seconds int64) {
	if refuses(c, s) {
		return 0, q.retryAfter(s)
	}
	return min(max(s.Remaining, 0), maxInteger), wholeSeconds(s.NextAfter)
}

// refuses tells whether a quota is one of those that a request was refused for.
func refuses(c *call, s ratelimit.QuotaState) bool { return !c.granted && s.RetryAfter > 0 }

// retryAfter is when to ask again, in whole seconds. To a client that asked for
// more than there ever is, that is after a window: without a number it would come
// back at once.
func (q *namedQuota) retryAfter(s ratelimit.QuotaState) int64 {
	if s.RetryAfter == ratelimit.Never {
		return q.window
	}
	return atLeastOne(wholeSeconds(s.RetryAfter))
}

// setOlder tells the quota that is nearest to exhaustion.
func (f *fields) setOlder(h http.Header, form olderForm, c *call) {
	var tightest *namedQuota
	var remaining, reset int64
	f.each(c, func(q *namedQuota, s ratelimit.QuotaState) {
		left, t := q.stand(c, s)
		if !refuses(c, s) {
			t = wholeSeconds(s.ResetAfter)
		}
		if tightest == nil || left < remaining || left == remaining && t > reset {
			tightest, remaining, reset = q, left, t
		}
	})
	if form.epoch {
		reset += (time.Now().UnixNano() + int64(time.Second) - 1) / int64(time.Second)
	}
	var room [40]byte // two numbers as one text, and three fields in one array: two allocations, not six
	b := strconv.AppendInt(room[:0], remaining, 10)
	n := len(b)
	text := string(strconv.AppendInt(b, reset, 10))
	values := []string{tightest.limitText, text[:n], text[n:]}
	h[form.limit], h[form.remaining], h[form.reset] = values[0:1:1], values[1:2:2], values[2:3:3]
}

// each calls do with every quota of a call and how it stands. A Limiter of another
// package may not give the states of its quotas: then they all stand as their
// request does.
func (f *fields) each(c *call, do func(*namedQuota, ratelimit.QuotaState)) {
	quotas := f.quotas
	for i := range c.grants {
		g := &c.grants[i]
		for j := range c.requests[i].Quotas {
			s := ratelimit.QuotaState{Remaining: g.Remaining, RetryAfter: g.RetryAfter, ResetAfter: g.ResetAfter}
			if j < len(g.States) {
				s = g.States[j]
			}
			do(&quotas[0], s)
			quotas = quotas[1:]
		}
	}
}

// wholeSeconds is rounded up: who comes back after that long has not come too
// early.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return min(max(seconds, 0), maxSeconds)
}

func atLeastOne(n int64) int64 { return max(n, 1) }
