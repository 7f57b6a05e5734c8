package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// table is a source of quotas for tests.
type table map[string][]ratelimit.Quota

var errTable = errors.New("the table is away")

func (t table) Quotas(_ context.Context, key string) ([]ratelimit.Quota, error) {
	if key == "away" {
		return nil, errTable
	}
	if quotas, ok := t[key]; ok {
		return quotas, nil
	}
	return t[""], nil
}

// Each key has quotas of its own, also where one call follows another.
func TestPolicyFrom(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		ctx := t.Context()
		source := table{
			"":    {ratelimit.PerMinute(1)},
			"big": {ratelimit.PerMinute(3), ratelimit.PerHour(4)},
			"out": {ratelimit.PerMinute(0)},
		}
		for name, open := range limitertest.Strategies {
			policy, err := ratelimit.NewPolicyFrom(name, open(store), source)
			require.NoError(t, err)
			require.Nil(t, policy.Quotas())
			at := ratelimit.At(limitertest.Start)
			for i, want := range []map[string]bool{
				{"a": true, "big": true, "b": true, "out": false},
				{"a": false, "big": true, "b": false, "out": false},
				{"a": false, "big": true, "b": false, "out": false},
				{"a": false, "big": false, "b": false, "out": false},
			} {
				for key, allowed := range want {
					d, err := policy.Allow(ctx, key, at)
					require.NoError(t, err)
					require.Equal(t, allowed, d.Allowed, "%s: %d. %s", name, i, key)
					if !allowed {
						require.Equal(t, source.of(key)[:1], d.ReachedQuotas)
					}
				}
			}
			require.NoError(t, policy.Reset(ctx, "big"))
			d, err := policy.Check(ctx, "big", 9, at)
			require.NoError(t, err)
			require.EqualValues(t, 3, d.Granted)

			// What was used stays used when a limit changes.
			raised := table{"": {ratelimit.PerMinute(3)}}
			policy, err = ratelimit.NewPolicyFrom(name, open(store), raised)
			require.NoError(t, err)
			d, err = policy.Take(ctx, "a", 9, at)
			require.NoError(t, err)
			require.EqualValues(t, 2, d.Granted, name)
		}
	})
}

func (t table) of(key string) []ratelimit.Quota {
	quotas, _ := t.Quotas(context.Background(), key)
	return quotas
}

func TestPolicyFromBadInput(t *testing.T) {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	_, err := ratelimit.NewPolicyFrom("p", limiter, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
	policy, err := ratelimit.NewPolicyFrom("p", limiter, table{
		"none": {},
		"bad":  {ratelimit.Per(-1, time.Minute)},
		"same": {ratelimit.PerMinute(1), ratelimit.PerMinute(2)},
	})
	require.NoError(t, err)
	for key, want := range map[string]error{
		"": ratelimit.ErrEmptyPrefix, "away": errTable, "none": ratelimit.ErrInvalidRequest,
		"bad": ratelimit.ErrInvalidQuota, "same": ratelimit.ErrInvalidRequest, "nobody": ratelimit.ErrInvalidRequest,
	} {
		_, err := policy.Allow(t.Context(), key)
		require.ErrorIs(t, err, want, key)
		require.ErrorContains(t, err, `policy "p"`, key)
		require.ErrorIs(t, policy.Use(t.Context(), key, 1), want, key)
		require.ErrorIs(t, policy.Reset(t.Context(), key), want, key)
		require.ErrorIs(t, policy.Wait(t.Context(), key), want, key)
	}
}

// Units are given back at the time at which they were recorded, by every storage.
func TestGiveBack(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			limiter := open(store)
			requests := []ratelimit.RequestedQuota{{Prefix: name, Requested: 5, Quotas: []ratelimit.Quota{ratelimit.PerMinute(8)}}}
			grants, err := limiter.CheckAndUseQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), grants[0].At, time.Minute)
			grants[0].Granted = -3
			require.NoError(t, limiter.UseQuotas(t.Context(), requests, grants, grants[0].At))
			_, grants, err = limiter.CheckWithinQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.GreaterOrEqual(t, grants[0].Remaining, int64(6), name)
		}
	})
}

func TestStrategyByName(t *testing.T) {
	for _, name := range ratelimit.Strategies() {
		limiter, err := ratelimit.NewLimiter(name, memory.New())
		require.NoError(t, err)
		policy, err := ratelimit.NewPolicy("p", limiter, ratelimit.PerMinute(1))
		require.NoError(t, err)
		for _, allowed := range []bool{true, false} {
			d, err := policy.Allow(t.Context(), "a", ratelimit.At(limitertest.Start))
			require.NoError(t, err)
			require.Equal(t, allowed, d.Allowed, name)
		}
	}
	_, err := ratelimit.NewLimiter("leaky", memory.New())
	require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
	require.ErrorContains(t, err, `"leaky", only hash, list, simple, sliding-counter, sliding-window, token-bucket`)
}
