package limits

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
)

const (
	defaultCacheAge     = 30 * time.Second
	defaultCacheEntries = 1 << 16
	defaultFetchTimeout = 250 * time.Millisecond
	minCacheAge         = 10 * time.Millisecond

	// Time is counted in ticks, so that a lookup reads a number and no clock.
	expiresAfter   = 8 // ticks: the age
	refreshesAfter = 4
	outdated       = math.MinInt64 / 2 // the tick of an entry that is known to be old
)

// A CacheOption changes a Cache.
type CacheOption func(*Cache)

// WithAge bounds how old an answer can be while the table can be reached, and so
// when a change is seen that nobody told of; 30 s if not given, at least 10 ms. An
// entry that is in use is fetched anew, in the background, from half that age on.
func WithAge(d time.Duration) CacheOption { return func(c *Cache) { c.age = d } }

// WithMaxEntries bounds how many accounts are kept, rounded up to a power of two,
// at least 8; 65,536 if not given. One takes about 200 bytes and its name, and 8 are
// taken in advance. An account has 8 places that it can be kept in: give twice as
// many entries as accounts are in use, and next to none is put out by another.
func WithMaxEntries(n int) CacheOption { return func(c *Cache) { c.maxEntries = n } }

// WithFetchTimeout bounds how long the table is waited for; 250 ms if not given. An
// answer that comes later counts as none.
func WithFetchTimeout(d time.Duration) CacheOption { return func(c *Cache) { c.timeout = d } }

// WithOnError is told of each fetch that failed. It is called in the fetch's
// goroutine, any number at once, and should return soon.
func WithOnError(f func(error)) CacheOption { return func(c *Cache) { c.onError = f } }

// A Cache is a table before a table that is far away: it keeps what that one
// answered, in this process. A lookup of what is kept takes no lock, reads no clock
// and allocates nothing.
//
//   - Age: an answer is at most WithAge old, or was told to be fetched anew by
//     Invalidate. From half the age on it is still used, while a new one is fetched.
//   - Failure: while the table can't be reached, the last answer is used however old
//     it is; Stats counts how often, and WithOnError is told why. Only an account
//     that has no answer yet gets the error.
//   - Load: an account is fetched once at a time, whoever asks. After three failures
//     in a row one fetch a second is tried, or two in an age if that is shorter, and
//     nobody else waits.
//   - Size: WithMaxEntries. Those that are in use stay longest.
//
// ErrUnknownResource is an answer and is kept like one. An account whose name is
// longer than 256 bytes can have no limit of its own, and is looked up as the default.
type Cache struct {
	table      Table
	age        time.Duration
	maxEntries int
	timeout    time.Duration
	onError    func(error)

	seed  maphash.Seed
	sets  []entrySet
	now   atomic.Int64 // ticks
	stale atomic.Int64
	fetcher
}

var _ Table = (*Cache)(nil)

// NewCache puts a cache before a table. Close it when it is no longer used.
func NewCache(table Table, opts ...CacheOption) (*Cache, error) {
	c := &Cache{table: table, age: defaultCacheAge, maxEntries: defaultCacheEntries, timeout: defaultFetchTimeout, seed: maphash.MakeSeed()}
	for _, o := range opts {
		o(c)
	}
	switch {
	case table == nil:
		return nil, fmt.Errorf("%w: limits.NewCache: the table is nil", ratelimit.ErrMisconfigured)
	case c.age < minCacheAge:
		return nil, fmt.Errorf("%w: limits.WithAge: %v is under %v", ratelimit.ErrMisconfigured, c.age, minCacheAge)
	case c.maxEntries < 1 || c.maxEntries > 1<<30:
		return nil, fmt.Errorf("%w: limits.WithMaxEntries: %d is not between 1 and 2^30", ratelimit.ErrMisconfigured, c.maxEntries)
	case c.timeout <= 0:
		return nil, fmt.Errorf("%w: limits.WithFetchTimeout: %v is not above zero", ratelimit.ErrMisconfigured, c.timeout)
	}
	sets := (c.maxEntries + waysPerSet - 1) / waysPerSet
	c.sets = make([]entrySet, 1<<bits.Len(uint(sets-1)))
	c.fetcher.start()
	return c, nil
}

// Quotas are those of an account; see Table.
func (c *Cache) Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error) {
	return c.lookup(ctx, resource, c.hashOf(resource), account)
}

// Source is the quotas of a resource, for ratelimit.NewPolicyFrom. The policy's
// keys are the accounts.
func (c *Cache) Source(resource string) ratelimit.QuotaSource {
	return &cacheSource{c, resource, c.hashOf(resource)}
}

type cacheSource struct {
	cache    *Cache
	resource string
	hash     uint64
}

func (s *cacheSource) Quotas(ctx context.Context, key string) ([]ratelimit.Quota, error) {
	return s.cache.lookup(ctx, s.resource, s.hash, key)
}

func (c *Cache) hashOf(resource string) uint64 { return maphash.String(c.seed, resource) }

func (c *Cache) lookup(ctx context.Context, resource string, hash uint64, account string) ([]ratelimit.Quota, error) {
	if len(account) > maxName {
		account = ""
	}
	hash = bits.RotateLeft64(hash, 1) ^ maphash.String(c.seed, account)
	e := c.set(hash).find(hash, resource, account)
	if e == nil || c.now.Load()-e.fetched.Load() >= refreshesAfter {
		return c.lookupSlowly(ctx, id{hash, resource, account})
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.quotas, e.err
}

// lookupSlowly answers where there is no entry, or none that is fresh.
func (c *Cache) lookupSlowly(ctx context.Context, id id) ([]ratelimit.Quota, error) {
	e, f, err := c.fetch(id)
	if f != nil {
		select {
		case <-f.done:
			if f.answered {
				return f.quotas, f.err
			}
			err = f.err
		case <-ctx.Done():
			err = fmt.Errorf("limits: %s: %w", id, context.Cause(ctx))
		}
		c.countStale(e)
	}
	if e == nil {
		return nil, err
	}
	return e.quotas, e.err
}

// countStale counts an entry that is about to be used although it has expired.
func (c *Cache) countStale(e *entry) {
	if e != nil && c.expired(e) {
		c.stale.Add(1)
	}
}

func (c *Cache) expired(e *entry) bool { return c.now.Load()-e.fetched.Load() >= expiresAfter }

// Invalidate has the limit of an account fetched anew before it is used again. The
// account "" is the resource's default, and with it all of its accounts.
func (c *Cache) Invalidate(resource, account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandon(func(id id) bool { return id.resource == resource && (account == "" || id.account == account) })
	if account != "" {
		hash := bits.RotateLeft64(c.hashOf(resource), 1) ^ maphash.String(c.seed, account)
		if e := c.set(hash).find(hash, resource, account); e != nil {
			e.fetched.Store(outdated)
		}
		return
	}
	for i := range c.sets {
		for j := range c.sets[i].ways {
			if e := c.sets[i].ways[j].Load(); e != nil && e.resource == resource {
				e.fetched.Store(outdated)
			}
		}
	}
}

// InvalidateAll has everything fetched anew before it is used again.
func (c *Cache) InvalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandon(func(id) bool { return true })
	c.skipped += expiresAfter
	c.advance()
}

// Stats counts what a Cache did since it was made.
type Stats struct {
	Entries  int64 // that are kept now
	Fetches  int64 // that were begun
	Failures int64 // fetches that failed
	Stale    int64 // lookups answered with what is older than the age, or was invalidated
	Evicted  int64 // entries that were put out by others
	Failing  bool  // whether the newest fetch that ended has failed
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Stale, s.Failing = c.stale.Load(), c.failures > 0
	return s
}

// Close ends the fetches under way and waits for them. Afterwards nothing is
// fetched: the cache answers with what it has.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.cancel(fmt.Errorf("%w: limits: the cache was closed", ratelimit.ErrUnavailable))
	c.running.Wait()
}

// isAnswer tells whether an error is a table's answer, or its failure.
func isAnswer(err error) bool { return err == nil || errors.Is(err, ErrUnknownResource) }
