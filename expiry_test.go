package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unique"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// Every key that is written has an expiry, as scripts/README.md says: its reset,
// an eighth of a window and a second; an hour more where calls brought their own
// time. Random calls are
// made, all kinds of them, and then every key of the server is looked at.

// The slack of an expiry over a key's ResetAfter.
const (
	expirySlack  = time.Second + 2*time.Millisecond // whole ms: of the expiry, and of the time at which it was set
	ownTimeSlack = time.Hour
)

// expirySuite makes the calls of one strategy, and remembers the keys.
type expirySuite struct {
	*rand.Rand
	ctx     context.Context
	limiter ratelimit.Limiter
	quotas  []ratelimit.Quota
	keyOf   func(prefix string, q ratelimit.Quota) string
	// resets is the longest ResetAfter that the answers named for a key.
	resets map[string]time.Duration
	// windows is the window of each key.
	windows map[string]time.Duration
	// counters asks for the ResetAfter of a key by the server's clock.
	counters map[string]func(t *testing.T) time.Duration
	// away is the most that a use may have added: what its time was away from the
	// server's, once because it was earlier, and once as the slack for that.
	away time.Duration
}

func newExpirySuite(t *testing.T, store *redisstore.Store, strategy string, quotas []ratelimit.Quota) *expirySuite {
	return &expirySuite{
		Rand:    rand.New(rand.NewPCG(rand.Uint64(), 0)),
		ctx:     t.Context(),
		limiter: limitertest.Strategies[strategy](store),
		quotas:  quotas,
		keyOf: func(prefix string, q ratelimit.Quota) string {
			counter := storage.Counter{Strategy: strategy, Window: q.Window.Microseconds()}
			if strategy == "sliding-window" || strategy == "hash" {
				counter.Granularity = q.Granularity.Microseconds()
			}
			if q.PrefixOverride != "" {
				prefix, counter.Shared = q.PrefixOverride, true
			}
			return store.Key(storage.Key{Prefix: prefix, Counter: unique.Make(counter)})
		},
		resets:   make(map[string]time.Duration),
		windows:  make(map[string]time.Duration),
		counters: make(map[string]func(*testing.T) time.Duration),
	}
}

func (s *expirySuite) requests() []ratelimit.RequestedQuota {
	var requests []ratelimit.RequestedQuota
	for range 1 + s.IntN(3) {
		requests = append(requests, ratelimit.RequestedQuota{
			Prefix:       fmt.Sprint("p", s.IntN(12)),
			Requested:    s.Int64N(5),
			Quotas:       s.quotas[s.IntN(len(s.quotas)):],
			AllOrNothing: s.IntN(2) == 0,
		})
	}
	return requests
}

// call makes one call, or two that belong together, at a time or, if that is
// zero, by the server's clock.
func (s *expirySuite) call(t *testing.T, at time.Time) {
	requests := s.requests()
	var opts []ratelimit.CallOption
	if !at.IsZero() {
		opts = append(opts, ratelimit.At(at))
	}
	if s.IntN(3) == 0 {
		opts = append(opts, ratelimit.Together())
	}
	switch s.IntN(8) {
	default:
		grants, err := s.limiter.CheckAndUseQuotas(s.ctx, requests, opts...)
		require.NoError(t, err)
		s.learn(requests, grants)
		if s.IntN(3) == 0 {
			s.giveBack(t, requests, grants)
		}
	case 0:
		require.NoError(t, s.limiter.Reset(s.ctx, requests[:1]))
	case 1, 2:
		began := time.Now()
		checked, grants, err := s.limiter.CheckWithinQuotas(s.ctx, requests, opts...)
		require.NoError(t, err)
		useAt := checked
		if at.IsZero() && s.IntN(2) == 0 {
			useAt = at
		}
		require.NoError(t, s.limiter.UseQuotas(s.ctx, requests, grants, useAt))
		s.away = max(s.away, 2*time.Since(began))
		_, grants, err = s.limiter.CheckWithinQuotas(s.ctx, requests, ratelimit.At(checked))
		require.NoError(t, err)
		s.learn(requests, grants)
	}
}

// giveBack takes back all or a part of what was granted.
func (s *expirySuite) giveBack(t *testing.T, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota) {
	began := time.Now()
	for i := range grants {
		grants[i].Granted = -s.Int64N(grants[i].Granted + 1)
		if s.IntN(2) == 0 {
			grants[i].Granted = -requests[i].Requested
		}
	}
	require.NoError(t, s.limiter.UseQuotas(s.ctx, requests, grants, grants[0].At))
	s.away = max(s.away, 2*time.Since(began))
}

func (s *expirySuite) learn(requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota) {
	for i, r := range requests {
		for j, q := range r.Quotas {
			key := s.keyOf(r.Prefix, q)
			s.resets[key] = max(s.resets[key], grants[i].States[j].ResetAfter)
			s.windows[key] = q.Window
			s.counters[key] = func(t *testing.T) time.Duration {
				_, grants, err := s.limiter.CheckWithinQuotas(s.ctx, []ratelimit.RequestedQuota{{Prefix: r.Prefix, Quotas: []ratelimit.Quota{q}}})
				require.NoError(t, err)
				return grants[0].ResetAfter
			}
		}
	}
}

// sweep looks at every key of a database, and tells how many there are.
func sweep(t *testing.T, client *redis.Client, look func(key string, ttl func() time.Duration)) (n int) {
	keys := client.Scan(t.Context(), 0, "", 1000).Iterator()
	for keys.Next(t.Context()) {
		key := keys.Val()
		look(key, func() time.Duration {
			ttl, err := client.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.NotEqual(t, time.Duration(-1), ttl, "%s has no expiry", key)
			return ttl // -2 once it has gone
		})
		n++
	}
	require.NoError(t, keys.Err())
	return n
}

func expiryStore(t *testing.T, server *redistest.Server, db int) (*redis.Client, *redisstore.Store) {
	client := redis.NewClient(&redis.Options{Addr: server.Addr, DB: db})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	return client, store
}

func expiryQuotas(window time.Duration) []ratelimit.Quota {
	return []ratelimit.Quota{
		{Limit: 9, Window: window, Granularity: window / 10},
		{Limit: 20, Window: 3 * window, Granularity: window, Burst: 15},
		{Limit: 50, Window: window, Granularity: window / 5, PrefixOverride: "all"},
	}
}

// By the server's clock a key lives until its reset, never shorter, and at most
// the slack longer.
func TestExpiry(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 0)
	for name := range limitertest.Strategies {
		s := newExpirySuite(t, store, name, expiryQuotas(20*time.Minute))
		for range 150 {
			s.call(t, time.Time{})
		}
		seen := 0
		sweep(t, client, func(key string, ttl func() time.Duration) {
			resetAfter, ok := s.counters[key]
			if !ok { // of the strategy before
				return
			}
			seen++
			first, reset, last := ttl(), resetAfter(t), ttl()
			require.GreaterOrEqual(t, first+time.Millisecond, reset, "%s expires before its reset", key)
			require.Positive(t, last, key)
			require.LessOrEqual(t, last, reset+s.windows[key]/8+expirySlack+s.away, key)
		})
		require.Greater(t, seen, 10, name)
		require.NoError(t, client.FlushDB(t.Context()).Err())
	}
}

// A counter of which all was given back expires soon, and no longer when it is
// used again.
func TestExpiryAfterGivingBack(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 0)
	for name, open := range limitertest.Strategies {
		p, err := ratelimit.NewPolicy("p", open(store), ratelimit.PerHour(10))
		require.NoError(t, err)
		first, err := p.AllowN(t.Context(), "a", 2)
		require.NoError(t, err)
		require.NoError(t, p.Use(t.Context(), "a", -2, ratelimit.At(first.At())))
		again, err := p.AllowN(t.Context(), "a", 9)
		require.NoError(t, err)
		require.True(t, again.Allowed, name)
		n := sweep(t, client, func(key string, ttl func() time.Duration) {
			left := ttl()
			now, err := p.Check(t.Context(), "a", 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, left+time.Millisecond, now.ResetAfter, "%s expires before its reset", key)
		})
		require.Equal(t, 1, n)
		require.NoError(t, client.FlushDB(t.Context()).Err())
	}
}

// What was repaired has the whole slack: uses that follow do not move the expiry
// for an eighth of a window.
func TestExpiryAfterRepair(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 0)
	for name, open := range limitertest.Strategies {
		p, err := ratelimit.NewPolicy("p", open(store), ratelimit.PerHour(10))
		require.NoError(t, err)
		_, err = p.Allow(t.Context(), "a")
		require.NoError(t, err)
		key := client.Keys(t.Context(), "*").Val()[0]
		require.NoError(t, client.Set(t.Context(), key, "x", redis.KeepTTL).Err())
		d, err := p.Allow(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, d.Allowed, name)
		ttl := client.PTTL(t.Context(), key).Val()
		require.InDelta(t, d.ResetAfter+time.Hour/8, ttl, float64(10*time.Second), name)
		require.NoError(t, client.FlushDB(t.Context()).Err())
	}
}

// An expiry is moved an eighth of a window at a time, also of a bucket that is full
// again before each use.
func TestExpiryMovesSeldom(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 0)
	quota := ratelimit.Quota{Limit: 50_000_000, Window: time.Minute} // a unit in little more than 1 µs
	for name, open := range limitertest.Strategies {
		p, err := ratelimit.NewPolicy("p", open(store), quota)
		require.NoError(t, err)
		require.NoError(t, client.ConfigResetStat(t.Context()).Err())
		for range 100 {
			_, err := p.Allow(t.Context(), "a")
			require.NoError(t, err)
		}
		moved := client.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_pexpire")
		require.Regexp(t, "^calls=[12],", moved, name) // twice where an eighth begins meanwhile
	}
}

// Where calls brought their own time, at most an hour longer than the longest
// that an answer named.
func TestExpiryOwnTime(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 1)
	for name := range limitertest.Strategies {
		s := newExpirySuite(t, store, name, expiryQuotas(20*time.Minute))
		at := limitertest.Start
		for range 150 {
			at = at.Add(time.Duration(s.IntN(60)-5) * time.Second)
			s.call(t, at)
		}
		seen := sweep(t, client, func(key string, ttl func() time.Duration) {
			left := ttl()
			require.Contains(t, s.resets, key, "no call wrote this key")
			require.Positive(t, left, key)
			require.LessOrEqual(t, left, s.resets[key]+s.windows[key]/8+expirySlack+ownTimeSlack, key)
		})
		require.Greater(t, seen, 10, name)
		require.NoError(t, client.FlushDB(t.Context()).Err())
	}
}

// When windows have passed nothing is left.
func TestExpiryLeavesNothing(t *testing.T) {
	client, store := expiryStore(t, redistest.Start(t), 0)
	for name := range limitertest.Strategies {
		s := newExpirySuite(t, store, name, expiryQuotas(20*time.Millisecond))
		for range 60 {
			s.call(t, time.Time{})
		}
	}
	require.Positive(t, client.DBSize(t.Context()).Val())
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 0 }, time.Minute, 20*time.Millisecond)
}
