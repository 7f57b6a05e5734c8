package wrap

import "github.com/granule-limits/ratelimit"

// Waiting is how many callers wait in a Coalesce for a call to come back.
func Waiting(limiter ratelimit.Limiter) (n int) {
	c := limiter.(*coalescer)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, f := range s.flights {
			for _, b := range f.waiting {
				n += b.callers
			}
		}
		s.mu.Unlock()
	}
	return n
}

// Flights is for how many sets a call is under way.
func Flights(limiter ratelimit.Limiter) (n int) {
	c := limiter.(*coalescer)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.flights)
		s.mu.Unlock()
	}
	return n
}

// Held is how many refusals a DenyCache keeps.
func Held(limiter ratelimit.Limiter) (n int) {
	c := limiter.(*denyCache)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.denials)
		s.mu.Unlock()
	}
	return n
}
