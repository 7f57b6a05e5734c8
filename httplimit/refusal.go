package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A Refusal is why a request was answered with 429.
type Refusal struct {
	// Violated are the names of the quotas that had no room, as headers tell them.
	Violated []string
	// RetryAfter is that of the header: whole seconds, at least one; for a request
	// that no waiting will help, the longest window that refused it.
	RetryAfter time.Duration
}

const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	// failureRetryAfter is long enough for a storage to be restarted, and short
	// enough for nobody to notice.
	failureRetryAfter = "5"
)

// A problem is a body as in RFC 9457. It repeats nothing that a client sent.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// body is the problem in JSON.
func (p problem) body() []byte {
	body, _ := json.Marshal(p) // of strings and a number
	return append(body, '\n')
}

func problemOfQuotas(violated ...string) problem {
	return problem{
		Type:     quotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: violated,
	}
}

// A refusalBody is a Refusal and, where it is known already, the body that tells it.
type refusalBody struct {
	Refusal
	body []byte
}

func (f *fields) refusal(c *call) refusalBody {
	var refusal refusalBody
	seconds := int64(1)
	f.each(c, func(q *namedQuota, s ratelimit.QuotaState) {
		if refuses(c, s) {
			if refusal.body = nil; len(refusal.Violated) == 0 {
				refusal.body = q.refused
			}
			refusal.Violated = append(refusal.Violated, q.name)
			seconds = max(seconds, q.retryAfter(s))
		}
	})
	refusal.RetryAfter = time.Duration(seconds) * time.Second
	return refusal
}

// refuse answers what does not fit the quotas.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, c *call) {
	refusal := c.fields.refusal(c)
	c.fields.set(w.Header(), c)
	setRetry(w.Header(), strconv.FormatInt(int64(refusal.RetryAfter/time.Second), 10))
	if m.refused != nil {
		m.refused(w, r, refusal.Refusal)
		return
	}
	body := refusal.body
	if body == nil {
		body = problemOfQuotas(refusal.Violated...).body()
	}
	write(w, r, http.StatusTooManyRequests, body)
}

// fail answers what could not be decided.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
	p := problemOf(err)
	ended := r.Context().Err() // a client that has gone is no failure of the storage
	if p.Status != http.StatusBadRequest && !errors.Is(ended, context.Canceled) {
		m.report(r, err)
	}
	if m.failOpen && p.Status == http.StatusServiceUnavailable && storageFailed(err) && ended == nil {
		next.ServeHTTP(w, r)
		return
	}
	m.fields.setExpose(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		setRetry(w.Header(), failureRetryAfter)
	}
	if m.failed != nil {
		m.failed(w, r, err)
		return
	}
	write(w, r, p.Status, p.body())
}

// storageFailed tells errors of a storage, or of a table of limits, from those that
// say something about the request: that there is no limit for its key, for one.
func storageFailed(err error) bool {
	return errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrIndeterminate) || errors.Is(err, ratelimit.ErrMisconfigured)
}

// problemOf is what a client may know of an error: whether it is the client's, the
// program's, or the storage's.
func problemOf(err error) problem {
	switch {
	case errors.Is(err, ErrNoKey):
		return problem{Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest}
	case errors.Is(err, ratelimit.ErrInvalidRequest), errors.Is(err, ratelimit.ErrInvalidQuota):
		return problem{Type: "about:blank", Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}
	default:
		return problem{
			Type:   reducedCapacity,
			Title:  "Request cannot be satisfied due to temporary server capacity constraints",
			Status: http.StatusServiceUnavailable,
		}
	}
}

// setRetry says when to come back, and that this answer is for nobody else.
func setRetry(h http.Header, seconds string) {
	values := []string{seconds, "no-store"}
	h[fieldRetry], h["Cache-Control"] = values[0:1:1], values[1:2:2]
}

// write answers with a problem, and to HEAD with its header only.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	for _, field := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(field) // of an answer that a middleware around this one expected
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
