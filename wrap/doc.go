// Package wrap has Limiters around a Limiter, for what happens in production:
// Fallback for a storage that is down, Coalesce for a key that everybody asks
// for at once, DenyCache for those who go on asking when they were refused.
//
// Each is a ratelimit.Limiter, so that they stack. Where all three are wanted,
// in this order:
//
//	limiter := wrap.DenyCache(wrap.Fallback(wrap.Coalesce(ratelimit.NewSlidingWindow(store)), wrap.WithMode(wrap.Allow())))
//
// A refusal that is known costs nothing more; while the storage is down every
// caller gets an answer of its own; and what does go to the storage goes
// together.
//
// All are safe for concurrent use, and there is nothing to close. A nil limiter
// is ErrMisconfigured in every call.
package wrap

import (
	"context"
	"fmt"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// orMisconfigured is the limiter, or one that fails every call.
func orMisconfigured(limiter ratelimit.Limiter) ratelimit.Limiter {
	if limiter == nil {
		return ratelimit.NewSlidingWindow(noLimiter{})
	}
	return limiter
}

var errNoLimiter = fmt.Errorf("%w: the limiter to wrap is nil", ratelimit.ErrMisconfigured)

// noLimiter is the storage of a limiter that was not given.
type noLimiter struct{}

func (noLimiter) Run(context.Context, *storage.Script, *storage.Call) error { return errNoLimiter }
func (noLimiter) Forget(context.Context, []storage.Key) error               { return errNoLimiter }
