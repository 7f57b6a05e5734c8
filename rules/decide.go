package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// A Request is what rules are asked about: by its path and values, by its domain and
// descriptors, or both.
type Request struct {
	// Path is escaped, as URL.EscapedPath has it; it is cleaned as ServeMux does. Method
	// and Host are for patterns that have one; a port in Host does not matter.
	Path, Method, Host string
	// Values are what descriptors of paths count by: of a key that is not there, no
	// descriptor applies. A wildcard of the path is a value, too, and goes before one that is given.
	Values map[string]string

	// Domain and Descriptors are for files of Envoy's service.
	Domain      string
	Descriptors []Descriptor

	// Units is what is asked for; 0 means 1.
	Units int64
}

// A Descriptor is a list of keys and values that Envoy's rules count by, the outermost first.
type Descriptor []Entry

// An Entry of a Descriptor.
type Entry struct{ Key, Value string }

// A Decision answers a Request.
type Decision struct {
	// Allowed is whether all rules in force had room, and were charged; else none was.
	Allowed bool
	// Matched is how many limits applied, shadow rules included. With 0 all is allowed.
	Matched int
	// Remaining is what the tightest rule in force has left; 0 if none applied.
	Remaining int64
	// RetryAfter is how long until the same request would be allowed by the rules in
	// Refused, if nobody else asked; ratelimit.Never if it can't. 0 if it was allowed.
	RetryAfter time.Duration
	// Refused are the rules that had no room. If rules of several strategies apply,
	// others may have had none either.
	Refused []Hit
	// Shadow are the shadow rules that would have refused what was allowed.
	Shadow []Hit
	// Err is what failed when the answer was clear, and does not change it: a shadow rule that
	// could not be asked, or ErrOvercharged.
	Err error
}

// A Hit is a rule that had no room.
type Hit struct {
	Rule       string          // the path or the domain, and the keys: "/api/{rest...} account=acme"
	Place      string          // file:line
	Quota      ratelimit.Quota // Name is the rule's name, if it has one
	Strategy   string
	RetryAfter time.Duration // as in Decision, as far as this rule goes
}

// ErrOvercharged: rules of several strategies applied, a later one refused or failed, and what
// the earlier ones were charged could not be given back.
var ErrOvercharged = errors.New("rules: charged, though not allowed, and not given back")

// giveBackTimeout bounds what happens after the caller's context may have ended.
const giveBackTimeout = time.Second

var together = slices.Clip([]ratelimit.CallOption{ratelimit.Together()})

// Decide asks all rules that apply to a request, and charges all of them or none. Being
// refused is not an error.
//
// Rules in force that have the same strategy are one call of the storage. Of several strategies each is
// a call: if a later one refuses, the earlier ones are given back what they were charged. So no
// limit is ever passed, but for that moment units can seem used that are not. Shadow
// rules are asked in a call of their own after the others have allowed the request, each for
// itself; what the others refused they do not count.
//
// An error is a bad request, ratelimit.ErrInvalidRequest, or a storage that failed; see package
// ratelimit for what became of the charge.
func (e *Engine) Decide(ctx context.Context, r Request, opts ...ratelimit.CallOption) (Decision, error) {
	if err := r.validate(); err != nil {
		return Decision{}, err
	}
	c := calls.Get().(*call)
	defer c.free()
	e.set.Load().match(c, &r)
	c.ask(max(r.Units, 1))
	return e.decide(ctx, c, opts)
}

func (r *Request) validate() error {
	switch {
	case r.Path == "" && r.Domain == "":
		return fmt.Errorf("%w: neither Path nor Domain", ratelimit.ErrInvalidRequest)
	case r.Domain == "" && len(r.Descriptors) > 0:
		return fmt.Errorf("%w: Descriptors without a Domain", ratelimit.ErrInvalidRequest)
	case r.Units < 0:
		return fmt.Errorf("%w: Units %d is negative", ratelimit.ErrInvalidRequest, r.Units)
	case r.Units > storage.MaxNumber:
		return fmt.Errorf("%w: Units %d is above %d", ratelimit.ErrInvalidRequest, r.Units, int64(storage.MaxNumber))
	}
	return nil
}

// decide goes through what matched, a strategy at a time.
func (e *Engine) decide(ctx context.Context, c *call, opts []ratelimit.CallOption) (Decision, error) {
	d := Decision{Allowed: true, Matched: len(c.matched)}
	var charged []charge
	for first, last := 0, 0; first < len(c.matched); first = last {
		last = c.sameStrategy(first)
		if c.matched[first].limit.shadow {
			e.rehearse(ctx, c, first, last, opts, &d)
			continue
		}
		grants, err := e.ask(ctx, c, first, last, opts)
		if err != nil {
			return Decision{}, errors.Join(err, e.giveBack(ctx, c, charged))
		}
		if !c.granted(first, grants) {
			return c.refused(e, d, first, grants, e.giveBack(ctx, c, charged)), nil
		}
		for i := range grants {
			if d.Remaining = min(d.Remaining, grants[i].Remaining); first+i == 0 {
				d.Remaining = grants[i].Remaining
			}
		}
		if last < len(c.matched) && !c.matched[last].limit.shadow {
			charged = append(charged, charge{first, last, grants})
		}
	}
	return d, nil
}

// sameStrategy is the end of the matches that are one call with the first.
func (c *call) sameStrategy(first int) int {
	last := first + 1
	for of := c.matched[first].limit; last < len(c.matched); last++ {
		if l := c.matched[last].limit; l.strategy != of.strategy || l.shadow != of.shadow {
			break
		}
	}
	return last
}

func (e *Engine) ask(ctx context.Context, c *call, first, last int, opts []ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	if last-first > 1 && !c.matched[first].limit.shadow {
		opts = append(together, opts...)
	}
	requests := c.requests[first:last:last]
	grants, err := e.limiters[c.matched[first].limit.strategy].CheckAndUseQuotas(ctx, requests, opts...)
	if err == nil && len(grants) != len(requests) {
		err = fmt.Errorf("%w: the limiter gave %d grants for %d requests", ratelimit.ErrMisconfigured, len(grants), len(requests))
	}
	return grants, err
}

func (c *call) granted(first int, grants []ratelimit.GrantedQuota) bool {
	for i := range grants {
		if grants[i].Granted < c.requests[first+i].Requested {
			return false
		}
	}
	return true
}

// rehearse asks shadow rules, which never refuse.
func (e *Engine) rehearse(ctx context.Context, c *call, first, last int, opts []ratelimit.CallOption, d *Decision) {
	grants, err := e.ask(ctx, c, first, last, opts)
	if err != nil {
		d.Err = errors.Join(d.Err, fmt.Errorf("rules: shadow rules were not asked: %w", err))
		return
	}
	d.Shadow = c.hits(e, d.Shadow, first, grants)
}

// refused is the answer where the rules from first on had no room.
func (c *call) refused(e *Engine, d Decision, first int, grants []ratelimit.GrantedQuota, notGivenBack error) Decision {
	d.Allowed, d.Remaining, d.Err = false, grants[0].Remaining, notGivenBack
	for _, g := range grants {
		d.Remaining = min(d.Remaining, g.Remaining)
		d.RetryAfter = max(d.RetryAfter, g.RetryAfter)
	}
	d.Refused = c.hits(e, nil, first, grants)
	return d
}

// hits are the rules without room: of a call together, others were not granted either, and
// would not have to wait.
func (c *call) hits(e *Engine, hits []Hit, first int, grants []ratelimit.GrantedQuota) []Hit {
	for i, g := range grants {
		m := c.matched[first+i]
		if g.Granted == c.requests[first+i].Requested || g.RetryAfter == 0 {
			continue
		}
		rule := m.limit.rule
		if m.limit.detailed {
			rule += "=" + m.value
		}
		hits = append(hits, Hit{
			Rule:       rule,
			Place:      m.limit.place.String(),
			Quota:      m.limit.quotas[0],
			Strategy:   e.strategies[m.limit.strategy],
			RetryAfter: g.RetryAfter,
		})
	}
	return hits
}

// A charge is grants that may have to be given back.
type charge struct {
	first, last int
	grants      []ratelimit.GrantedQuota
}

// giveBack undoes charges, each unit at the time at which it was charged. A context that has
// ended does not stop it.
func (e *Engine) giveBack(ctx context.Context, c *call, charged []charge) error {
	if len(charged) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	var errs []error
	for _, ch := range charged {
		limiter := e.limiters[c.matched[ch.first].limit.strategy]
		for i := range ch.grants {
			ch.grants[i].Granted = -ch.grants[i].Granted
		}
		// Servers of a cluster have each their own clock.
		for from, to := 0, 0; from < len(ch.grants); from = to {
			at := ch.grants[from].At
			for to = from + 1; to < len(ch.grants) && ch.grants[to].At.Equal(at); to++ {
			}
			err := limiter.UseQuotas(ctx, c.requests[ch.first+from:ch.first+to], ch.grants[from:to], at)
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %s: %w", ErrOvercharged, c.matched[ch.first+from].limit.rule, err))
			}
		}
	}
	return errors.Join(errs...)
}
