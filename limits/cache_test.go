package limits_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

func perMinute(n int64) []ratelimit.Quota { return []ratelimit.Quota{ratelimit.PerMinute(n)} }

// A farTable is a table that takes a while and can fail.
type farTable struct {
	limits.Memory
	calls atomic.Int64
	takes atomic.Int64                  // ns
	fails atomic.Pointer[error]         // what each call ends with
	hangs atomic.Pointer[chan struct{}] // calls wait for it, whatever their context
}

var errDown = fmt.Errorf("%w: no route", ratelimit.ErrUnavailable)

func newFarTable(t testing.TB, list ...limits.Limit) *farTable {
	f := new(farTable)
	require.NoError(t, f.Replace(list))
	return f
}

func (f *farTable) fail(err error) {
	if err == nil {
		f.fails.Store(nil)
		return
	}
	f.fails.Store(&err)
}

func (f *farTable) Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error) {
	f.calls.Add(1)
	quotas, err := f.Memory.Quotas(ctx, resource, account) // read, and then on its way for a while
	if hang := f.hangs.Load(); hang != nil {
		<-*hang
	}
	if d := f.takes.Load(); d > 0 {
		select {
		case <-time.After(time.Duration(d)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := f.fails.Load(); err != nil {
		return nil, *err
	}
	if err != nil {
		return nil, err
	}
	return append([]ratelimit.Quota(nil), quotas...), nil // like one that decodes them
}

func newCache(t testing.TB, table limits.Table, opts ...limits.CacheOption) *limits.Cache {
	slow := []limits.CacheOption{limits.WithFetchTimeout(time.Minute)} // a busy machine is no fault of the table
	cache, err := limits.NewCache(table, append(slow, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	return cache
}

// limitOf is the limit that a cache tells, whatever its quotas are otherwise.
func limitOf(t testing.TB, table limits.Table, account string) int64 {
	t.Helper()
	quotas, err := table.Quotas(t.Context(), "r", account)
	require.NoError(t, err)
	require.Len(t, quotas, 1)
	return quotas[0].Limit
}

func TestCacheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		table.takes.Store(int64(100 * time.Millisecond))
		cache := newCache(t, table, limits.WithAge(8*time.Second))
		start := time.Now()
		require.EqualValues(t, 1, limitOf(t, cache, "a")) // cold: waits
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(2)}}))

		time.Sleep(2900 * time.Millisecond) // fresh: not asked for
		require.EqualValues(t, 1, limitOf(t, cache, "a"))
		require.EqualValues(t, 1, table.calls.Load())

		time.Sleep(2 * time.Second) // over half the age: the old answer, and a fetch
		before := time.Now()
		require.EqualValues(t, 1, limitOf(t, cache, "a"))
		require.EqualValues(t, 1, limitOf(t, cache, "a"))
		require.Zero(t, time.Since(before))
		time.Sleep(150 * time.Millisecond)
		require.EqualValues(t, 2, table.calls.Load())
		require.EqualValues(t, 2, limitOf(t, cache, "a"))

		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(3)}}))
		time.Sleep(8 * time.Second) // the age: waits, and sees the change
		require.EqualValues(t, 3, limitOf(t, cache, "a"))
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(4)}}))
		time.Sleep(1000 * time.Hour) // the clock stood meanwhile
		require.EqualValues(t, 4, limitOf(t, cache, "a"))
		require.Equal(t, limits.Stats{Entries: 1, Fetches: 4}, cache.Stats())
	})
}

// However it is used, an answer is never older than the age.
func TestCacheAgeAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 800 * time.Millisecond
		table := newFarTable(t)
		cache := newCache(t, table, limits.WithAge(age))
		start := time.Now()
		random := newRandom(t)
		oldest := time.Duration(0)
		for range 3000 {
			now := time.Since(start)
			require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(int64(now / time.Millisecond))}}))
			got := time.Duration(limitOf(t, cache, "a")) * time.Millisecond
			oldest = max(oldest, now-got)
			time.Sleep(time.Duration(random.IntN(int(age/3/time.Millisecond))) * time.Millisecond)
			if random.IntN(20) == 0 {
				time.Sleep(time.Duration(random.IntN(int(2*age/time.Millisecond))) * time.Millisecond)
			}
		}
		require.LessOrEqual(t, oldest, age)
		require.Greater(t, oldest, age/3, "nothing was cached")
	})
}

func TestCacheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)}, limits.Limit{Resource: "r", Account: "own", Quotas: perMinute(7)})
		var told []error
		cache := newCache(t, table, limits.WithAge(8*time.Second), limits.WithOnError(func(err error) { told = append(told, err) }))
		require.EqualValues(t, 7, limitOf(t, cache, "own"))
		table.fail(errDown)

		time.Sleep(5 * time.Second) // not yet expired: not stale
		require.EqualValues(t, 7, limitOf(t, cache, "own"))
		synctest.Wait()
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], errDown)
		require.EqualError(t, told[0], `limits: resource "r", account "own": `+errDown.Error())
		require.Equal(t, limits.Stats{Entries: 1, Fetches: 2, Failures: 1, Failing: true}, cache.Stats())

		time.Sleep(time.Hour)
		for range 10 {
			require.EqualValues(t, 7, limitOf(t, cache, "own"))
			synctest.Wait()
		}
		require.EqualValues(t, 10, cache.Stats().Stale)
		require.EqualValues(t, 3, cache.Stats().Failures, "after three it is left alone")
		_, err := cache.Quotas(t.Context(), "r", "new")
		require.ErrorIs(t, err, ratelimit.ErrUnavailable)
		require.EqualValues(t, 3, cache.Stats().Fetches-1, "left alone, also by those who have no answer")

		time.Sleep(time.Second) // one probe
		for range 10 {
			_, err = cache.Quotas(t.Context(), "r", "new")
			require.ErrorIs(t, err, errDown)
		}
		require.EqualValues(t, 4, cache.Stats().Failures)
		time.Sleep(time.Second)
		table.takes.Store(int64(time.Millisecond))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := cache.Quotas(context.Background(), "r", fmt.Sprint("new", i))
				require.ErrorIs(t, err, errDown)
			})
		}
		wg.Wait()
		require.EqualValues(t, 5, cache.Stats().Failures)

		table.fail(nil)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, limitOf(t, cache, "new"))
		require.False(t, cache.Stats().Failing)
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(2)}}))
		require.EqualValues(t, 2, limitOf(t, cache, "own")) // waits, as it is old and the table is back
	})
}

// A failure of whatever account, also one of a moment ago, does not let an old limit
// stand that is told to have changed, or is older than the age, while the table is there.
func TestCacheOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		cache := newCache(t, table, limits.WithAge(8*time.Second))
		require.EqualValues(t, 1, limitOf(t, cache, "a"))
		failures := func(n int) {
			t.Helper()
			table.fail(errDown)
			for i := range n {
				_, err := cache.Quotas(t.Context(), "r", fmt.Sprint("other", i))
				require.ErrorIs(t, err, errDown)
			}
			table.fail(nil)
		}
		change := func(n int64) {
			require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(n)}}))
		}
		table.takes.Store(int64(time.Millisecond))
		failures(2)
		change(2)
		cache.Invalidate("r", "a")
		require.EqualValues(t, 2, limitOf(t, cache, "a"))
		failures(2)
		change(3)
		time.Sleep(8 * time.Second)
		require.EqualValues(t, 3, limitOf(t, cache, "a"))

		failures(3) // now it is left alone, for a second
		change(4)
		cache.Invalidate("r", "a")
		require.EqualValues(t, 3, limitOf(t, cache, "a"))
		time.Sleep(time.Second)
		require.EqualValues(t, 4, limitOf(t, cache, "a"))
		require.EqualValues(t, 1, cache.Stats().Stale)
	})
}

// A table that hangs costs each caller the timeout at most, and those who have an
// answer nothing once it is known, but the one who looks whether it is back.
func TestCacheHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		cache := newCache(t, table, limits.WithAge(8*time.Second), limits.WithFetchTimeout(time.Second))
		require.EqualValues(t, 1, limitOf(t, cache, "a"))
		hang := make(chan struct{})
		table.hangs.Store(&hang)
		time.Sleep(8 * time.Second)
		took := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			require.EqualValues(t, 1, limitOf(t, cache, "a"))
			require.Equal(t, want, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := cache.Quotas(ctx, "r", "hurried")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		took(time.Second)
		took(time.Second) // the third failure
		took(0)
		took(0)
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { took(time.Second) })
		synctest.Wait()
		took(0)
		wg.Wait()
		took(0)
		_, err = cache.Quotas(t.Context(), "r", "cold")
		require.ErrorIs(t, err, ratelimit.ErrUnavailable)
		require.ErrorContains(t, err, "no answer within limits.WithFetchTimeout(1s)")

		table.hangs.Store(nil)
		close(hang)
		time.Sleep(2 * time.Second)
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(2)}}))
		require.EqualValues(t, 2, limitOf(t, cache, "cold"))
	})
}

// Never more than 64 at once ask the table, also when it does not look at their
// contexts; and who waits for room gives up in time.
func TestCacheBoundedFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		hang := make(chan struct{})
		table.hangs.Store(&hang)
		cache := newCache(t, table, limits.WithFetchTimeout(time.Second))
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				_, err := cache.Quotas(context.Background(), "r", fmt.Sprint(i))
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)
			})
		}
		wg.Wait()
		require.EqualValues(t, 64, table.calls.Load())
		close(hang)
	})
}

func TestCacheStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		table.takes.Store(int64(time.Millisecond))
		cache := newCache(t, table)
		ask := func() {
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() { limitOf(t, cache, "a") })
			}
			wg.Wait()
			time.Sleep(time.Second)
		}
		ask() // cold
		require.EqualValues(t, 1, table.calls.Load())
		time.Sleep(20 * time.Second)
		ask() // over half the age
		require.EqualValues(t, 2, table.calls.Load())
		time.Sleep(time.Hour)
		ask() // expired
		require.EqualValues(t, 3, table.calls.Load())
	})
}

// An entry that cannot be read is no reason to leave the table alone.
func TestCacheOneBadEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
		cache := newCache(t, table)
		table.fail(fmt.Errorf("%w: not JSON", ratelimit.ErrMisconfigured))
		for i := range 10 {
			_, err := cache.Quotas(t.Context(), "r", "bad")
			require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
			require.EqualValues(t, i+1, table.calls.Load())
		}
		table.fail(nil)
		require.EqualValues(t, 1, limitOf(t, cache, "good"))
		require.Equal(t, limits.Stats{Entries: 1, Fetches: 11, Failures: 10}, cache.Stats())
	})
}

func TestCacheUnknownResource(t *testing.T) {
	table := newFarTable(t)
	cache := newCache(t, table)
	for range 3 {
		_, err := cache.Quotas(t.Context(), "r", "a")
		require.ErrorIs(t, err, limits.ErrUnknownResource)
	}
	require.EqualValues(t, 1, table.calls.Load())
	require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(1)}}))
	cache.Invalidate("r", "")
	require.EqualValues(t, 1, limitOf(t, cache, "a"))
}

func TestCacheInvalidate(t *testing.T) {
	table := newFarTable(t)
	cache := newCache(t, table, limits.WithAge(time.Hour))
	set := func(n int64) {
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(n)}, {Resource: "other", Quotas: perMinute(n)}}))
	}
	state := func() (got [3]int64) {
		for i, of := range []struct{ resource, account string }{{"r", "a"}, {"r", "b"}, {"other", "a"}} {
			quotas, err := cache.Quotas(t.Context(), of.resource, of.account)
			require.NoError(t, err)
			got[i] = quotas[0].Limit
		}
		return got
	}
	set(1)
	require.Equal(t, [3]int64{1, 1, 1}, state())
	set(2)
	require.Equal(t, [3]int64{1, 1, 1}, state())
	cache.Invalidate("r", "a")
	cache.Invalidate("r", "is not there")
	require.Equal(t, [3]int64{2, 1, 1}, state())
	set(3)
	cache.Invalidate("r", "")
	require.Equal(t, [3]int64{3, 3, 1}, state())
	set(4)
	cache.InvalidateAll()
	require.Equal(t, [3]int64{4, 4, 4}, state())
	set(5)
	require.Equal(t, [3]int64{4, 4, 4}, state(), "what was fetched since is fresh")

	table.fail(errDown) // what is invalidated is still better than nothing
	cache.InvalidateAll()
	require.Equal(t, [3]int64{4, 4, 4}, state())
	require.EqualValues(t, 3, cache.Stats().Stale)
}

// What was read before an Invalidate is not kept as if it were read after it.
func TestCacheInvalidateDuringFetch(t *testing.T) {
	for name, invalidate := range map[string]func(*limits.Cache){
		"account":  func(c *limits.Cache) { c.Invalidate("r", "a") },
		"resource": func(c *limits.Cache) { c.Invalidate("r", "") },
		"all":      (*limits.Cache).InvalidateAll,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
				table.takes.Store(int64(100 * time.Millisecond))
				cache := newCache(t, table, limits.WithAge(time.Hour))
				var wg sync.WaitGroup
				wg.Go(func() { require.EqualValues(t, 1, limitOf(t, cache, "a")) })
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(2)}}))
				invalidate(cache)
				require.EqualValues(t, 2, limitOf(t, cache, "a")) // does not join the fetch that is under way
				wg.Wait()
				require.EqualValues(t, 2, limitOf(t, cache, "a"))

				// Nobody asks before the fetch that is under way has ended.
				cache.InvalidateAll()
				wg.Go(func() { require.EqualValues(t, 2, limitOf(t, cache, "a")) })
				wg.Go(func() { require.EqualValues(t, 2, limitOf(t, cache, "b")) }) // has no entry yet
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(3)}}))
				cache.Invalidate("r", "")
				wg.Wait()
				require.EqualValues(t, 3, limitOf(t, cache, "a"))
				require.EqualValues(t, 3, limitOf(t, cache, "b"))

				// The newer fetch is faster.
				cache.InvalidateAll()
				wg.Go(func() { require.EqualValues(t, 3, limitOf(t, cache, "a")) })
				time.Sleep(50 * time.Millisecond)
				table.takes.Store(0)
				require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(4)}}))
				cache.Invalidate("r", "")
				require.EqualValues(t, 4, limitOf(t, cache, "a"))
				wg.Wait()
				require.EqualValues(t, 4, limitOf(t, cache, "a"))
			})
		})
	}
}

func TestCacheSize(t *testing.T) {
	table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)}, limits.Limit{Resource: "r", Account: "hot", Quotas: perMinute(9)})
	cache := newCache(t, table, limits.WithMaxEntries(1000), limits.WithAge(time.Hour))
	for i := range 20_000 {
		limitOf(t, cache, fmt.Sprint(i))
		require.EqualValues(t, 9, limitOf(t, cache, "hot"))
	}
	stats := cache.Stats()
	require.LessOrEqual(t, stats.Entries, int64(1024))
	require.Greater(t, stats.Entries, int64(900))
	require.EqualValues(t, 20_001, stats.Fetches, "what is in use stays")
	require.EqualValues(t, stats.Fetches, stats.Entries+stats.Evicted)
	require.EqualValues(t, 20_001, table.calls.Load())
}

func TestCacheLongNames(t *testing.T) {
	table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
	cache := newCache(t, table)
	for i := range 100 {
		require.EqualValues(t, 1, limitOf(t, cache, fmt.Sprintf("%300d", i)))
	}
	require.EqualValues(t, 1, cache.Stats().Entries)
}

// Accounts with equal quotas share a slice, and get the same one again: a policy
// knows it by its address.
func TestCacheSharesSlices(t *testing.T) {
	table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)}, limits.Limit{Resource: "r", Account: "own", Quotas: perMinute(2)}, limits.Limit{Resource: "other", Quotas: perMinute(1)})
	cache := newCache(t, table)
	address := func(resource, account string) *ratelimit.Quota {
		quotas, err := cache.Quotas(t.Context(), resource, account)
		require.NoError(t, err)
		return &quotas[0]
	}
	a := address("r", "a")
	own := address("r", "own")
	require.NotSame(t, a, own)
	for i := range 100 {
		require.Same(t, a, address("r", fmt.Sprint(i)))
		require.Same(t, own, address("r", "own"))
	}
	cache.InvalidateAll()
	require.Same(t, a, address("r", "a"))
	require.Same(t, own, address("r", "own"))

	// More than are remembered still are right.
	for i := range 100 {
		require.NoError(t, table.Replace([]limits.Limit{{Resource: "r", Quotas: perMinute(int64(i))}}))
		cache.InvalidateAll()
		require.EqualValues(t, i, limitOf(t, cache, "a"))
	}
}

func TestCacheClose(t *testing.T) {
	table := newFarTable(t, limits.Limit{Resource: "r", Quotas: perMinute(1)})
	cache := newCache(t, table)
	require.EqualValues(t, 1, limitOf(t, cache, "a"))
	table.takes.Store(int64(time.Hour))
	got := make(chan error)
	go func() {
		_, err := cache.Quotas(t.Context(), "r", "waits")
		got <- err
	}()
	for table.calls.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	cache.Close()
	require.ErrorIs(t, <-got, ratelimit.ErrUnavailable)
	cache.Close()
	cache.InvalidateAll()
	require.EqualValues(t, 1, limitOf(t, cache, "a"))
	_, err := cache.Quotas(t.Context(), "r", "new")
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.EqualValues(t, 2, table.calls.Load())
}

func TestCacheOptions(t *testing.T) {
	table := newFarTable(t)
	for want, opt := range map[string]limits.CacheOption{
		"WithAge: 9ms is under 10ms":           limits.WithAge(9 * time.Millisecond),
		"WithMaxEntries: 0 is not between":     limits.WithMaxEntries(0),
		"WithFetchTimeout: 0s is not above":    limits.WithFetchTimeout(0),
		"WithMaxEntries: 1073741825 is not be": limits.WithMaxEntries(1<<30 + 1),
	} {
		_, err := limits.NewCache(table, opt)
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
		require.ErrorContains(t, err, want)
	}
	_, err := limits.NewCache(nil)
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
}

// No quotas would be no limit.
func TestCacheNoQuotas(t *testing.T) {
	cache := newCache(t, emptyTable{})
	_, err := cache.Quotas(t.Context(), "r", "a")
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
}

type emptyTable struct{}

func (emptyTable) Quotas(context.Context, string, string) ([]ratelimit.Quota, error) { return nil, nil }

// Many goroutines ask, tables change, entries are told of and put out: an answer is
// always one account's own, and after an Invalidate never one from before the change.
func TestCacheConcurrent(t *testing.T) {
	const accounts = 40
	table := new(countingTable)
	cache := newCache(t, table, limits.WithMaxEntries(16), limits.WithAge(20*time.Millisecond))
	source := cache.Source("r")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			random := newRandom(t)
			for range 1500 {
				n := random.IntN(accounts)
				account := fmt.Sprint(n)
				if g == 0 && random.IntN(10) == 0 {
					table.versions[n].Add(1)
					if random.IntN(5) == 0 {
						cache.InvalidateAll()
					} else {
						cache.Invalidate("r", account)
					}
				}
				least := int64(0)
				if g == 0 { // who changed it must see it
					least = table.versions[n].Load()
				}
				quotas, err := source.Quotas(context.Background(), account)
				if err != nil || quotas[0].Name != account || quotas[0].Limit < least {
					t.Errorf("account %s: %v, %v; want at least version %d", account, quotas, err, least)
					return
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, cache.Stats().Entries, int64(16))
}

// A countingTable tells an account's name and version.
type countingTable struct{ versions [40]atomic.Int64 }

func (c *countingTable) Quotas(_ context.Context, _, account string) ([]ratelimit.Quota, error) {
	var n int
	if _, err := fmt.Sscan(account, &n); err != nil {
		return nil, errors.Join(ratelimit.ErrMisconfigured, err)
	}
	return []ratelimit.Quota{{Name: account, Limit: c.versions[n].Load(), Window: time.Minute}}, nil
}

func TestSourceAllocates(t *testing.T) {
	m, err := limits.NewMemory(limits.Limit{Resource: "r", Quotas: perMinute(1)})
	require.NoError(t, err)
	cache := newCache(t, m)
	for name, source := range map[string]interface {
		Quotas(ctx context.Context, key string) ([]ratelimit.Quota, error)
	}{"memory": m.Source("r"), "cache": cache.Source("r")} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := source.Quotas(context.Background(), "acct-1"); err != nil {
				t.Fatal(err)
			}
		}), name)
	}
}
