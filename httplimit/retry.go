package httplimit

import (
	"net/http"
	"strings"
	"time"
)

// pauseOf is how long an answer asks its client not to come back: by Retry-After
// if it is a refusal, else by a quota in RateLimit that has nothing left. What is
// malformed is ignored. ok is whether the answer says anything.
func pauseOf(answer *http.Response, now time.Time) (pause time.Duration, ok bool) {
	if refusedBy(answer) {
		if pause, ok = retryAfter(answer.Header, now); ok {
			return pause, true
		}
	}
	pause = exhausted(answer.Header.Values("RateLimit"))
	return pause, pause > 0
}

// refusedBy tells whether the other side did not do what it was asked for, because
// of a limit or of its load.
func refusedBy(answer *http.Response) bool {
	return answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable
}

// retryAfter reads Retry-After, as seconds or as a date. The past is no pause. A
// date is compared with the answer's own, if it has one: clocks differ.
func retryAfter(h http.Header, now time.Time) (pause time.Duration, ok bool) {
	value := trim(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds := int64(0)
		for _, d := range []byte(value) { // up to a number that any cap is below
			seconds = min(seconds*10+int64(d-'0'), maxSeconds)
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := parseDate(value)
	if err != nil {
		return 0, false
	}
	if theirs, err := parseDate(h.Get("Date")); err == nil {
		now = theirs
	}
	return max(0, date.Sub(now)), true
}

// parseDate reads the dates of HTTP, and the one with UTC for GMT that some
// servers send.
func parseDate(s string) (time.Time, error) {
	if gmt, ok := strings.CutSuffix(s, " UTC"); ok {
		s = gmt + " GMT"
	}
	return http.ParseTime(s)
}

// resendable tells whether a request can be sent again: because it does no harm to
// do it twice, and because there is a way to its body.
func resendable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// As net/http has it: the client says that the other side knows repetitions.
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// again is a request with its body from the start.
func again(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	copied := *r
	copied.Body = body
	return &copied, nil
}
