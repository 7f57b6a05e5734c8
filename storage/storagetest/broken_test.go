package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/granule-limits/ratelimit/storage"
)

// Ways to break a storage.

type run func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error

type brokenRun struct {
	storage.Storage
	run run
}

func (b brokenRun) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	return b.run(b.Storage, ctx, s, c)
}

func withRun(f run) func() storage.Storage {
	return func() storage.Storage { return brokenRun{&databaseStore{newTable()}, f} }
}

func after(f func(c *storage.Call)) func() storage.Storage {
	return withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		err := next.Run(ctx, s, c)
		f(c)
		return err
	})
}

func stamped(now func(given int64) int64) func() storage.Storage {
	return withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		if !c.OwnClock {
			return next.Run(ctx, s, c)
		}
		c.OwnClock, c.Now = false, now(c.Now)
		defer func() { c.OwnClock = true }()
		return next.Run(ctx, s, c)
	})
}

// interrupted does not know whether a call was executed whose context ended
// meanwhile.
func interrupted(f func(next storage.Storage, s *storage.Script, c *storage.Call) error) func() storage.Storage {
	return withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := next.Run(context.Background(), s, c)
		if ctx.Err() != nil {
			return f(next, s, c)
		}
		return err
	})
}

func withDatabase(f func(t *table) database) func() storage.Storage {
	return func() storage.Storage { return &databaseStore{f(newTable())} }
}

type brokenKeys struct {
	storage.Storage
	change func(k *storage.Key)
}

func withKeys(change func(k *storage.Key)) func() storage.Storage {
	return func() storage.Storage { return brokenKeys{&databaseStore{newTable()}, change} }
}

func (b brokenKeys) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	var keys []storage.Key
	for _, cell := range cellsOf(c) {
		keys = append(keys, cell.Key)
		b.change(&cell.Key)
	}
	defer func() {
		for i, cell := range cellsOf(c) {
			cell.Key = keys[i]
		}
	}()
	return b.Storage.Run(ctx, s, c)
}

func (b brokenKeys) Forget(ctx context.Context, keys []storage.Key) error {
	keys = slices.Clone(keys)
	for i := range keys {
		b.change(&keys[i])
	}
	return b.Storage.Forget(ctx, keys)
}

type brokenForget struct {
	*table
	forget func(t *table, keys []storage.Key)
}

func (b brokenForget) remove(keys []storage.Key) { b.forget(b.table, keys) }

func withForget(f func(t *table, keys []storage.Key)) func() storage.Storage {
	return withDatabase(func(t *table) database { return brokenForget{t, f} })
}

// An expiringStore forgets counters by a rule of its own.
type expiringStore struct {
	storage.Storage
	mu      sync.Mutex
	expires map[storage.Key]int64
	life    func(c *storage.Call, resetAfter, left int64) int64 // µs; left is by earlier calls
}

func expiring(life func(c *storage.Call, resetAfter, left int64) int64) func() storage.Storage {
	return func() storage.Storage {
		return &expiringStore{Storage: &databaseStore{newTable()}, expires: make(map[storage.Key]int64), life: life}
	}
}

func (e *expiringStore) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cell := range cellsOf(c) {
		if expires, ok := e.expires[cell.Key]; ok && expires <= time.Now().UnixMicro() {
			_ = e.Forget(context.Background(), []storage.Key{cell.Key})
			delete(e.expires, cell.Key)
		}
	}
	err := e.Storage.Run(ctx, s, c)
	if err != nil || c.Op == storage.Check {
		return err
	}
	for _, cell := range cellsOf(c) {
		now := time.Now().UnixMicro()
		k := cell.Key
		k.Prefix = strings.Clone(k.Prefix)
		e.expires[k] = now + e.life(c, cell.ResetAfter, e.expires[k]-now)
	}
	return nil
}

func firstExpiry(c *storage.Call, resetAfter, left int64) int64 {
	if left > 0 {
		return left
	}
	return lastExpiry(c, resetAfter, left)
}

func lastExpiry(c *storage.Call, resetAfter, _ int64) int64 {
	if !c.OwnClock {
		resetAfter += time.Hour.Microseconds()
	}
	return resetAfter
}

// Broken runs.

func requestsOneByOne(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	for i := range c.Requests {
		part := *c
		part.Requests = c.Requests[i : i+1]
		if err := next.Run(ctx, s, &part); err != nil {
			return err
		}
		c.Now = part.Now
	}
	return nil
}

func aCopyForEachCell(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	seen := make(map[storage.Key]int)
	return brokenKeys{next, func(k *storage.Key) {
		if seen[*k]++; seen[*k] > 1 {
			k.Prefix += fmt.Sprint(" copy ", seen[*k])
		}
	}}.Run(ctx, s, c)
}

func leftovers(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	before := lastCell(c).Reached
	err := next.Run(ctx, s, c)
	lastCell(c).Reached = lastCell(c).Reached || before
	return err
}

func aPartOfNothing(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	first := &c.Requests[0]
	defer func(all bool) { first.AllOrNothing = all }(first.AllOrNothing)
	first.AllOrNothing = false
	return next.Run(ctx, s, c)
}

func ignoresTogether(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	defer func(together bool) { c.Together = together }(c.Together)
	c.Together = false
	return next.Run(ctx, s, c)
}

func stampsAll(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	defer func(own bool) { c.OwnClock = own }(c.OwnClock)
	c.OwnClock = true
	return next.Run(ctx, s, c)
}

func keepsACheck(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	err := next.Run(ctx, s, c)
	if err == nil && c.Op == storage.Check {
		kept := copyOf(c)
		kept.Op = storage.Use
		return next.Run(ctx, s, kept)
	}
	return err
}

func keepsARefusal(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
	err := next.Run(ctx, s, c)
	if err != nil || c.Op != storage.CheckAndUse || slices.ContainsFunc(c.Requests, func(r storage.Request) bool { return r.Granted > 0 }) {
		return err
	}
	kept := copyOf(c)
	kept.Op = storage.Use
	for _, n := range []int64{1, -1} {
		for i := range kept.Requests {
			kept.Requests[i].Granted = n
		}
		err = errors.Join(err, next.Run(ctx, s, kept))
	}
	return err
}

func copyOf(c *storage.Call) *storage.Call {
	out := *c
	out.Requests = slices.Clone(c.Requests)
	for i := range out.Requests {
		out.Requests[i].Cells = slices.Clone(out.Requests[i].Cells)
	}
	return &out
}

func lastCell(c *storage.Call) *storage.Cell {
	cells := cellsOf(c)
	return cells[len(cells)-1]
}

// Broken keys.

func withCounter(change func(c *storage.Counter)) func(k *storage.Key) {
	return func(k *storage.Key) {
		c := k.Counter.Value()
		change(&c)
		k.Counter = unique.Make(c)
	}
}

func sharedByPrefix(k *storage.Key) {
	withCounter(func(c *storage.Counter) {
		if c.Shared {
			k.Prefix, c.Shared = "shared:"+k.Prefix, false
		}
	})(k)
}

func joinedByColons(k *storage.Key) {
	c := k.Counter.Value()
	k.Prefix = fmt.Sprintf("{%s}:%s:%d:%d", k.Prefix, c.Strategy, c.Window, c.Granularity)
	if c.Shared {
		k.Prefix = strings.Replace(k.Prefix, "}:", "}:shared:", 1)
	}
	k.Counter = unique.Make(storage.Counter{})
}

// Broken databases.

type savesByKey struct{ *table }

func (t savesByKey) save(rows map[storage.Key]*row) bool {
	for k, r := range rows {
		runtime.Gosched() // while the answer is on its way
		if !t.table.save(map[storage.Key]*row{k: r}) {
			return false
		}
	}
	return true
}

type loadsByKey struct{ *table }

func (t loadsByKey) load(cells []*storage.Cell, now int64) map[storage.Key]*row {
	rows := make(map[storage.Key]*row)
	for i := range cells {
		runtime.Gosched() // while the answer is on its way
		maps.Copy(rows, t.table.load(cells[i:i+1], now))
	}
	return rows
}

type savesBlindly struct{ *table }

func (t savesBlindly) save(rows map[storage.Key]*row) bool {
	t.mu.Lock()
	for k, r := range rows {
		r.version = t.rows[k].version
	}
	t.mu.Unlock()
	return t.table.save(rows)
}

type shortWords struct{ *table }

func (t shortWords) save(rows map[storage.Key]*row) bool {
	for _, r := range rows {
		for i, w := range r.words {
			if w < 1e9 { // a count, not a time
				r.words[i] = min(w, math.MaxInt16)
			}
		}
	}
	return t.table.save(rows)
}

type keepsKeys struct{ *table }

func (t keepsKeys) save(rows map[storage.Key]*row) bool {
	saved := t.table.save(rows)
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range rows {
		r := t.rows[k]
		delete(t.rows, k)
		t.rows[k] = r
	}
	return saved
}

func forgetEverything(t *table, _ []storage.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.rows)
}

func forgetPrefix(t *table, keys []storage.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		maps.DeleteFunc(t.rows, func(other storage.Key, _ row) bool { return other.Prefix == k.Prefix })
	}
}

// forgetUnits keeps the first word of the states, the time of the newest use.
func forgetUnits(t *table, keys []storage.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if r := t.rows[k]; len(r.words) > 0 {
			clear(r.words[1:])
		}
	}
}

// Broken Forgets.

type forgetsAlways struct{ storage.Storage }

func (f forgetsAlways) Forget(_ context.Context, keys []storage.Key) error {
	return f.Storage.Forget(context.Background(), keys)
}

// A forgetsLater keeps the keys until the next call.
type forgetsLater struct {
	storage.Storage
	mu    sync.Mutex
	later [][]storage.Key
}

func (f *forgetsLater) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	f.mu.Lock()
	for _, keys := range f.later {
		_ = f.Storage.Forget(context.Background(), keys)
	}
	f.later = nil
	f.mu.Unlock()
	return f.Storage.Run(ctx, s, c)
}

func (f *forgetsLater) Forget(ctx context.Context, keys []storage.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later = append(f.later, keys)
	return ctx.Err()
}
