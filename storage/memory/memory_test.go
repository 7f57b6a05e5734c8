package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unique"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func policy(t *testing.T, store *memory.Store, quotas ...ratelimit.Quota) *ratelimit.Policy {
	t.Helper()
	p, err := ratelimit.NewPolicy("p", ratelimit.NewSlidingWindow(store), quotas...)
	require.NoError(t, err)
	return p
}

// The bound holds, and what goes first is what was not asked for: a flood of
// keys does not give an attacker's own key a new budget.
func TestMaxKeys(t *testing.T) {
	const maxKeys = 1 << 12
	store := memory.New(memory.WithMaxKeys(maxKeys))
	p := policy(t, store, ratelimit.PerHour(1))
	d, err := p.Allow(t.Context(), "hot")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	for i := range 20 * maxKeys {
		_, err := p.Allow(t.Context(), fmt.Sprint("flood ", i))
		require.NoError(t, err)
		if i%16 == 0 {
			d, err := p.Allow(t.Context(), "hot")
			require.NoError(t, err)
			require.False(t, d.Allowed, "the hot key was put out after %d others", i)
		}
		require.LessOrEqual(t, store.Len(), maxKeys)
	}
	require.Greater(t, store.Len(), maxKeys*9/10)
}

// Keys take the memory of those that were put out, so that a flood of them makes no
// garbage, and none is taken for another.
func TestFloodMakesNoGarbage(t *testing.T) {
	store := memory.New(memory.WithMaxKeys(1))
	script := &storage.Script{Step: func(c *storage.Call, states []*storage.State) bool {
		*states[0] = append(*states[0], 1)
		c.Requests[0].Cells[0].Remaining = int64(len(*states[0]))
		return true
	}}
	cell := storage.Cell{Key: storage.Key{Counter: unique.Make(storage.Counter{})}, ResetAfter: time.Hour.Microseconds()}
	call := &storage.Call{OwnClock: true, Requests: []storage.Request{{Cells: []storage.Cell{cell}}}}
	var key []byte
	n := 0
	useTwice := func(maxLength int) {
		n++
		key = strconv.AppendInt(key[:0], int64(n), 10)
		key = append(key, strings.Repeat("x", n%maxLength)...)
		cell := &call.Requests[0].Cells[0]
		cell.Key.Prefix = unsafe.String(&key[0], len(key))
		for uses := range int64(2) {
			if err := store.Run(context.Background(), script, call); err != nil || cell.Remaining != uses+1 {
				t.Fatalf("%s: %d uses instead of %d, error %v", key, cell.Remaining, uses+1, err)
			}
		}
	}
	for range 20_000 {
		useTwice(40)
	}
	require.Zero(t, testing.AllocsPerRun(20_000, func() { useTwice(1) }))
}

// The smallest bound still limits, one key at a time.
func TestMaxKeysOne(t *testing.T) {
	for _, n := range []int{-1, 0, 1} {
		store := memory.New(memory.WithMaxKeys(n))
		p := policy(t, store, ratelimit.PerHour(1), ratelimit.PerDay(1), ratelimit.PerMinute(1))
		for i := range 1000 {
			d, err := p.Allow(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		require.LessOrEqual(t, store.Len(), 256)
	}
}

// Counters go when they have expired, without a goroutine: the calls that come
// take them along.
func TestExpiredKeysGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := policy(t, store, ratelimit.PerMinute(5))
		for i := range 50_000 {
			_, err := p.Allow(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
		}
		require.Equal(t, 50_000, store.Len())
		time.Sleep(59 * time.Second)
		for i := range 20_000 { // all live
			_, err := p.Check(t.Context(), fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
		require.Equal(t, 50_000, store.Len())
		time.Sleep(10 * time.Second)
		for range 500_000 { // one busy key is enough
			_, err := p.Check(t.Context(), "busy", 1)
			require.NoError(t, err)
		}
		require.Zero(t, store.Len())
	})
}

// What nobody was granted is not kept.
func TestRefusedAndCheckedKeysAreNotKept(t *testing.T) {
	store := memory.New()
	p := policy(t, store, ratelimit.PerMinute(5), ratelimit.PerHour(2))
	for i := range 1000 {
		_, err := p.Check(t.Context(), fmt.Sprint(i), 1)
		require.NoError(t, err)
		_, err = p.AllowN(t.Context(), fmt.Sprint(i), 3)
		require.NoError(t, err)
		require.NoError(t, p.Use(t.Context(), fmt.Sprint(i), 0))
	}
	require.Zero(t, store.Len())
}

// A short key cut out of something large does not hold it in memory.
func TestPrefixesAreCopied(t *testing.T) {
	store := memory.New()
	limiter := ratelimit.NewSlidingWindow(store)
	before := heap()
	for i := range 64 {
		page := strings.Repeat(fmt.Sprintf("%07d ", i), 1<<17) // 1 MB
		_, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{
			{Prefix: page[:8], Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(1)}},
		})
		require.NoError(t, err)
	}
	require.Less(t, heap(), before+16<<20)
	require.Equal(t, 64, store.Len())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A wall clock that is set does not move the store's: only the monotonic clock
// does. In a bubble both are one, so what is seen here is that time which passes
// is time which counts, to the µs.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, memory.New(), ratelimit.Quota{Limit: 1, Window: time.Second, Granularity: time.Second})
		d, err := p.Allow(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, d.At().Equal(time.Now().Truncate(time.Microsecond)))
		time.Sleep(d.ResetAfter - time.Microsecond)
		d, err = p.Allow(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Equal(t, time.Microsecond, d.RetryAfter)
		time.Sleep(d.RetryAfter)
		d, err = p.Allow(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}

// A counter that a call of its own time touched outlives that time: see expiry.
func TestOwnTimesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := policy(t, store, ratelimit.Quota{Limit: 1, Window: time.Millisecond})
		at := ratelimit.At(time.Unix(0, 0))
		_, err := p.Allow(t.Context(), "a", at)
		require.NoError(t, err)
		time.Sleep(30 * time.Minute)
		for i := range 20_000 {
			_, err := p.Check(t.Context(), fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
		d, err := p.Allow(t.Context(), "a", at)
		require.NoError(t, err)
		require.False(t, d.Allowed)
	})
}

// A counter that had expired, and is used again beside one that is new, is not
// swept away with what it was just charged.
func TestUsedAgainBesideANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.NewSimpleLimiter(memory.New())
		minute, second := ratelimit.PerMinute(10), ratelimit.PerSecond(10)
		ask := func(prefix int, n int64, quotas ...ratelimit.Quota) []ratelimit.RequestedQuota {
			return []ratelimit.RequestedQuota{{Prefix: fmt.Sprint(prefix), Requested: n, Quotas: quotas}}
		}
		for i := range 1000 {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(i, 1, minute))
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Minute)
		for i := range 1000 {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(i, 5, second, minute)) // the new one first
			require.NoError(t, err)
			_, grants, err := limiter.CheckWithinQuotas(t.Context(), ask(i, 0, minute))
			require.NoError(t, err)
			require.EqualValues(t, 5, grants[0].Remaining, "prefix %d: the charge is lost", i)
		}
	})
}
