package wrap_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func ask(prefix string, n int64, quotas ...ratelimit.Quota) []ratelimit.RequestedQuota {
	return []ratelimit.RequestedQuota{{Prefix: prefix, Requested: n, Quotas: quotas}}
}

func inFull(requests []ratelimit.RequestedQuota) []ratelimit.RequestedQuota {
	for i := range requests {
		requests[i].AllOrNothing = true
	}
	return requests
}

func use(t testing.TB, limiter ratelimit.Limiter, requests []ratelimit.RequestedQuota) ratelimit.GrantedQuota {
	t.Helper()
	grants, err := limiter.CheckAndUseQuotas(t.Context(), requests)
	require.NoError(t, err)
	require.Len(t, grants, len(requests))
	return grants[0]
}

// each runs a test in memory and on a real Redis.
func each(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.New()) })
	t.Run("redis", func(t *testing.T) { test(t, teststore.Redis(t)) })
}

// A spy is a limiter that counts its calls and can be told what to do first.
type spy struct {
	ratelimit.Limiter
	calls atomic.Int64
	// before is called before each call that the limiter executes; an error of it is
	// the call's. After is called with what a CheckAndUseQuotas asked.
	before func(ctx context.Context) error
	after  func(requests []ratelimit.RequestedQuota)
	now    func() time.Time // if there is one, calls are stamped with it
}

func (s *spy) enter(ctx context.Context) error {
	s.calls.Add(1)
	if s.before != nil {
		return s.before(ctx)
	}
	return nil
}

func (s *spy) CheckAndUseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if s.now != nil {
		opts = append(opts, ratelimit.At(s.now()))
	}
	grants, err := s.Limiter.CheckAndUseQuotas(ctx, requests, opts...)
	if s.after != nil {
		s.after(requests)
	}
	return grants, err
}

func (s *spy) CheckWithinQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) (time.Time, []ratelimit.GrantedQuota, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, nil, err
	}
	return s.Limiter.CheckWithinQuotas(ctx, requests, opts...)
}

func (s *spy) UseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, at time.Time) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	return s.Limiter.UseQuotas(ctx, requests, grants, at)
}

func (s *spy) Reset(ctx context.Context, requests []ratelimit.RequestedQuota) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	return s.Limiter.Reset(ctx, requests)
}

// A plainStore keeps every counter for ever: what a twin test compares with is as
// simple as it can be.
type plainStore struct {
	mu     sync.Mutex
	states map[storage.Key]*storage.State
}

func newPlainStore() *plainStore {
	return &plainStore{states: make(map[storage.Key]*storage.State)}
}

func (s *plainStore) Run(_ context.Context, script *storage.Script, c *storage.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.OwnClock {
		c.Now = time.Now().UnixMicro()
	}
	var states []*storage.State
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			key := c.Requests[i].Cells[j].Key
			if s.states[key] == nil {
				s.states[key] = new(storage.State)
			}
			states = append(states, s.states[key])
		}
	}
	script.Step(c, states)
	return nil
}

func (s *plainStore) Forget(_ context.Context, keys []storage.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.states, key)
	}
	return nil
}

// random is a source whose seed is printed when the test fails, and which
// RATELIMIT_WRAP_SEED replays.
func random(t testing.TB) *rand.Rand {
	seed := uint64(rand.Uint32())
	if n, err := strconv.ParseUint(os.Getenv("RATELIMIT_WRAP_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with RATELIMIT_WRAP_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }
