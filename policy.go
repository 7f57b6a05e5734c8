package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/granule-limits/ratelimit/storage"
)

// A Policy is a Limiter bound to a name and quotas: the short form, for one
// limit and many actors, such as "one new thread a minute for each user". In
// memory a decision allocates nothing.
//
// The actors are keys. What a policy counts for a key belongs to the policy's
// name and the key: policies of different names never share a counter, but
// through a quota's PrefixOverride, which is as given. To a Limiter, the key bob
// of policy login is the prefix "login:bob"; in the name, '%' and ':' are
// written %25 and %3A.
//
// Policies are safe for concurrent use.
type Policy struct {
	name    string
	prefix  string // what keys are put behind
	limiter Limiter
	quotas  []Quota     // nil with a source
	source  QuotaSource // nil with quotas

	// For a limiter of this package, which a policy calls without detours: calls
	// with the cells in place, all but the key.
	direct *core
	calls  sync.Pool
}

// A QuotaSource tells the quotas of each key of a Policy: a table of limits per
// account, say; package limits has some. It is asked at every call, by any number
// of goroutines.
//
// A slice that was given is never changed again. A policy knows the slice that it
// was given last by its address, and need not check it again: a source that gives
// one slice for all keys without limits of their own is fast.
type QuotaSource interface {
	Quotas(ctx context.Context, key string) ([]Quota, error)
}

// A Decision answers one call of a Policy.
type Decision struct {
	// Allowed is whether all that was asked for was granted.
	Allowed bool
	// Granted is how many units that was; with Take it can be a part.
	Granted int64
	// Remaining, RetryAfter and ResetAfter are those of GrantedQuota.
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	// ReachedQuotas are the quotas that made Granted smaller, in order. The slice
	// is the policy's own: do not change it.
	ReachedQuotas []Quota
	// Degraded is that of GrantedQuota.
	Degraded bool

	at int64 // µs since 1970
}

// At is the time of the decision, by the storage's clock. Hand it to Use, and
// what was checked then counts from then.
func (d Decision) At() time.Time { return time.UnixMicro(d.at) }

// NewPolicy binds a limiter to a name and at least one quota. The name is
// printable ASCII, so that it can stand in a header.
func NewPolicy(name string, limiter Limiter, quotas ...Quota) (*Policy, error) {
	p, err := newPolicy(name, limiter)
	if err != nil {
		return nil, err
	}
	p.quotas = slices.Clone(quotas)
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w (policy %q)", err, name)
	}
	return p, nil
}

// NewPolicyFrom is NewPolicy with quotas that are each key's own. Where a key's
// limit changes, what it has used stays used. A source that fails fails the call,
// and nothing is charged.
func NewPolicyFrom(name string, limiter Limiter, source QuotaSource) (*Policy, error) {
	p, err := newPolicy(name, limiter)
	if err != nil {
		return nil, err
	}
	if source == nil {
		return nil, fmt.Errorf("%w: policy %q: the source is nil", ErrInvalidRequest, name)
	}
	p.source = source
	return p, nil
}

func newPolicy(name string, limiter Limiter) (*Policy, error) {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w: the policy's name %q is empty or not printable ASCII", ErrInvalidRequest, name)
	}
	if limiter == nil {
		return nil, fmt.Errorf("%w: policy %q: the limiter is nil", ErrInvalidRequest, name)
	}
	p := &Policy{
		name:    name,
		prefix:  strings.NewReplacer("%", "%25", ":", "%3A").Replace(name) + ":",
		limiter: limiter,
	}
	switch l := limiter.(type) { // not what embeds one, and may do otherwise
	case *core:
		p.direct = l
	case *ListLimiter:
		p.direct = &l.core
	}
	return p, nil
}

// check refuses quotas that the limiter would refuse, as far as that is known.
func (p *Policy) check() error {
	if len(p.quotas) == 0 {
		return fmt.Errorf("%w: no quotas", ErrInvalidRequest)
	}
	if p.direct == nil {
		for _, q := range p.quotas {
			if err := q.Validate(); err != nil {
				return err
			}
		}
		return nil
	}
	return new(policyCall).prepare(p.direct.strategy, p.quotas)
}

// Name is the name that the policy was made with.
func (p *Policy) Name() string { return p.name }

// Limiter is the limiter that the policy was made with.
func (p *Policy) Limiter() Limiter { return p.limiter }

// Quotas are the quotas that the policy was made with, none if it has a source.
// The slice is the policy's own: do not change it.
func (p *Policy) Quotas() []Quota { return p.quotas }

// quotasOf is the quotas of a key.
func (p *Policy) quotasOf(ctx context.Context, key string) ([]Quota, error) {
	if key == "" {
		return nil, fmt.Errorf("%w: the key of policy %q", ErrEmptyPrefix, p.name)
	}
	if p.source == nil {
		return p.quotas, nil
	}
	quotas, err := p.source.Quotas(ctx, key)
	if err == nil && len(quotas) == 0 {
		err = fmt.Errorf("%w: the source gave none", ErrInvalidRequest)
	}
	if err != nil {
		return nil, fmt.Errorf("the quotas of policy %q: %w", p.name, err)
	}
	return quotas, nil
}

// Allow is shorthand for AllowN of 1 unit.
func (p *Policy) Allow(ctx context.Context, key string, opts ...CallOption) (Decision, error) {
	return p.decide(ctx, storage.CheckAndUse, key, 1, true, opts)
}

// AllowN grants n units, and records them, or none. Most callers should use
// Allow, or Wait.
func (p *Policy) AllowN(ctx context.Context, key string, n int64, opts ...CallOption) (Decision, error) {
	return p.decide(ctx, storage.CheckAndUse, key, n, true, opts)
}

// Take grants as many of n units as fit, and records them.
func (p *Policy) Take(ctx context.Context, key string, n int64, opts ...CallOption) (Decision, error) {
	return p.decide(ctx, storage.CheckAndUse, key, n, false, opts)
}

// Check tells what Take would grant, and changes nothing.
func (p *Policy) Check(ctx context.Context, key string, n int64, opts ...CallOption) (Decision, error) {
	return p.decide(ctx, storage.Check, key, n, false, opts)
}

// Use records n units without asking, also above a limit. A negative n gives back
// units that were recorded at the time that At names: with At(d.At()), those of
// the Decision d.
func (p *Policy) Use(ctx context.Context, key string, n int64, opts ...CallOption) error {
	quotas, err := p.quotasOf(ctx, key)
	if err != nil {
		return err
	}
	var at time.Time
	for _, o := range opts {
		if o.set && o.at.IsZero() { // which UseQuotas takes for now
			return fmt.Errorf("%w: the time %v is not between 1970 and %d", ErrInvalidRequest, o.at, maxTime.Year())
		}
		if o.set {
			at = o.at
		}
	}
	requests := p.requests(key, max(n, 0), quotas)
	return p.limiter.UseQuotas(ctx, requests, []GrantedQuota{{Prefix: requests[0].Prefix, Granted: n}}, at)
}

// Reset forgets what the key has used. Quotas with a PrefixOverride are shared
// with other keys, and stay as they are.
func (p *Policy) Reset(ctx context.Context, key string) error {
	quotas, err := p.quotasOf(ctx, key)
	if err != nil {
		return err
	}
	var own []Quota
	for _, q := range quotas {
		if q.PrefixOverride == "" {
			own = append(own, q)
		}
	}
	if own == nil {
		return nil
	}
	return p.limiter.Reset(ctx, p.requests(key, 0, own))
}

// Request is what the policy asks its Limiter for n units of a key, for calls
// that ask several policies at once; see Together.
func (p *Policy) Request(ctx context.Context, key string, n int64) (RequestedQuota, error) {
	quotas, err := p.quotasOf(ctx, key)
	return RequestedQuota{Prefix: p.prefix + key, Requested: n, Quotas: quotas, AllOrNothing: true}, err
}

func (p *Policy) requests(key string, n int64, quotas []Quota) []RequestedQuota {
	return []RequestedQuota{{Prefix: p.prefix + key, Requested: n, Quotas: quotas}}
}

func (p *Policy) decide(ctx context.Context, op storage.Op, key string, n int64, allOrNothing bool, opts []CallOption) (d Decision, err error) {
	quotas := p.quotas // which most policies have, and need not be asked for
	if key == "" || p.source != nil {
		if quotas, err = p.quotasOf(ctx, key); err != nil {
			return Decision{}, err
		}
	}
	if p.direct == nil {
		return p.decideThrough(ctx, op, key, n, quotas, allOrNothing, opts)
	}
	if n < 0 || n > storage.MaxNumber {
		return Decision{}, fmt.Errorf("%w: n %d is not between 0 and %d", ErrInvalidRequest, n, int64(storage.MaxNumber))
	}
	c, err := p.newCall(quotas)
	if err != nil {
		return Decision{}, fmt.Errorf("%w (policy %q)", err, p.name)
	}
	c.begin(op)
	r := &c.Requests[0]
	r.Requested, r.AllOrNothing = n, allOrNothing
	if err = c.setOptions(opts); err == nil {
		c.setKey(p, key)
		err = p.direct.run(ctx, &c.Call)
	}
	if err == nil {
		d.Allowed, d.Granted, d.at = r.Granted == n, r.Granted, c.Now
		d.Remaining, d.RetryAfter, d.ResetAfter = summary(r.Cells)
		if !d.Allowed {
			d.ReachedQuotas = reached(quotas, r.Cells)
		}
	}
	p.calls.Put(c)
	return d, err
}

// decideThrough asks a Limiter that is not of this package.
func (p *Policy) decideThrough(ctx context.Context, op storage.Op, key string, n int64, quotas []Quota, allOrNothing bool, opts []CallOption) (Decision, error) {
	requests := p.requests(key, n, quotas)
	requests[0].AllOrNothing = allOrNothing
	var grants []GrantedQuota
	var err error
	if op == storage.Check {
		_, grants, err = p.limiter.CheckWithinQuotas(ctx, requests, opts...)
	} else {
		grants, err = p.limiter.CheckAndUseQuotas(ctx, requests, opts...)
	}
	if err == nil && len(grants) != 1 {
		err = fmt.Errorf("%w: the limiter of policy %q gave %d grants for 1 request", ErrMisconfigured, p.name, len(grants))
	}
	if err != nil {
		return Decision{}, err
	}
	g := &grants[0]
	return Decision{
		Allowed:       g.Granted == n,
		Granted:       g.Granted,
		Remaining:     g.Remaining,
		RetryAfter:    g.RetryAfter,
		ResetAfter:    g.ResetAfter,
		ReachedQuotas: g.ReachedQuotas,
		Degraded:      g.Degraded,
		at:            g.At.UnixMicro(),
	}, nil
}

// A policyCall is a call with the cells of some quotas in it.
type policyCall struct {
	call
	quotas   []Quota
	prefixes []*string // of the cells that count by the key
	key      []byte    // behind the policy's name
}

func (p *Policy) newCall(quotas []Quota) (*policyCall, error) {
	c, ok := p.calls.Get().(*policyCall)
	if !ok {
		c = new(policyCall)
	}
	if len(c.quotas) == len(quotas) && &c.quotas[0] == &quotas[0] {
		return c, nil
	}
	return c, c.prepare(p.direct.strategy, quotas)
}

func (c *policyCall) prepare(s *strategy, quotas []Quota) error {
	c.quotas, c.Requests, c.cells = nil, c.Requests[:0], make([]storage.Cell, 0, len(quotas))
	if err := c.fillRequest(s, 0, &RequestedQuota{Prefix: "any", Quotas: quotas}); err != nil {
		return err
	}
	c.quotas, c.prefixes = quotas, nil
	for i := range c.cells {
		if k := &c.cells[i].Key; !k.Counter.Value().Shared {
			c.prefixes = append(c.prefixes, &k.Prefix)
		}
	}
	return nil
}

// setKey puts a key into the cells that count by it. The prefix is a string over
// bytes that the next call writes again: storages copy what they keep.
func (c *policyCall) setKey(p *Policy, key string) {
	if len(c.key) == 0 {
		c.key = append(c.key, p.prefix...)
	}
	c.key = append(c.key[:len(p.prefix)], key...)
	prefix := unsafe.String(&c.key[0], len(c.key))
	if len(prefix) > maxPrefix || p.prefix == digested { // there is no other colon in it
		prefix = shortPrefix(prefix)
	}
	for _, p := range c.prefixes {
		*p = prefix
	}
}

// reached is the quotas of the cells that were reached, without an allocation
// where they stand together.
func reached(quotas []Quota, cells []storage.Cell) (reached []Quota) {
	for i := range cells {
		switch {
		case !cells[i].Reached:
		case len(reached) == 0:
			reached = quotas[i : i+1 : i+1]
		case cells[i-1].Reached && cap(reached) == len(reached) && &reached[0] == &quotas[i-len(reached)]:
			reached = quotas[i-len(reached) : i+1 : i+1]
		default:
			reached = append(reached, quotas[i])
		}
	}
	return reached
}
