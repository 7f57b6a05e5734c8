// Package memory keeps counters in this process. It is the default storage: the
// zero configuration works, there is no goroutine and nothing to close.
//
// Counters live in shards, each with a lock of its own; all counters of one
// prefix are in one shard, so that most calls take one lock. Every call may drop
// a few counters that have expired, and MaxKeys bounds how many there are.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/granule-limits/ratelimit/storage"
)

const (
	shardCount     = 256
	defaultMaxKeys = 1 << 20

	// µs; see expiry
	minGrace = 1_000_000
	maxGrace = 3600 * 1_000_000
)

// A Store keeps counters in memory. All of its methods may be called from any
// number of goroutines.
type Store struct {
	shards [shardCount]shard

	seed maphash.Seed
	base time.Time // the clock is the wall clock of this moment, advanced by the monotonic one
	wall int64     // base, µs since 1970
}

var _ storage.Storage = (*Store)(nil)

// An Option changes a Store.
type Option func(*Store)

// WithMaxKeys bounds the number of counters, rounded up to a multiple of 256;
// the default is 1,048,576. A counter takes about 115 bytes and its prefix, and
// with the sliding window and the hash limiter 16 bytes more for each further
// granule in use; with the list limiter 16 for each further entry.
//
// A new counter that finds no room takes the place of one that has expired or,
// if there is none nearby, of a live one that was not asked for lately. A counter
// that was put out starts again at nothing: set the bound well above the number
// of keys that are active in a window. A key that goes on being asked for keeps
// its place, also while it is refused.
func WithMaxKeys(n int) Option {
	return func(s *Store) {
		perShard := max(1, (n+shardCount-1)/shardCount)
		for i := range s.shards {
			s.shards[i].maxKeys = perShard
		}
	}
}

// New makes an empty store.
func New(opts ...Option) *Store {
	now := time.Now()
	s := &Store{seed: maphash.MakeSeed(), base: now, wall: now.UnixMicro()}
	for i := range s.shards {
		s.shards[i].index, s.shards[i].seed = i, s.seed
	}
	for _, o := range append([]Option{WithMaxKeys(defaultMaxKeys)}, opts...) {
		o(s)
	}
	return s
}

// now is the clock of the store: it never goes backwards, also when the wall
// clock is set.
func (s *Store) now() int64 {
	return s.wall + int64(time.Since(s.base)/time.Microsecond)
}

// Run executes a call; see storage.Storage.
func (s *Store) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if s == nil || ctx.Err() != nil {
		return s.check(ctx)
	}
	now := s.now()
	if c.OwnClock {
		c.Now = now
	}
	var other int
	var due bool
	if len(c.Requests) == 1 && len(c.Requests[0].Cells) == 1 {
		other, due = s.runOne(script, c, now)
	} else {
		other, due = s.runMany(script, c, now)
	}
	if due {
		s.sweep(&s.shards[other], now)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	if s == nil {
		return fmt.Errorf("%w: memory.Store is nil: make one with memory.New", storage.ErrMisconfigured)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ratelimit: nothing done: %w", err)
	}
	return nil
}

// runOne is runMany for the commonest call, one counter.
func (s *Store) runOne(script *storage.Script, c *storage.Call, now int64) (other int, due bool) {
	cell := &c.Requests[0].Cells[0]
	hash := hashOf(s.seed, cell.Key.Prefix)
	sh := &s.shards[shardOf(hash)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, &cell.Key)
	sh.states[0] = &e.state
	changed := script.Step(c, sh.states[:])
	sh.settle(e, hash, expiry(c, cell, now, changed), now)
	return sh.turn()
}

// sweep drops a few expired counters of a shard, unless somebody is at work in it.
func (s *Store) sweep(sh *shard, now int64) {
	if !sh.mu.TryLock() {
		return
	}
	defer sh.mu.Unlock()
	for range sweepSize {
		sh.sweep(now)
	}
}

// A target is the counter of one cell.
type target struct {
	cell  *storage.Cell
	hash  uint64
	shard *shard
	entry *entry // nil when it is settled
}

// work is what runMany needs room for. It is used again.
type work struct {
	targets []target
	states  []*storage.State // of the targets
	shards  shardSet         // of the targets
}

// A shardSet has a bit for each shard.
type shardSet [shardCount / 64]uint64

var works = sync.Pool{New: func() any { return new(work) }}

func (s *Store) runMany(script *storage.Script, c *storage.Call, now int64) (other int, due bool) {
	w := works.Get().(*work)
	defer works.Put(w)
	s.aim(w, c)
	s.lock(&w.shards)
	defer s.unlock(&w.shards)
	for i := range w.targets {
		t := &w.targets[i]
		t.entry = t.shard.find(t.hash, &t.cell.Key)
		w.states[i] = &t.entry.state
	}
	changed := script.Step(c, w.states)
	// A new entry sweeps to make room. By then the entries that were there before
	// must have their new expiry: they may have expired, and been used again.
	fresh := false
	for i := range w.targets {
		t := &w.targets[i]
		if t.entry.fresh() {
			fresh = true
			continue
		}
		t.settle(c, now, changed)
	}
	for i := range w.targets {
		if t := &w.targets[i]; fresh && t.entry != nil {
			t.settle(c, now, changed)
		}
	}
	return w.targets[0].shard.turn()
}

func (t *target) settle(c *storage.Call, now int64, changed bool) {
	t.shard.settle(t.entry, t.hash, expiry(c, t.cell, now, changed), now)
	t.entry = nil
}

// aim finds the shards of the cells.
func (s *Store) aim(w *work, c *storage.Call) {
	n := c.Cells()
	w.targets, w.states = slices.Grow(w.targets[:0], n)[:n], slices.Grow(w.states[:0], n)[:n]
	w.shards = shardSet{}
	targets := w.targets
	var t target
	prefix := ""
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			t.cell = &c.Requests[i].Cells[j]
			if !same(prefix, t.cell.Key.Prefix) { // the quotas of a request have one
				prefix = t.cell.Key.Prefix
				t.hash = hashOf(s.seed, prefix)
				i := shardOf(t.hash)
				t.shard = &s.shards[i]
				w.shards[i/64] |= 1 << (i % 64)
			}
			targets[0] = t
			targets = targets[1:]
		}
	}
}

// same tells whether two strings are one, without reading them.
func same(a, b string) bool { return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b) }

// lock takes the locks in the order that all callers keep.
func (s *Store) lock(set *shardSet) {
	for i, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			s.shards[i*64+bits.TrailingZeros64(bitmap)].mu.Lock()
		}
	}
}

func (s *Store) unlock(set *shardSet) {
	for i, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			s.shards[i*64+bits.TrailingZeros64(bitmap)].mu.Unlock()
		}
	}
}

// expiry is when a counter may be dropped, on the store's own clock; 0 if the
// call changed nothing. That is a little after it is back to full, or a busy
// counter with a short memory would come and go all the time.
//
// A call that brought its own time may be a replay, whose hours pass in seconds
// or whose seconds pass in minutes, or a test, whose time stands still: its
// counters are kept an hour longer. A Use has its time from a Check, most of the
// time: its counters are kept longer by as much as that is not the store's, at
// most an hour.
func expiry(c *storage.Call, cell *storage.Cell, now int64, changed bool) int64 {
	grace := int64(minGrace)
	switch {
	case !changed:
		return 0
	case c.OwnClock:
	case c.Op == storage.Use:
		grace += min(max(now-c.Now, c.Now-now), maxGrace)
	default:
		grace += maxGrace
	}
	return now + cell.ResetAfter + grace
}

// Forget deletes counters; see storage.Storage.
func (s *Store) Forget(ctx context.Context, keys []storage.Key) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	for i := range keys {
		hash := hashOf(s.seed, keys[i].Prefix)
		sh := &s.shards[shardOf(hash)]
		sh.mu.Lock()
		sh.remove(hash, &keys[i])
		sh.mu.Unlock()
	}
	return nil
}

// Len is the number of counters in the store, expired ones included that have
// not been dropped yet.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.count
		sh.mu.Unlock()
	}
	return n
}
