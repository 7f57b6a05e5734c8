package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A middleware is what New makes, with the options in it.
type middleware struct {
	rules    []rule
	limiter  ratelimit.Limiter // of all policies
	cost     func(*http.Request) int64
	skip     func(*http.Request) bool
	countIf  func(status int) bool
	forms    []HeaderForm
	unit     string
	cors     bool
	failOpen bool
	onError  func(*http.Request, error)
	refused  func(http.ResponseWriter, *http.Request, Refusal)
	failed   func(http.ResponseWriter, *http.Request, error)
	dryRun   func(*http.Request, Refusal)

	fields  *fields // for policies whose quotas are the same for all
	sourced bool    // not all are
	plain   bool    // a yes or no is all that is needed to know; see askPlainly
	granted *call   // the answer to all requests that askPlainly lets through
	invalid error   // of an option
}

// A rule is a policy and whom it counts for.
type rule struct {
	policy *ratelimit.Policy
	key    KeyFunc
}

// sourced tells whether the quotas are each key's own.
func (r rule) sourced() bool { return r.policy.Quotas() == nil }

// New makes a middleware that lets through the requests that fit a policy, and
// answers the others with 429. The key of a request is its peer's address, unless
// WithKey says otherwise.
//
// It refuses policies that have different limiters, which could not be decided in
// one call, and names that could not stand in a header.
func New(policy *ratelimit.Policy, opts ...Option) (func(http.Handler) http.Handler, error) {
	m := &middleware{
		rules: []rule{{policy, PeerAddr()}},
		forms: []HeaderForm{RateLimitFields},
	}
	for _, o := range opts {
		o(m)
	}
	if err := m.prepare(); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}, nil
}

// prepare refuses what cannot work, and works out what is the same for all
// requests.
func (m *middleware) prepare() error {
	if m.invalid != nil {
		return m.invalid
	}
	for _, r := range m.rules {
		switch {
		case r.policy == nil:
			return errors.New("a policy is nil")
		case r.key == nil:
			return fmt.Errorf("policy %q: the key function is nil", r.policy.Name())
		case m.limiter == nil:
			m.limiter = r.policy.Limiter()
		case !same(m.limiter, r.policy.Limiter()):
			return fmt.Errorf("policies %q and %q have different limiters: make them with the same one, or two middlewares",
				m.rules[0].policy.Name(), r.policy.Name())
		}
	}
	var err error
	if m.fields, err = m.newFields(func(i int) []ratelimit.Quota { return m.rules[i].policy.Quotas() }); err != nil {
		return err
	}
	m.granted = &call{granted: true, fields: m.fields}
	for i := range m.fields.quotas {
		q := &m.fields.quotas[i]
		q.refused = problemOfQuotas(q.name).body()
	}
	m.sourced = slices.ContainsFunc(m.rules, rule.sourced)
	m.plain = len(m.fields.quotas) == 1 && len(m.forms) == 0 && m.countIf == nil && !m.sourced
	return nil
}

func (m *middleware) newFields(quotasOf func(i int) []ratelimit.Quota) (*fields, error) {
	quotas, err := namedQuotas(m.rules, quotasOf)
	if err != nil {
		return nil, err
	}
	f, err := newFields(quotas, m.forms, m.unit, m.cors)
	return &f, err
}

// same is ==, which panics where a Limiter of another package is a struct that
// cannot be compared.
func same(a, b ratelimit.Limiter) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.skip != nil && m.skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	c, err := m.ask(r)
	switch {
	case m.dryRun != nil:
		m.rehearse(w, r, next, c, err)
	case err != nil:
		m.fail(w, r, next, err)
	case !c.granted:
		m.refuse(w, r, c)
	case m.countIf != nil:
		c.fields.set(w.Header(), c)
		m.serveCounted(w, r, next, c)
	default:
		c.fields.set(w.Header(), c)
		next.ServeHTTP(w, r)
	}
}

// rehearse reports what would not have been served, and serves it.
func (m *middleware) rehearse(w http.ResponseWriter, r *http.Request, next http.Handler, c *call, err error) {
	switch {
	case err != nil:
		m.report(r, err)
	case !c.granted:
		m.dryRun(r, c.fields.refusal(c).Refusal)
	case m.countIf != nil:
		m.serveCounted(w, r, next, c)
		return
	}
	next.ServeHTTP(w, r)
}

// A call is one request's question to the limiter, and the answer.
type call struct {
	requests []ratelimit.RequestedQuota
	grants   []ratelimit.GrantedQuota
	at       time.Time // of a check that a use may follow
	granted  bool
	fields   *fields // that tell of it

	room [2]ratelimit.RequestedQuota // for requests, which are hardly ever more
}

// ask puts the question for all policies in one call, all or nothing.
func (m *middleware) ask(r *http.Request) (*call, error) {
	n := int64(1)
	if m.cost != nil {
		n = m.cost(r)
	}
	if m.plain {
		return m.askPlainly(r, n)
	}
	c := &call{fields: m.fields}
	c.requests = c.room[:0]
	for _, rule := range m.rules {
		key, err := rule.key.of(r)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", rule.policy.Name(), err)
		}
		request, err := rule.policy.Request(r.Context(), key, n)
		if err != nil {
			return nil, err
		}
		c.requests = append(c.requests, request)
	}
	if m.sourced { // the quotas are this client's own
		var err error
		if c.fields, err = m.newFields(func(i int) []ratelimit.Quota { return c.requests[i].Quotas }); err != nil {
			return nil, err
		}
	}
	return c, m.decide(r.Context(), c)
}

// askPlainly asks for one quota that no header tells, by the way on which a policy
// allocates nothing.
func (m *middleware) askPlainly(r *http.Request, n int64) (*call, error) {
	rule := m.rules[0]
	key, err := rule.key.of(r)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", rule.policy.Name(), err)
	}
	d, err := rule.policy.AllowN(r.Context(), key, n)
	if err != nil {
		return nil, err
	}
	if d.Allowed {
		return m.granted, nil
	}
	return &call{
		fields:   m.fields,
		requests: []ratelimit.RequestedQuota{{Requested: n, Quotas: rule.policy.Quotas()}},
		grants:   []ratelimit.GrantedQuota{{Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}},
	}, nil
}

var together = []ratelimit.CallOption{ratelimit.Together()}

func (m *middleware) decide(ctx context.Context, c *call) (err error) {
	var opts []ratelimit.CallOption
	if len(c.requests) > 1 { // one alone is granted in full, or not, anyway
		opts = together
	}
	if m.countIf != nil {
		c.at, c.grants, err = m.limiter.CheckWithinQuotas(ctx, c.requests, opts...)
	} else {
		c.grants, err = m.limiter.CheckAndUseQuotas(ctx, c.requests, opts...)
	}
	if err != nil {
		return err
	}
	if len(c.grants) != len(c.requests) {
		return fmt.Errorf("%w: the limiter gave %d grants for %d requests", ratelimit.ErrMisconfigured, len(c.grants), len(c.requests))
	}
	c.granted = true
	for i := range c.grants {
		c.granted = c.granted && c.grants[i].Granted == c.requests[i].Requested
	}
	return nil
}

// serveCounted uses what was checked if the answer is one that counts. It does so
// as soon as the status is known, not when the handler has returned: a client
// that is slow to read its answers must not be able to put off the charge.
func (m *middleware) serveCounted(w http.ResponseWriter, r *http.Request, next http.Handler, c *call) {
	w, rec := record(w, func(status int) {
		if !m.countIf(status) {
			return
		}
		// What is to be counted has happened, whether or not the client still waits.
		err := m.limiter.UseQuotas(context.WithoutCancel(r.Context()), c.requests, c.grants, c.at)
		if err != nil {
			m.report(r, fmt.Errorf("an answer that counts was not counted: %w", err))
		}
	})
	panicking := true
	defer func() {
		if panicking { // not recovered: net/http tells where it came from
			rec.learn(http.StatusInternalServerError)
		}
		rec.learn(http.StatusOK)
	}()
	next.ServeHTTP(w, r)
	panicking = false
}

func (m *middleware) report(r *http.Request, err error) {
	if m.onError != nil {
		m.onError(r, err)
	}
}
