package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit"
)

const (
	maxFetches = 64 // of the table at once
	// failuresInARow make the cache leave the table alone for a while.
	failuresInARow = 3
	retryPause     = time.Second
	// keptSlices is how many different quotas are remembered, so that accounts with
	// equal ones share a slice: a policy is faster for a slice that it knows.
	keptSlices = 32
)

// A fetcher is the part of a Cache that asks the table.
type fetcher struct {
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	slots   chan struct{}
	base    time.Time

	mu       sync.Mutex
	closed   bool
	flights  map[id]*flight
	timer    *time.Timer
	ticking  bool
	newest   int64 // tick of the newest fetch
	skipped  int64 // ticks by InvalidateAll
	hand     int
	stats    Stats
	slices   [][]ratelimit.Quota // the newest in front
	failures int                 // in a row
	lastErr  error
	retryAt  time.Time
}

func (f *fetcher) start() {
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.slots = make(chan struct{}, maxFetches)
	f.flights = make(map[id]*flight)
	f.base = time.Now()
}

// A flight is a fetch that is under way.
type flight struct {
	id    id
	begun int64 // tick

	// Under the cache's lock.
	ended    bool
	outdated bool // what it brings may be older than an Invalidate

	// Written before done is closed.
	done     chan struct{}
	answered bool
	quotas   []ratelimit.Quota
	err      error
}

// fetch sees to it that an entry is fetched if it should be. It returns what there
// is: an entry, a flight to wait for, or else an error.
func (c *Cache) fetch(id id) (*entry, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	e := c.set(id.hash).find(id.hash, id.resource, id.account)
	if e != nil && c.now.Load()-e.fetched.Load() < refreshesAfter {
		return e, nil, nil // somebody was faster
	}
	alone := c.leftAlone() // by all but the one who is about to look whether it is back
	f := c.flights[id]
	if f == nil && c.mayFetch(e) {
		f = c.takeOff(id)
	}
	switch {
	case e != nil && (f == nil || !c.expired(e) || alone):
		c.countStale(e)
		return e, nil, nil
	case f != nil:
		return e, f, nil
	case c.closed:
		return nil, nil, fmt.Errorf("%w: limits: %s: the cache is closed", ratelimit.ErrUnavailable, id)
	}
	return nil, nil, fmt.Errorf("limits: %s: not asked for, as others failed: %w", id, c.lastErr)
}

// mayFetch tells whether the table is to be asked. It is left alone when it has
// failed too often; and a refresh that nobody waits for can wait.
func (c *Cache) mayFetch(e *entry) bool {
	if c.closed || c.leftAlone() || e != nil && !c.expired(e) && len(c.flights) >= maxFetches {
		return false
	}
	c.retryAt = time.Now().Add(c.pause())
	return true
}

// leftAlone tells whether the table has failed so often that it is not asked, nor
// waited for, for a while.
func (c *Cache) leftAlone() bool {
	return c.failures >= failuresInARow && time.Now().Before(c.retryAt)
}

func (c *Cache) pause() time.Duration { return min(retryPause, c.age/2) }

// takeOff starts a fetch, and the clock if it stands.
func (c *Cache) takeOff(id id) *flight {
	f := &flight{id: newEntry(id).id, begun: c.now.Load(), done: make(chan struct{})}
	c.flights[f.id] = f
	c.stats.Fetches++
	c.newest = f.begun
	if !c.ticking {
		c.ticking = true
		c.timer = time.AfterFunc(c.age/expiresAfter, c.tick)
	}
	c.running.Go(func() { c.run(f) })
	return f
}

func (c *Cache) run(f *flight) {
	timedOut := fmt.Errorf("%w: limits: %s: no answer within limits.WithFetchTimeout(%v)", ratelimit.ErrUnavailable, f.id, c.timeout)
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.timeout, timedOut)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.land(f, nil, context.Cause(ctx)) }) // for a table that does not look at it
	defer stop()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		c.land(f, nil, context.Cause(ctx)) // stop may come before the AfterFunc begins
		return
	}
	quotas, err := c.table.Quotas(ctx, f.id.resource, f.id.account)
	if err == nil && len(quotas) == 0 {
		err = fmt.Errorf("%w: the table gave no quotas", ratelimit.ErrMisconfigured)
	}
	switch {
	case isAnswer(err):
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = fmt.Errorf("limits: %s: %w", f.id, err)
	}
	c.land(f, quotas, err)
}

// land ends a flight, once.
func (c *Cache) land(f *flight, quotas []ratelimit.Quota, err error) {
	c.mu.Lock()
	if f.ended {
		c.mu.Unlock()
		return
	}
	f.ended = true
	if c.flights[f.id] == f {
		delete(c.flights, f.id)
	}
	f.answered, f.quotas, f.err = isAnswer(err), quotas, err
	if f.answered {
		f.quotas = c.shared(quotas)
		c.failures = 0
		c.keep(f)
	} else {
		c.fail(err)
	}
	told := c.onError
	if f.answered || c.closed {
		told = nil
	}
	c.mu.Unlock()
	close(f.done)
	if told != nil {
		told(err)
	}
}

// fail counts a failure. One of a single limit, which cannot be read, says nothing
// about the others.
func (c *Cache) fail(err error) {
	c.stats.Failures++
	if !errors.Is(err, ratelimit.ErrMisconfigured) {
		c.failures++
		c.lastErr = err
		c.retryAt = time.Now().Add(c.pause())
	}
}

// keep puts an answer into the cache. One that may be out of date is better than
// none, should the table fail, but no better than another.
func (c *Cache) keep(f *flight) {
	e := &entry{id: f.id, quotas: f.quotas, err: f.err}
	e.fetched.Store(f.begun)
	if f.outdated {
		if c.set(f.id.hash).find(f.id.hash, f.id.resource, f.id.account) != nil {
			return
		}
		e.fetched.Store(outdated)
	}
	c.put(e)
}

// abandon has nobody join flights that began before a change; who waits for one
// asked before it, too.
func (c *Cache) abandon(changed func(id) bool) {
	for id, f := range c.flights {
		if changed(id) {
			f.outdated = true
			delete(c.flights, id)
		}
	}
}

// shared is an equal slice that was given out before, if one is remembered.
func (c *Cache) shared(quotas []ratelimit.Quota) []ratelimit.Quota {
	if len(quotas) == 0 {
		return nil
	}
	i := slices.IndexFunc(c.slices, func(s []ratelimit.Quota) bool { return slices.Equal(s, quotas) })
	switch {
	case i >= 0:
		quotas = c.slices[i]
		c.slices = slices.Delete(c.slices, i, i+1)
	case len(c.slices) == keptSlices:
		c.slices = c.slices[:keptSlices-1]
	}
	c.slices = slices.Insert(c.slices, 0, quotas)
	return quotas
}

// tick moves the clock on until all entries have expired. Then it stands, and costs
// nothing, until the next fetch.
func (c *Cache) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	if c.closed || c.now.Load()-c.newest >= expiresAfter {
		c.ticking = false
		return
	}
	c.timer.Reset(c.age / expiresAfter)
}

// advance sets the clock by the time that has passed: ticks can be late, and a
// clock that stood has missed them.
func (c *Cache) advance() {
	c.now.Store(int64(time.Since(c.base)/(c.age/expiresAfter)) + c.skipped)
}
