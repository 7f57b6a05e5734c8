package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// A strategy makes Limiters.
type strategy struct {
	name string
	new  func(storage.Storage) ratelimit.Limiter
}

var (
	simple     = strategy{"simple", ratelimit.NewSimpleLimiter}
	list       = strategy{"list", func(s storage.Storage) ratelimit.Limiter { return ratelimit.NewListLimiter(s) }}
	hash       = strategy{"hash", ratelimit.NewHashLimiter}
	sliding    = strategy{"sliding-window", ratelimit.NewSlidingWindow}
	bucket     = strategy{"token-bucket", ratelimit.NewTokenBucket}
	strategies = []strategy{simple, list, hash, sliding, bucket}
)

// epoch is when most calls take place: far from any clock, and 46 minutes into
// an hour.
var epoch = time.Unix(1_000_000_000, 0)

// An asker is a Limiter whose calls have no reason to fail. With the zero time
// they go by the storage's clock.
type asker struct {
	t       *test
	limiter ratelimit.Limiter
	opts    []ratelimit.CallOption
}

// asker asks the twin, so that all answers are compared.
func (t *test) asker(s strategy) asker { return asker{t: t, limiter: s.new(t.twin)} }

// together asks for all requests or none.
func (a asker) together() asker {
	a.opts = []ratelimit.CallOption{ratelimit.Together()}
	return a
}

func (a asker) options(at time.Time) []ratelimit.CallOption {
	return slices.Concat(a.opts, options(at))
}

func options(at time.Time) []ratelimit.CallOption {
	if at.IsZero() {
		return nil
	}
	return []ratelimit.CallOption{ratelimit.At(at)}
}

func (a asker) take(at time.Time, requests ...ratelimit.RequestedQuota) []ratelimit.GrantedQuota {
	a.t.Helper()
	grants, err := a.limiter.CheckAndUseQuotas(context.Background(), requests, a.options(at)...)
	a.t.must(err)
	return grants
}

func (a asker) check(at time.Time, requests ...ratelimit.RequestedQuota) []ratelimit.GrantedQuota {
	a.t.Helper()
	_, grants, err := a.limiter.CheckWithinQuotas(context.Background(), requests, a.options(at)...)
	a.t.must(err)
	return grants
}

// use records what the requests ask for.
func (a asker) use(at time.Time, requests ...ratelimit.RequestedQuota) {
	a.t.Helper()
	grants := make([]ratelimit.GrantedQuota, len(requests))
	for i, r := range requests {
		grants[i] = ratelimit.GrantedQuota{Prefix: r.Prefix, Granted: r.Requested}
	}
	a.t.must(a.limiter.UseQuotas(context.Background(), requests, grants, at))
}

func (a asker) reset(requests ...ratelimit.RequestedQuota) {
	a.t.Helper()
	a.t.must(a.limiter.Reset(context.Background(), requests))
}

// want is a request of n units.
func want(prefix string, n int64, quotas ...ratelimit.Quota) ratelimit.RequestedQuota {
	return ratelimit.RequestedQuota{Prefix: prefix, Requested: n, Quotas: quotas}
}

func orNothing(r ratelimit.RequestedQuota) ratelimit.RequestedQuota {
	r.AllOrNothing = true
	return r
}

// perHour is a quota of limit units an hour, in granules of a minute.
func perHour(limit int64) ratelimit.Quota {
	return ratelimit.Quota{Limit: limit, Window: time.Hour, Granularity: time.Minute}
}

// sharedAs is the quota, shared under a PrefixOverride.
func sharedAs(prefix string, q ratelimit.Quota) ratelimit.Quota {
	q.PrefixOverride = prefix
	return q
}

// callOf is the CheckAndUse that a limiter makes of the requests.
func callOf(s strategy, at time.Time, requests ...ratelimit.RequestedQuota) (*storage.Script, storage.Call) {
	m := newModel()
	if _, err := s.new(m).CheckAndUseQuotas(context.Background(), requests, options(at)...); err != nil {
		panic("storagetest: " + err.Error()) // the suite itself is wrong
	}
	return m.script, m.asked
}
