package wrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A Mode is what Fallback answers with while its primary is down: Deny, Allow or
// Local. The zero Mode is Deny. A Mode can be given to several Fallbacks; a Local
// counts for all of them together.
type Mode struct {
	kind      int // the strictest is the least
	local     ratelimit.Limiter
	instances int64
}

const (
	deny = iota
	local
	allow
)

// Deny grants nothing: for what must not be done uncounted, such as a login. The
// RetryAfter is the time until the primary is asked again. ReachedQuotas is empty,
// as it is the storage that is missing and not the units.
func Deny() Mode { return Mode{} }

// Allow answers as if no counter had been used before: it grants all but what is
// more than both a quota's Limit and its Burst, and anything at all under a Limit of 0.
// It does not know the primary's strategy: a token bucket with a Burst below its
// Limit would grant less. Nothing is recorded. For what is worse to refuse than to
// do too often.
func Allow() Mode { return Mode{kind: allow} }

// Local counts in this process, by limits divided by the number of processes that
// share the primary. NewLimiter is the constructor that made the primary, such as
// ratelimit.NewSlidingWindow. Fewer than 1 instances are 1.
//
// The Limit is rounded down: of 100 each of 3 instances has 33, and a Limit of 3
// among 5 admits nothing. A Burst is rounded down to at least 1, as one of nothing
// would stop a token bucket. So all instances together grant no more than the
// Limit; with a token bucket of a Burst smaller than the number of instances,
// at most a Burst of one unit for each. The RetryAfter of a request that only the
// divided limits never have room for is at least the time until the primary is asked
// again.
//
// That is on top of what the primary grants, before and after: however often it
// goes down and comes back, at most twice the Limit is granted where the
// strategy promises the Limit. It is more if more instances run than were stated,
// if they are restarted meanwhile, or if the primary comes back with its counters
// lost.
//
// What was counted here stays until it expires, also over the next outage. There
// is room for 1,048,576 counters; see memory.WithMaxKeys.
func Local[L ratelimit.Limiter](instances int, newLimiter func(storage.Storage) L) Mode {
	return Mode{kind: local, local: newLimiter(memory.New()), instances: int64(max(instances, 1))}
}

func (m Mode) limiter() ratelimit.Limiter {
	if m.kind == local {
		return m.local
	}
	return unused
}

// adapt makes of the requests those that the mode's limiter is asked.
func (m Mode) adapt(requests []ratelimit.RequestedQuota) []ratelimit.RequestedQuota {
	if m.kind == deny {
		return requests
	}
	adapted := cloneSet(requests)
	for i := range adapted {
		for j := range adapted[i].Quotas {
			m.adaptQuota(&adapted[i].Quotas[j])
		}
	}
	return adapted
}

// adaptQuota divides a quota for Local. For Allow it lets the sliding window,
// which knows no Burst, grant as much as any strategy would. A quota that is not
// valid stays as it is, for the mode's limiter to refuse.
func (m Mode) adaptQuota(q *ratelimit.Quota) {
	switch {
	case q.Limit == 0 || q.Validate() != nil:
	case m.kind == allow:
		q.Limit, q.Burst = max(q.Limit, q.Burst), 0
	default:
		q.Limit /= m.instances
		if q.Burst > 0 {
			q.Burst = max(1, min(q.Burst/m.instances, mostBurst(q)))
		}
	}
}

// mostBurst is the largest Burst that is valid for a quota: what takes longer to refill
// than a span can be does not fit a token bucket; see Quota.Validate.
func mostBurst(q *ratelimit.Quota) int64 {
	if q.Limit == 0 {
		return q.Burst
	}
	return storage.MaxSpan / (q.Window.Microseconds()/q.Limit + 1)
}

// restore puts the caller's quotas for the adapted ones in a grant.
func (m Mode) restore(g *ratelimit.GrantedQuota, r *ratelimit.RequestedQuota) {
	reached := g.ReachedQuotas
	for _, q := range r.Quotas {
		if len(reached) == 0 {
			return
		}
		adapted := q
		if m.adaptQuota(&adapted); reached[0] == adapted {
			reached[0] = q
			reached = reached[1:]
		}
	}
}

// restoreHope takes back each Never that is true of the divided limits alone: the
// primary, when it is back, may grant what they never hold. What the caller's own
// limits never hold, the same counters tell under these.
func (m Mode) restoreHope(requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, opts []ratelimit.CallOption, untilProbe time.Duration) {
	_, own, err := m.local.CheckWithinQuotas(context.Background(), requests, opts...)
	if err != nil {
		return // undivided they are bad input
	}
	for i := range grants {
		g := &grants[i]
		if g.RetryAfter == ratelimit.Never && own[i].RetryAfter != ratelimit.Never {
			g.RetryAfter = untilProbe
		}
		for j := range min(len(g.States), len(own[i].States)) {
			s := &g.States[j]
			if s.RetryAfter == ratelimit.Never && own[i].States[j].RetryAfter != ratelimit.Never {
				s.RetryAfter = untilProbe
			}
			g.RetryAfter = max(g.RetryAfter, s.RetryAfter)
		}
	}
}

// unused finds every counter unused. It is what refuses bad input when there is no
// primary to do it, but for what only the primary's strategy would refuse.
var unused = ratelimit.NewSlidingWindow(nowhere{})

// nowhere is a storage that keeps nothing.
type nowhere struct{}

func (nowhere) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ratelimit: nothing done: %w", err)
	}
	if c.OwnClock {
		c.Now = time.Now().UnixMicro()
	}
	n := c.Cells()
	keys, empty, states := make([]storage.Key, 0, n), make([]storage.State, n), make([]*storage.State, n)
	for i := range c.Requests {
		cells, others := c.Requests[i].Cells, keys // no two of one request are the same
		for j := range cells {
			at := len(keys)
			if k := slices.Index(others, cells[j].Key); k >= 0 {
				at = k
			}
			states[len(keys)] = &empty[at]
			keys = append(keys, cells[j].Key)
		}
	}
	script.Step(c, states)
	return nil
}

func (nowhere) Forget(ctx context.Context, _ []storage.Key) error { return ctx.Err() }
