package wrap_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/wrap"
)

// wraps are all of the package, and all together.
var wraps = map[string]func(ratelimit.Limiter) ratelimit.Limiter{
	"fallback":   func(l ratelimit.Limiter) ratelimit.Limiter { return wrap.Fallback(l) },
	"coalesce":   wrap.Coalesce,
	"deny cache": func(l ratelimit.Limiter) ratelimit.Limiter { return wrap.DenyCache(l) },
	"all": func(l ratelimit.Limiter) ratelimit.Limiter {
		return wrap.DenyCache(wrap.Fallback(wrap.Coalesce(l)))
	},
}

// The step scripts, which every limiter must pass.
func TestScripts(t *testing.T) {
	each(t, func(t *testing.T, store storage.Storage) {
		for name, wrapped := range wraps {
			t.Run(name, func(t *testing.T) {
				limitertest.RunScripts(t, func(t *testing.T, strategy string) ratelimit.Limiter {
					limiter := limitertest.Strategies[strategy](store)
					t.Cleanup(func() { reset(limiter) })
					return wrapped(limiter)
				})
			})
		}
	})
}

// reset forgets what the scripts used.
func reset(limiter ratelimit.Limiter) {
	for i, script := range limitertest.Scripts {
		_ = limiter.Reset(context.Background(), ask(fmt.Sprintf("script %d", i), 0, script.Quotas...))
	}
}

// The step scripts by the storage's own clock: calls without options, of which
// the wraps have an opinion.
func TestScriptsByTheClock(t *testing.T) {
	for name, wrapped := range wraps {
		for _, script := range limitertest.Scripts {
			if goesBack(script) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%s", name, script.Strategy, script.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now() // a midnight, as limitertest.Start
					limiter := wrapped(limitertest.Strategies[script.Strategy](memory.New()))
					for j, step := range script.Steps {
						time.Sleep(time.Until(start.Add(step.At)))
						g := use(t, limiter, ask("a", step.Request, script.Quotas...))
						require.Equal(t, step, limitertest.Step{At: step.At, Request: step.Request, Granted: g.Granted, Retry: g.RetryAfter, Left: g.Remaining}, "step %d", j)
					}
				})
			})
		}
	}
}

func goesBack(script limitertest.Script) bool {
	for i, step := range script.Steps {
		if step.At < 0 || i > 0 && step.At < script.Steps[i-1].At {
			return true
		}
	}
	return false
}

func TestNilLimiter(t *testing.T) {
	for name, wrapped := range wraps {
		limiter := wrapped(nil)
		requests := ask("a", 1, ratelimit.PerMinute(1))
		_, err := limiter.CheckAndUseQuotas(t.Context(), requests)
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, name)
		require.ErrorContains(t, err, "the limiter to wrap is nil", name)
		_, _, err = limiter.CheckWithinQuotas(t.Context(), requests)
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, name)
		require.ErrorIs(t, limiter.UseQuotas(t.Context(), requests, []ratelimit.GrantedQuota{{Prefix: "a"}}, time.Time{}), ratelimit.ErrMisconfigured, name)
		require.ErrorIs(t, limiter.Reset(t.Context(), requests), ratelimit.ErrMisconfigured, name)
	}
}

// Bad input is refused as the limiter itself refuses it.
func TestBadInput(t *testing.T) {
	bad := map[string][]ratelimit.RequestedQuota{
		"none":      nil,
		"no quotas": ask("a", 1),
		"no prefix": ask("", 1, ratelimit.PerMinute(1)),
		"negative":  ask("a", -1, ratelimit.PerMinute(1)),
		"too many":  ask("a", 1<<53, ratelimit.PerMinute(1)),
		"bad quota": ask("a", 1, ratelimit.Per(1, time.Microsecond)),
		"twice":     ask("a", 1, ratelimit.PerMinute(1), ratelimit.PerMinute(2)),
	}
	bare := ratelimit.NewSlidingWindow(memory.New())
	for name, wrapped := range wraps {
		for what, requests := range bad {
			_, want := bare.CheckAndUseQuotas(t.Context(), requests)
			require.Error(t, want)
			limiter := wrapped(ratelimit.NewSlidingWindow(memory.New()))
			_, err := limiter.CheckAndUseQuotas(t.Context(), requests)
			require.EqualError(t, err, want.Error(), "%s: %s", name, what)
			require.Error(t, limiter.Reset(t.Context(), requests), "%s: %s", name, what)
		}
		var none interface {
			Deadline() (time.Time, bool)
			Done() <-chan struct{}
			Err() error
			Value(any) any
		}
		_, err := wrapped(bare).CheckAndUseQuotas(none, ask("a", 1, ratelimit.PerMinute(1)))
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest, name)
	}
}
