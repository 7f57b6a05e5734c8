package httplimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A Transport is a http.RoundTripper that sends a request when it fits a policy
// of one's own, and when the other side has not asked for a pause:
//
//	client := &http.Client{Transport: &httplimit.Transport{Policy: policy}}
//
// The other side asks by Retry-After in a 429 or 503, or by a quota in RateLimit
// that has nothing left. Its answers are returned as they are, a 429 with a nil
// error, unless Retries says otherwise. Errors are
//
//   - *ratelimit.LimitedError with Refuse, or ratelimit.ErrDeadlineTooNear and the
//     other errors of Policy.Wait without it, for one's own policy;
//   - *PausedError for a pause of the other side that Refuse forbids to wait for,
//     or that the request's context would not live to see the end of;
//   - the context's own, and those of Base.
//
// http.Client wraps them in a *url.Error: use errors.As and errors.Is.
//
// A Transport is safe for concurrent use, but its fields must not be changed. It
// must not be copied once it is used.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Policy is the limit of one's own; nil if there is none.
	Policy *ratelimit.Policy
	// Key is whom the other side counts for, in the policy and for pauses; nil
	// means the host of the request's URL, in lower case, and its port if that is not
	// the scheme's own.
	Key KeyFunc
	// Refuse returns an error where the Transport would otherwise wait.
	Refuse bool
	// MaxPause is the longest pause that the other side can ask for, against
	// mistakes and malice; zero means 5 minutes. Longer ones are cut, and what they
	// refused is not sent again.
	MaxPause time.Duration
	// Retries is how often a request that was answered 429 or 503 is sent again, after
	// the pause, or a growing one of 1, 2, 4 … seconds where the answer names none, or
	// one that is over: 0, or a date in the past. Only requests that can be repeated
	// are: those of idempotent methods or with an Idempotency-Key, and with no body or
	// one that GetBody gives again. Each time counts for the policy. What can't be sent
	// again, because the context would end first or one's own limit refuses it, leaves
	// the answer as it is.
	Retries int

	pauses pauses
}

const defaultMaxPause = 5 * time.Minute

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := t.key(r)
	if err == nil {
		err = t.admit(r, key)
	}
	if err != nil {
		closeBody(r) // a RoundTripper does so also if it sends nothing
		return nil, err
	}
	for tries := 0; ; tries++ {
		answer, err := t.base().RoundTrip(r)
		if err != nil {
			return nil, err
		}
		pause := t.learn(answer, key)
		if tries >= t.Retries || !refusedBy(answer) || !resendable(r) {
			return answer, nil
		}
		if pause == 0 {
			pause = min(time.Second<<min(tries, 30), t.maxPause())
		}
		next, err := t.retry(r, key, pause)
		if err != nil {
			return answerOr(r.Context(), answer)
		}
		drain(answer)
		r = next
	}
}

// CloseIdleConnections has Base close its own; http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) maxPause() time.Duration {
	if t.MaxPause == 0 {
		return defaultMaxPause
	}
	return t.MaxPause
}

func (t *Transport) key(r *http.Request) (string, error) {
	if t.Key != nil {
		return t.Key.of(r)
	}
	if r.URL != nil {
		if host := hostOf(r.URL); host != "" {
			return host, nil
		}
	}
	return noKey("no host in the URL")
}

// hostOf is a URL's host as all its spellings have it: in lower case, without the
// port that is the scheme's own.
func hostOf(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Host), ":")
	if u.Scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// admit returns when the request may be sent. A pause can begin while the request
// waits for its policy, which is not to be charged twice for that.
func (t *Transport) admit(r *http.Request, key string) error {
	if err := t.waitPause(r, key); err != nil {
		return err
	}
	if t.Policy == nil {
		return nil
	}
	if t.Refuse {
		return t.allow(r.Context(), key)
	}
	if err := t.Policy.Wait(r.Context(), key); err != nil {
		return err
	}
	return t.waitPause(r, key)
}

func (t *Transport) allow(ctx context.Context, key string) error {
	d, err := t.Policy.Allow(ctx, key)
	if err == nil && !d.Allowed {
		err = &ratelimit.LimitedError{Policy: t.Policy.Name(), Key: key, Decision: d}
	}
	return err
}

func (t *Transport) waitPause(r *http.Request, key string) error {
	for {
		left := t.pauses.left(key)
		switch {
		case left == 0:
			return r.Context().Err()
		case t.Refuse || !lasts(r.Context(), left):
			return &PausedError{Host: r.URL.Host, RetryAfter: left}
		}
		if err := sleep(r.Context(), left); err != nil {
			return fmt.Errorf("httplimit: waiting for a pause of %s: %w", r.URL.Host, err)
		}
	}
}

// learn remembers the pause that an answer asks for, and returns it; 0 if it asks
// for none.
func (t *Transport) learn(answer *http.Response, key string) time.Duration {
	pause, ok := pauseOf(answer, time.Now())
	if !ok {
		return 0
	}
	t.pauses.add(key, min(pause, t.maxPause()))
	return pause
}

// retry waits for a pause, asks the policy, and returns the request to send. A
// pause is waited for even with Refuse: who asks for retries asks for it.
func (t *Transport) retry(r *http.Request, key string, pause time.Duration) (*http.Request, error) {
	if pause > t.maxPause() || !lasts(r.Context(), pause) {
		return nil, &PausedError{Host: r.URL.Host, RetryAfter: pause}
	}
	if err := sleep(r.Context(), pause); err != nil {
		return nil, err
	}
	if err := t.admit(r, key); err != nil {
		return nil, err
	}
	return again(r)
}

// answerOr is the answer that a retry could not better, or the error of a context
// that has ended meanwhile.
func answerOr(ctx context.Context, answer *http.Response) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// lasts tells whether a context lives that long.
func lasts(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= d
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain reads a short body to its end, so that the connection can be used again. It does
// not wait for one that does not come.
func drain(answer *http.Response) {
	if answer.ContentLength >= 0 && answer.ContentLength <= 64<<10 {
		late := time.AfterFunc(time.Second, func() { _ = answer.Body.Close() })
		_, _ = io.Copy(io.Discard, answer.Body)
		late.Stop()
	}
	_ = answer.Body.Close()
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
