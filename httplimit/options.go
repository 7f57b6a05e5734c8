package httplimit

import (
	"errors"
	"net/http"

	"github.com/granule-limits/ratelimit"
)

// An Option changes what New makes.
type Option func(*middleware)

// WithKey counts requests under another key than the peer's address.
func WithKey(key KeyFunc) Option {
	return func(m *middleware) { m.rules[0].key = key }
}

// WithPolicy adds a policy that a request has to fit as well, under a key of its
// own. All policies are asked in one call, and charged together or not at all;
// they must have the same Limiter.
func WithPolicy(policy *ratelimit.Policy, key KeyFunc) Option {
	return func(m *middleware) { m.rules = append(m.rules, rule{policy, key}) }
}

// WithCost charges a request as many units as cost says, to every policy; 1
// without it. A cost of 0 asks only how things stand. A negative one is an error,
// answered with 500.
func WithCost(cost func(*http.Request) int64) Option {
	return func(m *middleware) {
		m.need(cost != nil, "WithCost")
		m.cost = cost
	}
}

// WithSkip does not limit the requests for which skip is true: health checks, or
// CORS preflights.
func WithSkip(skip func(*http.Request) bool) Option {
	return func(m *middleware) {
		m.need(skip != nil, "WithSkip")
		m.skip = skip
	}
}

// WithCountIf counts only the requests that were answered with a status for which
// count is true, such as failed logins. A request is first checked, and charged
// when its status is known, as of the time of the check. A handler that panics
// before it has begun to answer counts as 500, one that hijacks the connection as
// 101.
//
// Requests under way at the same time can pass the check together, and the limit
// with it. Against that put a second middleware around this one that counts all
// requests, with a higher limit. The header fields of such answers tell how things
// stood before them.
func WithCountIf(count func(status int) bool) Option {
	return func(m *middleware) {
		m.need(count != nil, "WithCountIf")
		m.countIf = count
	}
}

// WithHeaders tells the quotas in these forms instead of RateLimitFields only;
// with no form, not at all. A 429 has its Retry-After in any case.
func WithHeaders(forms ...HeaderForm) Option {
	return func(m *middleware) { m.forms = forms }
}

// WithUnit names what is counted, the parameter qu of RateLimit-Policy, where it
// is not requests: "content-bytes", for instance, beside a WithCost that measures
// them.
func WithUnit(unit string) Option {
	return func(m *middleware) { m.unit = unit }
}

// WithExposedHeaders lists the fields in Access-Control-Expose-Headers, without
// which scripts of other origins cannot read them.
func WithExposedHeaders() Option {
	return func(m *middleware) { m.cors = true }
}

// WithFailOpen lets requests through, unlimited, while the storage fails, or a
// source of quotas does: with ratelimit.ErrUnavailable, ErrIndeterminate or
// ErrMisconfigured. Without it they are answered with 503. Nothing else lets a request
// through: not that there is no limit for its key, limits.ErrUnknownResource, nor that
// its key cannot be told, nor that its context has ended; else everybody could choose
// not to be counted.
func WithFailOpen() Option {
	return func(m *middleware) { m.failOpen = true }
}

// WithOnError has the failures of the storage reported, of which a client learns
// nothing but 503, and with WithFailOpen nobody anything. Clients that go away are
// not reported.
func WithOnError(report func(r *http.Request, err error)) Option {
	return func(m *middleware) { m.onError = report }
}

// WithRefusalHandler answers what was refused. The header fields are set, with
// Retry-After and Cache-Control; the status and the body are the handler's.
func WithRefusalHandler(handler func(w http.ResponseWriter, r *http.Request, refusal Refusal)) Option {
	return func(m *middleware) {
		m.need(handler != nil, "WithRefusalHandler")
		m.refused = handler
	}
}

// WithFailureHandler answers what could not be decided: because a key could not
// be told, an error that wraps ErrNoKey, or because the storage failed.
// Cache-Control is set and, but for ErrNoKey, Retry-After.
func WithFailureHandler(handler func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(m *middleware) {
		m.need(handler != nil, "WithFailureHandler")
		m.failed = handler
	}
}

// WithDryRun serves everything, sets no header, and reports what would have been
// refused: to try a limit before it is put in force. What would have been served
// is counted; failures, also ErrNoKey, go to WithOnError.
func WithDryRun(report func(r *http.Request, refusal Refusal)) Option {
	return func(m *middleware) {
		m.need(report != nil, "WithDryRun")
		m.dryRun = report
	}
}

func (m *middleware) need(ok bool, option string) {
	if !ok && m.invalid == nil {
		m.invalid = errors.New(option + ": the function is nil")
	}
}
