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

import "github.com/granule-limits/ratelimit"

// orMisconfigured is the limiter, or one that fails every call.
func orMisconfigured(limiter ratelimit.Limiter) ratelimit.Limiter {
	if limiter == nil {
		return ratelimit.NewSlidingWindow(nil)
	}
	return limiter
}
