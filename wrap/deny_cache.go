package wrap

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
)

const (
	denyShards        = 64
	defaultMaxEntries = 1 << 16
	defaultMaxHold    = time.Minute
	// evictionLook is how many entries are looked at for one that has expired
	// before a live one is put out.
	evictionLook = 8
	// maxPrefix is how many bytes of a prefix are kept as they are.
	maxPrefix = 200
	// cutOff is the most that is cut off a limiter's clock, which has whole µs: its
	// times may count from so much before the call.
	cutOff = time.Microsecond - time.Nanosecond
)

// A DenyCacheOption changes a DenyCache.
type DenyCacheOption func(*denyCache)

// WithMaxEntries bounds the number of refusals that are kept, rounded up to a
// multiple of 64; the default is 65,536. One takes about 400 bytes, 100 more for each
// quota but the first, and its prefixes, where one of more than 200 bytes is kept as a
// digest. A new one that finds no room takes the place of one that has expired or, if
// there is none nearby, of any: that costs the calls that it would have saved.
func WithMaxEntries(n int) DenyCacheOption {
	return func(c *denyCache) { c.perShard = (max(n, 1)-1)/denyShards + 1 }
}

// WithMaxHold bounds how long a refusal is repeated without asking the limiter, and
// so how long a Reset, a raised limit or units given back elsewhere can go unseen
// here; a minute if not given. Nothing is held with 0.
func WithMaxHold(d time.Duration) DenyCacheOption {
	return func(c *denyCache) { c.maxHold = d }
}

// DenyCache is for those who go on asking when they were refused. After a
// CheckAndUseQuotas of one request was refused, the same request, of the same
// counters under the same limits for at least as many units, is refused here until
// its RetryAfter has passed, without a call of the limiter. A request that takes a
// part where a part fits is refused here only as long as there is no unit at all.
//
// It never refuses what the limiter itself would have granted, but where its
// knowledge is out of date:
//
//   - after a Reset elsewhere, or units given back elsewhere;
//   - where somebody raised the limit of the same counters: elsewhere, or, with a token
//     bucket, by asking through this DenyCache by a higher Limit, at whose pace the
//     bucket is refilled from then on;
//   - where somebody used them At a time ahead of the clock;
//   - where a cluster call over several slots held units for a moment that it then
//     gave back;
//   - where the storage lost its counters;
//   - around a Fallback, where the primary went down, and the Mode would have granted.
//
// WithMaxHold bounds for how long. A Reset through this DenyCache, or a UseQuotas that
// gives units back, forgets what it held of the same Prefix or PrefixOverride, and
// another Limit in the request is another request.
//
// RetryAfter, NextAfter and ResetAfter of a repeated refusal are those of the
// first, less the time that has passed by the monotonic clock since it was asked
// for. They are those of the request that was refused: one for more units may
// have to wait longer. Remaining is as it was at the refusal.
//
// Calls with a CallOption, calls of several requests, and all other operations go
// straight to the limiter. Degraded answers are not kept.
func DenyCache(limiter ratelimit.Limiter, opts ...DenyCacheOption) ratelimit.Limiter {
	c := &denyCache{limiter: orMisconfigured(limiter), seed: maphash.MakeSeed(), base: time.Now(), maxHold: defaultMaxHold}
	for _, o := range append([]DenyCacheOption{WithMaxEntries(defaultMaxEntries)}, opts...) {
		o(c)
	}
	for i := range c.shards {
		c.shards[i].denials = make(map[uint64]*denial)
	}
	return c
}

type denyCache struct {
	limiter  ratelimit.Limiter
	seed     maphash.Seed
	base     time.Time
	maxHold  time.Duration
	perShard int
	shards   [denyShards]denyShard
	resets   [1024]atomic.Uint64 // how often counters of an owner were reset or given back to, by the owner's hash
}

type denyShard struct {
	mu      sync.Mutex
	denials map[uint64]*denial // by the hash of their set
	_       [64]byte           // a cache line between locks
}

// A denial is a refusal that holds for a while. It is never changed.
type denial struct {
	request ratelimit.RequestedQuota
	grant   ratelimit.GrantedQuota
	resets  uint64 // that the counters had seen before it

	asked time.Duration // since the cache's base, as the next two
	until time.Duration // all of the request's units do not fit before
	empty time.Duration // not even one does
}

func (c *denyCache) CheckWithinQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) (time.Time, []ratelimit.GrantedQuota, error) {
	return c.limiter.CheckWithinQuotas(ctx, requests, opts...)
}

func (c *denyCache) UseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, at time.Time) error {
	for i := range min(len(requests), len(grants)) {
		if grants[i].Granted < 0 {
			defer c.forget(requests[i : i+1]) // as in Reset; also if it failed, as it may have been done all the same
		}
	}
	return c.limiter.UseQuotas(ctx, requests, grants, at)
}

func (c *denyCache) Reset(ctx context.Context, requests []ratelimit.RequestedQuota) error {
	defer c.forget(requests) // after it, as before it a call may still be refused
	return c.limiter.Reset(ctx, requests)
}

func (c *denyCache) CheckAndUseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	if len(requests) != 1 || len(opts) > 0 || ctx == nil || ctx.Err() != nil || requests[0].Requested < 1 || requests[0].Requested > maxUnits {
		return c.limiter.CheckAndUseQuotas(ctx, requests, opts...)
	}
	r := &requests[0]
	key := hashSet(c.seed, requests)
	resets := c.resetsOf(r)
	now := time.Since(c.base)
	if d := c.find(key, r); d != nil && d.resets == resets && d.refuses(r, now) {
		return d.repeat(r, now), nil
	}
	grants, err := c.limiter.CheckAndUseQuotas(ctx, requests)
	if err == nil && grants[0].Granted < r.Requested && !grants[0].Degraded {
		c.keep(key, newDenial(r, &grants[0], resets, now, c.maxHold))
	}
	return grants, err
}

// find is the denial for a request's set, if there is one.
func (c *denyCache) find(key uint64, r *ratelimit.RequestedQuota) *denial {
	s := &c.shards[key%denyShards]
	s.mu.Lock()
	d := s.denials[key]
	s.mu.Unlock()
	if d == nil || !d.isOf(r) {
		return nil
	}
	return d
}

func (c *denyCache) keep(key uint64, d *denial) {
	if d.until <= d.asked {
		return
	}
	s := &c.shards[key%denyShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.denials[key]; !there && len(s.denials) >= c.perShard {
		s.evict(d.asked)
	}
	s.denials[key] = d
}

// evict makes room: by the order of a map, which is random.
func (s *denyShard) evict(now time.Duration) {
	var victim uint64
	looked := 0
	for key, d := range s.denials {
		victim = key
		if looked++; d.until <= now || looked == evictionLook {
			break
		}
	}
	delete(s.denials, victim)
}

// newDenial is what follows from a grant that was not in full. Its times count
// from before the call, as nobody knows when in it the limiter looked.
func newDenial(r *ratelimit.RequestedQuota, g *ratelimit.GrantedQuota, resets uint64, asked, maxHold time.Duration) *denial {
	empty := time.Duration(0)
	for j := range g.States {
		switch st := &g.States[j]; {
		case st.Remaining > 0:
		case r.Quotas[j].Limit == 0:
			empty = ratelimit.Never
		default:
			empty = max(empty, st.NextAfter)
		}
	}
	d := &denial{request: kept(r), grant: *g, resets: resets, asked: asked}
	d.grant.Prefix, d.grant.States, d.grant.ReachedQuotas = "", slices.Clone(g.States), nil
	maxHold = min(maxHold, ratelimit.Never-asked) // a sum that does not overflow
	d.until = asked + min(g.RetryAfter-cutOff, maxHold)
	d.empty = asked + min(empty-cutOff, maxHold)
	return d
}

// kept is what a denial keeps of a request: nothing of the caller's slices, and of a
// bounded length.
func kept(r *ratelimit.RequestedQuota) ratelimit.RequestedQuota {
	k := ratelimit.RequestedQuota{Prefix: strings.Clone(shortPrefix(r.Prefix)), Requested: r.Requested, Quotas: slices.Clone(r.Quotas)}
	for j := range k.Quotas {
		q := &k.Quotas[j]
		q.Name, q.PrefixOverride = "", strings.Clone(shortPrefix(q.PrefixOverride))
	}
	return k
}

// isOf tells whether a denial is for the set of a request.
func (d *denial) isOf(r *ratelimit.RequestedQuota) bool {
	return d.request.Prefix == shortPrefix(r.Prefix) && slices.EqualFunc(d.request.Quotas, r.Quotas, func(a, b ratelimit.Quota) bool {
		b.PrefixOverride = shortPrefix(b.PrefixOverride)
		return sameQuota(a, b)
	})
}

// shortPrefix is a prefix, or the digest of a long one. Nobody can ask by the
// digest for what the long one is refused, as denials are found by the hash of all.
func shortPrefix(prefix string) string {
	if len(prefix) <= maxPrefix {
		return prefix
	}
	sum := sha256.Sum256([]byte(prefix))
	return string(sum[:])
}

// refuses tells whether the limiter would grant the request nothing.
func (d *denial) refuses(r *ratelimit.RequestedQuota, now time.Duration) bool {
	switch {
	case r.Requested < d.request.Requested:
		return false
	case r.AllOrNothing:
		return now < d.until
	}
	return now < d.empty
}

// repeat is the refusal at a later time, for a request that may be for more.
func (d *denial) repeat(r *ratelimit.RequestedQuota, now time.Duration) []ratelimit.GrantedQuota {
	passed := (now - d.asked).Truncate(time.Microsecond)
	states := make([]ratelimit.QuotaState, len(d.grant.States))
	allowed := r.Requested
	var reached []ratelimit.Quota
	for j := range states {
		was := &d.grant.States[j]
		st := ratelimit.QuotaState{
			Remaining:  was.Remaining,
			RetryAfter: less(was.RetryAfter, passed),
			NextAfter:  less(was.NextAfter, passed),
			ResetAfter: less(was.ResetAfter, passed),
		}
		if was.NextAfter > 0 && st.NextAfter == 0 { // it has grown, by how much is not known
			st.NextAfter = max(st.RetryAfter, time.Microsecond)
		}
		if st.Remaining < allowed && (st.RetryAfter > 0 || was.RetryAfter == 0) {
			reached = append(reached, r.Quotas[j])
			allowed = st.Remaining
		}
		states[j] = st
	}
	return []ratelimit.GrantedQuota{{
		Prefix:        r.Prefix,
		ReachedQuotas: reached,
		Remaining:     d.grant.Remaining,
		RetryAfter:    less(d.grant.RetryAfter, passed),
		ResetAfter:    less(d.grant.ResetAfter, passed),
		States:        states,
		At:            d.grant.At.Add(passed),
	}}
}

// less is what is left of a span.
func less(span, passed time.Duration) time.Duration {
	if span == ratelimit.Never {
		return span
	}
	return max(0, span-passed)
}

// resetsOf counts the resets of a request's counters, and by accident of some
// others.
func (c *denyCache) resetsOf(r *ratelimit.RequestedQuota) uint64 {
	n := c.resetsAt(owner{r.Prefix, false}).Load()
	for j := range r.Quotas {
		if o := r.Quotas[j].PrefixOverride; o != "" {
			n += c.resetsAt(owner{o, true}).Load()
		}
	}
	return n
}

func (c *denyCache) forget(requests []ratelimit.RequestedQuota) {
	for i := range requests {
		for j := range requests[i].Quotas {
			c.resetsAt(ownerOf(&requests[i], &requests[i].Quotas[j])).Add(1)
		}
	}
}

func (c *denyCache) resetsAt(o owner) *atomic.Uint64 {
	return &c.resets[maphash.String(c.seed, o.prefix)%uint64(len(c.resets))]
}
