package httplimit

import (
	"fmt"
	"sync"
	"time"
)

// A PausedError says that a request was not sent because the other side has asked
// for a pause. What one's own policy refuses is a *ratelimit.LimitedError.
type PausedError struct {
	Host       string        // of the request that was not sent
	RetryAfter time.Duration // until the pause ends
}

func (e *PausedError) Error() string {
	return fmt.Sprintf("httplimit: %s has asked for a pause, which ends in %v", e.Host, e.RetryAfter)
}

// pauses are the pauses that were asked for, by key, until when.
type pauses struct {
	mu    sync.Mutex
	until map[string]time.Time
	full  int // the size at which those that are over are thrown out
}

const fewPauses = 1024

// add makes a pause of at least d.
func (p *pauses) add(key string, d time.Duration) {
	if d <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.until == nil {
		p.until, p.full = make(map[string]time.Time), fewPauses
	}
	if len(p.until) >= p.full {
		for k, until := range p.until {
			if !until.After(now) {
				delete(p.until, k)
			}
		}
		p.full = max(fewPauses, 2*len(p.until))
	}
	if until := now.Add(d); until.After(p.until[key]) {
		p.until[key] = until
	}
}

// left is how long a pause still takes; 0 if there is none.
func (p *pauses) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[key]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(p.until, key)
		return 0
	}
	return left
}
