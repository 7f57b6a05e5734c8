package wrap_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/wrap"
)

// A gate holds the first call to a limiter until it is opened.
type gate struct {
	spy
	hold atomic.Bool
	open chan struct{}
}

func newGate(limiter ratelimit.Limiter) *gate {
	g := &gate{spy: spy{Limiter: limiter}, open: make(chan struct{})}
	g.before = func(context.Context) error {
		if g.hold.CompareAndSwap(true, false) {
			<-g.open
		}
		return nil
	}
	return g
}

// A reply is what a caller got.
type reply struct {
	grants []ratelimit.GrantedQuota
	err    error
}

// together lets callers come one after the other while the first is under way;
// to be called in a bubble.
func (g *gate) together(limiter ratelimit.Limiter, calls [][]ratelimit.RequestedQuota) []reply {
	replies := make([]reply, len(calls))
	g.hold.Store(true)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			replies[i].grants, replies[i].err = limiter.CheckAndUseQuotas(context.Background(), calls[i])
		})
		synctest.Wait()
	}
	g.open <- struct{}{}
	wg.Wait()
	return replies
}

// TestCoalesceTwin holds what callers get that go together equal to what they get
// one after the other, alone, at the same moment.
func TestCoalesceTwin(t *testing.T) {
	for strategy, open := range limitertest.Strategies {
		t.Run(strategy, func(t *testing.T) {
			r := random(t)
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					g, twin := newGate(open(newPlainStore())), open(newPlainStore())
					compareTogether(t, r, strategy, g, wrap.Coalesce(g), twin)
				})
			}
		})
	}
}

// The same on a real Redis, which is given the time.
func TestCoalesceTwinOnRedis(t *testing.T) {
	store := teststore.Redis(t)
	for strategy, open := range limitertest.Strategies {
		t.Run(strategy, func(t *testing.T) {
			r := random(t)
			limiter, twin := open(store), open(newPlainStore())
			now := limitertest.Start
			stamped := &spy{Limiter: limiter, now: func() time.Time { return now }}
			for round := range 30 {
				now = now.Add(time.Duration(r.IntN(4_000_000)) * time.Microsecond)
				calls := randomCalls(r, fmt.Sprintf("%s %d", strategy, round/10))
				replies := queued(t, stamped, calls)
				for i, got := range replies {
					want, err := twin.CheckAndUseQuotas(t.Context(), got.call, ratelimit.At(now))
					require.NoError(t, err)
					requireSame(t, strategy, got, want, replies[i+1:])
				}
			}
		})
	}
}

// On a cluster, where prefixes lie on several servers, nobody is refused what a
// stranger's request, refused by one of them, took from another for a moment.
func TestCoalesceOnCluster(t *testing.T) {
	store, err := redisstore.New(redistest.StartCluster(t, 0).Client(t), redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	for strategy, open := range limitertest.Strategies {
		r := random(t)
		limiter := &spy{Limiter: open(store)}
		for round := range 20 {
			prefix := fmt.Sprint(strategy, round)
			twin := open(memory.New())
			n := 3 + r.Int64N(6)
			own, shared := ratelimit.PerDay(n+r.Int64N(4)), ratelimit.Quota{Limit: n, Window: 48 * time.Hour, PrefixOverride: "all " + prefix}
			calls := [][]ratelimit.RequestedQuota{ask(prefix, 0, own, shared)}
			for range 2 + r.IntN(8) {
				call := ask(prefix, pick(r, 1, 2, 3, 1+r.Int64N(9)), own, shared)
				call[0].AllOrNothing = r.IntN(2) == 0
				calls = append(calls, call)
			}
			replies := queued(t, limiter, calls)
			joined := func(r queuedReply) int { // these come after those that do not wait
				if q := r.call[0]; q.AllOrNothing && q.Requested > 1 {
					return 0
				}
				return 1
			}
			slices.SortStableFunc(replies, func(a, b queuedReply) int { return joined(a) - joined(b) })
			for _, got := range replies {
				g, want := got.grants[0], use(t, twin, got.call)
				require.Equal(t, []int64{want.Granted, want.Remaining}, []int64{g.Granted, g.Remaining}, "%+v", got.call)
				require.Equal(t, want.ReachedQuotas, g.ReachedQuotas)
				require.Equal(t, want.RetryAfter > 0, g.RetryAfter > 0)
			}
		}
	}
}

// A queuedReply is a call and what it got.
type queuedReply struct {
	call   []ratelimit.RequestedQuota
	grants []ratelimit.GrantedQuota
}

// queued sends calls through Coalesce while the first is under way, on real time:
// each when the one before it waits, so that they come in order, or is back, if it
// did not join.
func queued(t *testing.T, limiter *spy, calls [][]ratelimit.RequestedQuota) []queuedReply {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	var first atomic.Bool
	limiter.before = func(context.Context) error {
		if first.CompareAndSwap(false, true) {
			entered <- struct{}{}
			<-release
		}
		return nil
	}
	coalesced := wrap.Coalesce(limiter)
	replies := make([]queuedReply, len(calls))
	var wg sync.WaitGroup
	var back atomic.Int64
	for i, call := range calls {
		wg.Go(func() {
			defer back.Add(1)
			grants, err := coalesced.CheckAndUseQuotas(context.Background(), call)
			if err != nil {
				t.Error(err)
			}
			replies[i] = queuedReply{call, grants}
		})
		if i == 0 {
			<-entered
		} else {
			for wrap.Waiting(coalesced)+int(back.Load()) < i {
				time.Sleep(50 * time.Microsecond)
			}
		}
	}
	close(release)
	wg.Wait()
	require.False(t, t.Failed())
	return replies
}

func compareTogether(t *testing.T, r *rand.Rand, strategy string, g *gate, coalesced, twin ratelimit.Limiter) {
	for range 8 {
		time.Sleep(time.Duration(r.IntN(4_000_000)) * time.Microsecond)
		calls := randomCalls(r, "a")
		before := g.calls.Load()
		var replies []queuedReply
		for i, r := range g.together(coalesced, calls) {
			require.NoError(t, r.err)
			replies = append(replies, queuedReply{calls[i], r.grants})
		}
		require.LessOrEqual(t, g.calls.Load()-before, int64(2))
		for i, got := range replies {
			want, err := twin.CheckAndUseQuotas(t.Context(), got.call)
			require.NoError(t, err)
			requireSame(t, strategy, got, want, replies[i+1:])
		}
	}
}

// randomCalls are of one set, and can go together.
func randomCalls(r *rand.Rand, prefix string) [][]ratelimit.RequestedQuota {
	own := ratelimit.Quota{Limit: r.Int64N(20), Window: 10 * time.Second, Granularity: time.Second, Burst: r.Int64N(2) * 7}
	shared := ratelimit.Quota{Limit: 1 + r.Int64N(30), Window: 12 * time.Second, PrefixOverride: "all of " + prefix}
	set, spreads := ask(prefix, 0, own), false
	switch r.IntN(4) {
	case 0:
		set[0].Quotas, spreads = append(set[0].Quotas, shared), true
	case 1:
		set = slices.Concat(set, ask(prefix+" too", 0, shared), ask(prefix, 0, ratelimit.PerMinute(r.Int64N(30)), own), ask(prefix+" three", 0, shared))
	}
	calls := make([][]ratelimit.RequestedQuota, 2+r.IntN(12))
	for i := range calls {
		calls[i] = cloneOf(set)
		for j := range set {
			q := &calls[i][j]
			q.Requested = pick(r, 1, 1, 1, 1, 0, 2, 3, r.Int64N(12))
			q.AllOrNothing = r.IntN(2) == 0 && (q.Requested == 1 || !spreads)
			q.Quotas[0].Name = fmt.Sprintf("of caller %d", i)
		}
	}
	return calls
}

// requireSame wants the same grants, but for the times that the doc of Coalesce
// excepts.
func requireSame(t *testing.T, strategy string, got queuedReply, want []ratelimit.GrantedQuota, behind []queuedReply) {
	t.Helper()
	moreGranted := slices.ContainsFunc(behind, func(r queuedReply) bool {
		return slices.ContainsFunc(r.grants, func(g ratelimit.GrantedQuota) bool { return g.Granted > 0 })
	})
	for i := range want {
		g, w, n := got.grants[i], want[i], got.call[i].Requested
		g.States, w.States = slices.Clone(g.States), slices.Clone(w.States)
		passedOver := moreGranted && (w.Granted < n || n == 0)
		require.Equal(t, w.Granted < n, g.RetryAfter > 0)
		if strategy == "sliding-counter" { // when it has more depends on what others used
			g.RetryAfter, g.ResetAfter = w.RetryAfter, w.ResetAfter
			for j := range w.States {
				g.States[j].RetryAfter, g.States[j].NextAfter, g.States[j].ResetAfter = w.States[j].RetryAfter, w.States[j].NextAfter, w.States[j].ResetAfter
			}
		}
		for j := range w.States {
			if passedOver {
				require.GreaterOrEqual(t, g.States[j].RetryAfter, w.States[j].RetryAfter)
				g.States[j].RetryAfter, g.States[j].NextAfter = w.States[j].RetryAfter, w.States[j].NextAfter
			}
			if passedOver || strategy == "token-bucket" {
				require.GreaterOrEqual(t, g.States[j].ResetAfter, w.States[j].ResetAfter)
				g.States[j].ResetAfter = w.States[j].ResetAfter
			}
		}
		if passedOver {
			require.GreaterOrEqual(t, g.RetryAfter, w.RetryAfter)
			require.Equal(t, w.RetryAfter == ratelimit.Never, g.RetryAfter == ratelimit.Never)
			g.RetryAfter = w.RetryAfter
		}
		if passedOver || strategy == "token-bucket" {
			g.ResetAfter = w.ResetAfter
		}
		require.Equal(t, w, g, "%+v", got.call)
	}
}

// Who comes alone is sent as he is, in his own goroutine, and pays nothing.
func TestCoalesceAlone(t *testing.T) {
	bare := ratelimit.NewSlidingWindow(memory.New())
	var sent []ratelimit.RequestedQuota
	inner := &spy{Limiter: bare, after: func(requests []ratelimit.RequestedQuota) { sent = requests }}
	requests := inFull(ask("a", 3, ratelimit.PerHour(5)))
	use(t, wrap.Coalesce(inner), requests)
	require.Same(t, &requests[0], &sent[0])

	if raceEnabled {
		return // it allocates by itself
	}
	coalesced := wrap.Coalesce(bare)
	allocs := func(l ratelimit.Limiter) float64 {
		return testing.AllocsPerRun(1000, func() { _, _ = l.CheckAndUseQuotas(t.Context(), requests) })
	}
	require.InDelta(t, allocs(bare), allocs(coalesced), 0.5)
}

// Units go first come, first served; who wants all or nothing is passed over if
// too little is left for him.
func TestCoalesceOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		quota := ratelimit.PerHour(10)
		replies := g.together(wrap.Coalesce(g), [][]ratelimit.RequestedQuota{
			ask("a", 2, quota), inFull(ask("a", 5, quota)), inFull(ask("a", 4, quota)), ask("a", 1, quota), ask("a", 9, quota), ask("a", 1, quota),
		})
		var granted, remaining []int64
		for _, r := range replies {
			require.NoError(t, r.err)
			granted, remaining = append(granted, r.grants[0].Granted), append(remaining, r.grants[0].Remaining)
		}
		require.Equal(t, []int64{2, 5, 0, 1, 2, 0}, granted)
		require.Equal(t, []int64{8, 3, 3, 2, 0, 0}, remaining)
		require.EqualValues(t, 2, g.calls.Load())
	})
}

// Who was passed over is told when to ask again now that those behind him were granted
// what he would have had.
func TestCoalesceRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := ratelimit.NewSlidingWindow(memory.New())
		g := newGate(inner)
		short, long := ratelimit.Per(10, 10*time.Second), ratelimit.PerHour(10)
		use(t, inner, ask("a", 7, short))
		use(t, inner, ask("a", 4, long))
		five := inFull(ask("a", 5, short, long))
		replies := g.together(wrap.Coalesce(g), [][]ratelimit.RequestedQuota{ask("a", 0, short, long), five, ask("a", 3, short, long)})
		require.EqualValues(t, 3, replies[2].grants[0].Granted)
		passedOver := replies[1].grants[0]
		require.EqualValues(t, 3, passedOver.Remaining)
		require.Equal(t, []ratelimit.Quota{short}, passedOver.ReachedQuotas)
		require.Equal(t, time.Hour, passedOver.RetryAfter)
		time.Sleep(passedOver.RetryAfter)
		require.EqualValues(t, 5, use(t, inner, five).Granted)
	})
}

// A late refuser refuses what fits by the time of its report, as a call over several
// servers may.
type lateRefuser struct{ ratelimit.Limiter }

func (l lateRefuser) CheckAndUseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	_, grants, err := l.CheckWithinQuotas(ctx, requests, opts...)
	for i := range grants {
		grants[i].Granted, grants[i].ReachedQuotas = 0, nil
	}
	return grants, err
}

// Who was refused is never told to ask at once.
func TestCoalesceRefusedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, quota := newGate(lateRefuser{ratelimit.NewSlidingWindow(memory.New())}), ratelimit.PerHour(10)
		calls := [][]ratelimit.RequestedQuota{ask("a", 1, quota), ask("a", 1, quota), ask("a", 3, quota), ask("a", 0, quota)}
		for i, r := range g.together(wrap.Coalesce(g), calls)[1:] {
			require.NoError(t, r.err)
			require.Equal(t, i < 2, r.grants[0].RetryAfter == time.Millisecond)
		}
	})
}

// A thousand units are one request to the storage.
func TestCoalesceSingles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		var sent [][]ratelimit.RequestedQuota
		g.after = func(requests []ratelimit.RequestedQuota) { sent = append(sent, requests) }
		calls := make([][]ratelimit.RequestedQuota, 1001)
		for i := range calls {
			calls[i] = ask("a", 1, ratelimit.PerHour(500))
			calls[i][0].AllOrNothing = i%2 == 0
		}
		granted := 0
		for i, r := range g.together(wrap.Coalesce(g), calls) {
			require.NoError(t, r.err)
			granted += int(r.grants[0].Granted)
			require.Equal(t, i < 500, r.grants[0].Granted == 1)
		}
		require.Equal(t, 500, granted)
		require.Len(t, sent, 2)
		require.Len(t, sent[1], 1)
		require.EqualValues(t, 1000, sent[1][0].Requested)
	})
}

// A call is bounded, and then the rest goes in the next.
func TestCoalesceBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		longest := 0
		g.after = func(requests []ratelimit.RequestedQuota) { longest = max(longest, len(requests)) }
		calls := make([][]ratelimit.RequestedQuota, 1+2500)
		for i := range calls {
			calls[i] = ask("a", 2, ratelimit.PerHour(1e6))
		}
		for _, r := range g.together(wrap.Coalesce(g), calls) {
			require.NoError(t, r.err)
			require.EqualValues(t, 2, r.grants[0].Granted)
		}
		require.EqualValues(t, 1+3, g.calls.Load())
		require.Equal(t, 1024, longest)
	})
}

// A failure reaches each; bad input only whose it is.
func TestCoalesceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, quota := newGate(ratelimit.NewSlidingWindow(memory.New())), ratelimit.PerHour(10)
		replies := g.together(wrap.Coalesce(g), [][]ratelimit.RequestedQuota{ask("a", 1, quota), ask("a", -1, quota), ask("a", 2, quota)})
		require.NoError(t, replies[0].err)
		require.ErrorIs(t, replies[1].err, ratelimit.ErrInvalidRequest)
		require.NoError(t, replies[2].err)
	})
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewTokenBucket(memory.New()))
		hold, failure := g.before, fmt.Errorf("%w: it is gone", ratelimit.ErrUnavailable)
		g.before = func(ctx context.Context) error {
			if hold(ctx); g.calls.Load() == 2 {
				return failure
			}
			return nil
		}
		quota := ratelimit.PerHour(10)
		replies := g.together(wrap.Coalesce(g), [][]ratelimit.RequestedQuota{ask("a", 1, quota), ask("a", 1, quota), ask("a", 2, quota)})
		require.NoError(t, replies[0].err)
		require.Equal(t, failure, replies[1].err)
		require.Equal(t, failure, replies[2].err)
	})
	synctest.Test(t, func(t *testing.T) {
		bare := ratelimit.NewTokenBucket(memory.New())
		g := newGate(bare)
		bad := ratelimit.Quota{Limit: 1 << 40, Window: time.Hour} // which only a token bucket can't keep
		calls := [][]ratelimit.RequestedQuota{ask("a", 1, bad), ask("a", 2, bad), ask("a", 3, bad)}
		for i, r := range g.together(wrap.Coalesce(g), calls) {
			_, want := bare.CheckAndUseQuotas(t.Context(), calls[i])
			require.ErrorIs(t, r.err, ratelimit.ErrInvalidQuota)
			require.EqualError(t, r.err, want.Error())
		}
	})
}

// A caller whose context ends leaves at once, and nobody else notices.
func TestCoalesceLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		coalesced, quota := wrap.Coalesce(g), ratelimit.PerHour(10)
		second := make(chan struct{})
		hold := g.before
		g.before = func(ctx context.Context) error {
			if hold(ctx); g.calls.Load() == 2 {
				<-second
			}
			return nil
		}
		g.hold.Store(true)
		call := func(ctx context.Context, n int64) <-chan reply {
			c := make(chan reply, 1)
			go func() {
				grants, err := coalesced.CheckAndUseQuotas(ctx, ask("a", n, quota))
				c <- reply{grants, err}
			}()
			synctest.Wait()
			return c
		}
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithTimeout(t.Context(), time.Minute)
		defer leaveLate()
		first, unsent, sent, stays := call(t.Context(), 1), call(early, 2), call(late, 3), call(t.Context(), 4)

		leaveEarly()
		r := <-unsent
		require.ErrorIs(t, r.err, context.Canceled)
		require.ErrorIs(t, r.err, ratelimit.ErrUnavailable)
		g.open <- struct{}{}
		r = <-first
		require.EqualValues(t, 1, r.grants[0].Granted)
		r = <-sent // a minute later
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.ErrorIs(t, r.err, ratelimit.ErrIndeterminate)
		close(second)
		r = <-stays
		require.NoError(t, r.err)
		require.EqualValues(t, 4, r.grants[0].Granted)
		require.EqualValues(t, 10-1-3-4, r.grants[0].Remaining, "3 were charged though their caller had gone, 2 were not")
		require.EqualValues(t, 2, g.calls.Load())
	})
}

// Who has left takes no room in a call.
func TestCoalesceLeaversTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		coalesced, quota := wrap.Coalesce(g), ratelimit.PerHour(10)
		g.hold.Store(true)
		var wg sync.WaitGroup
		call := func(ctx context.Context) {
			wg.Go(func() { _, _ = coalesced.CheckAndUseQuotas(ctx, ask("a", 2, quota)) })
			synctest.Wait()
		}
		call(t.Context())
		call(t.Context())
		leaving, leave := context.WithCancel(t.Context())
		for range 1023 {
			call(leaving)
		}
		leave()
		synctest.Wait()
		require.Equal(t, 1, wrap.Waiting(coalesced))
		call(t.Context())
		close(g.open)
		wg.Wait()
		require.EqualValues(t, 2, g.calls.Load())
		require.EqualValues(t, 10-3*2, use(t, coalesced, ask("a", 0, quota)).Remaining)
	})
}

// A caller's slices are his own again when he has his answer.
func TestCoalesceBorrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		coalesced := wrap.Coalesce(g)
		hold, second := g.before, make(chan struct{})
		var sent [][]ratelimit.RequestedQuota
		g.before = func(ctx context.Context) error {
			if hold(ctx); g.calls.Load() == 2 {
				<-second
			}
			return nil
		}
		g.after = func(requests []ratelimit.RequestedQuota) { sent = append(sent, cloneOf(requests)) }
		g.hold.Store(true)
		requests := ask("a", 1, ratelimit.PerHour(10))
		var wg sync.WaitGroup
		first := make(chan struct{})
		wg.Go(func() {
			defer close(first)
			use(t, coalesced, requests)
			requests[0].Prefix, requests[0].Quotas[0].Limit = "b", 1
		})
		synctest.Wait()
		wg.Go(func() { use(t, coalesced, ask("a", 1, ratelimit.PerHour(10))) })
		synctest.Wait()
		g.open <- struct{}{}
		<-first
		synctest.Wait()
		wg.Go(func() { use(t, coalesced, ask("a", 1, ratelimit.PerHour(10))) })
		synctest.Wait()
		close(second)
		wg.Wait()
		require.EqualValues(t, 3, g.calls.Load())
		require.Equal(t, ask("a", 1, ratelimit.PerHour(10)), sent[1])
		require.Equal(t, ask("a", 1, ratelimit.PerHour(10)), sent[2])
	})
}

func cloneOf(requests []ratelimit.RequestedQuota) []ratelimit.RequestedQuota {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Quotas = slices.Clone(requests[i].Quotas)
	}
	return requests
}

// When all have gone, so has their call.
func TestCoalesceAllLeave(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		coalesced := wrap.Coalesce(g)
		hold := g.before
		var value any
		g.before = func(ctx context.Context) error {
			if hold(ctx); g.calls.Load() == 2 {
				value = ctx.Value(key{})
				<-ctx.Done()
				return fmt.Errorf("%w: %w", ratelimit.ErrIndeterminate, ctx.Err())
			}
			return nil
		}
		g.hold.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() { use(t, coalesced, ask("a", 1, ratelimit.PerHour(10))) })
		synctest.Wait()
		for i := range 3 {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, i), time.Duration(i+1)*time.Second)
			defer cancel()
			wg.Go(func() {
				_, err := coalesced.CheckAndUseQuotas(ctx, ask("a", 1, ratelimit.PerHour(10)))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		g.open <- struct{}{}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 0, value, "the values of the first caller's context")
		require.Zero(t, wrap.Flights(coalesced))
	})
}

// A limiter that panics panics in those whose call it was, where they can recover, and
// takes nobody else along; and so does one that ends its goroutine, with an error.
func TestCoalescePanic(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	failure := errors.New("no")
	for _, c := range []struct {
		name  string
		in    int64 // the call
		fails func()
	}{
		{"alone", 1, func() { panic(failure) }},
		{"together", 2, func() { panic(failure) }},
		{"no error", 2, func() { panic("no") }},
		{"ended", 2, runtime.Goexit},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(ratelimit.NewSlidingWindow(memory.New()))
				hold, second := g.before, make(chan struct{})
				g.before = func(ctx context.Context) error {
					call := g.calls.Load()
					if hold(ctx); call == 2 {
						<-second
					}
					if call == c.in {
						c.fails()
					}
					return nil
				}
				coalesced, quota := wrap.Coalesce(g), ratelimit.PerHour(10)
				var wg sync.WaitGroup
				call := func(in int64) {
					wg.Go(func() {
						defer func() {
							switch p := recover(); {
							case in != c.in || c.name == "ended":
								assert.Nil(t, p)
							case c.name == "alone":
								assert.Equal(t, failure, p)
							default:
								assert.ErrorContains(t, p.(error), "no\n\ngoroutine")
								assert.ErrorContains(t, p.(error), "TestCoalescePanic")
								assert.Equal(t, c.name == "together", errors.Is(p.(error), failure))
							}
						}()
						_, err := coalesced.CheckAndUseQuotas(context.Background(), ask("a", 1, quota))
						assert.Equal(t, in == c.in, errors.Is(err, ratelimit.ErrIndeterminate), err)
					})
					synctest.Wait()
				}
				g.hold.Store(true)
				call(1)
				call(2)
				call(2)
				close(g.open)
				synctest.Wait()
				call(3)
				close(second)
				wg.Wait()
				synctest.Wait()
				require.EqualValues(t, 3, g.calls.Load())
				require.Zero(t, wrap.Flights(coalesced))
			})
		})
	}
}

// What differs in what counts does not go together, and what can't does not try.
func TestCoalesceApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		coalesced := wrap.Coalesce(g)
		quota := ratelimit.PerHour(10)
		g.hold.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() { use(t, coalesced, ask("a", 1, quota)) })
		synctest.Wait()
		for _, q := range []ratelimit.Quota{ratelimit.PerHour(11), ratelimit.PerMinute(10), {Limit: 10, Window: time.Hour, Burst: 1}, {Limit: 10, Window: time.Hour, PrefixOverride: "a"}} {
			use(t, coalesced, ask("a", 1, q))
		}
		use(t, coalesced, ask("b", 1, quota))
		_, err := coalesced.CheckAndUseQuotas(t.Context(), ask("a", 1, quota), ratelimit.At(time.Now()))
		require.NoError(t, err)
		_, _, err = coalesced.CheckWithinQuotas(t.Context(), ask("a", 1, quota))
		require.NoError(t, err)
		close(g.open)
		wg.Wait()

		// Counters that could be one, by limits that are not; and requests that a cluster
		// takes in parts, of which one can give back what another took.
		shared := ratelimit.Quota{Limit: 10, Window: time.Hour, PrefixOverride: "all"}
		for _, call := range [][]ratelimit.RequestedQuota{
			append(ask("a", 1, quota), ask("a", 1, ratelimit.PerHour(20))...),
			inFull(ask("a", 2, quota, shared)),
			append(ask("a", 1, quota, shared), ask("b", 1, quota)...),
		} {
			before := g.calls.Load()
			g.open = make(chan struct{})
			g.hold.Store(true)
			wg.Go(func() { use(t, coalesced, call) })
			synctest.Wait()
			use(t, coalesced, call)
			require.EqualValues(t, 2, g.calls.Load()-before)
			close(g.open)
			wg.Wait()
		}
	})
}

// TestHotKey has many goroutines at one key, and exactly the limit is granted.
func TestHotKey(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	each(t, func(t *testing.T, store storage.Storage) {
		for name, wrapped := range wraps {
			limiter := wrapped(ratelimit.NewSlidingWindow(store))
			require.EqualValues(t, 1000, flood(t, limiter, name, 1000, 256, 5), name)
		}
	})
}

// flood is how many units are granted to so many goroutines that each ask for one
// so many times.
func flood(t *testing.T, limiter ratelimit.Limiter, prefix string, limit int64, goroutines, times int) int64 {
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range times {
				grants, err := limiter.CheckAndUseQuotas(context.Background(), inFull(ask(prefix, 1, ratelimit.PerDay(limit))))
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(grants[0].Granted)
			}
		})
	}
	wg.Wait()
	return granted.Load()
}

// TestLinearizable finds for the answers that concurrent callers got an order in
// which a counter gives them.
func TestLinearizable(t *testing.T) {
	each(t, func(t *testing.T, store storage.Storage) {
		for name, wrapped := range wraps {
			for strategy, open := range limitertest.Strategies {
				history := concurrent(t, wrapped(open(store)), name+strategy)
				result, _ := porcupine.CheckOperationsVerbose(counterModel, history, 20*time.Second)
				require.Equal(t, porcupine.Ok, result, "%s %s", name, strategy)
			}
		}
	})
}

const counterLimit = 150

// counterModel is a counter that nothing expires from.
var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		used, in, out := state.(int64), input.(ratelimit.RequestedQuota), output.(ratelimit.GrantedQuota)
		granted := min(in.Requested, counterLimit-used)
		if in.AllOrNothing && granted < in.Requested {
			granted = 0
		}
		return out.Granted == granted && (granted < in.Requested || out.Remaining == counterLimit-used-granted), used + granted
	},
}

// concurrent is a history of 32 callers.
func concurrent(t *testing.T, limiter ratelimit.Limiter, prefix string) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	start, seed := time.Now(), random(t).Uint64()
	for client := range 32 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for range 4 {
				in := ask(prefix, pick[int64](r, 1, 1, 2, 3), ratelimit.PerDay(counterLimit))
				in[0].AllOrNothing = r.IntN(2) == 0
				op := porcupine.Operation{ClientId: client, Input: in[0], Call: int64(time.Since(start))}
				grants, err := limiter.CheckAndUseQuotas(context.Background(), in)
				if err != nil {
					t.Error(err)
					return
				}
				op.Return, op.Output = int64(time.Since(start)), grants[0]
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}
