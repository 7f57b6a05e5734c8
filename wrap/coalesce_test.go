package wrap_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
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
				for _, got := range queued(t, stamped, calls) {
					want, err := twin.CheckAndUseQuotas(t.Context(), got.call, ratelimit.At(now))
					require.NoError(t, err)
					requireSame(t, strategy, got.grants, want, got.call)
				}
			}
		})
	}
}

// A queuedReply is a call and what it got.
type queuedReply struct {
	call   []ratelimit.RequestedQuota
	grants []ratelimit.GrantedQuota
}

// queued sends calls through Coalesce while the first is under way, on real time:
// each when the one before it waits, so that they come in order.
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
	for i, call := range calls {
		wg.Go(func() {
			grants, err := coalesced.CheckAndUseQuotas(context.Background(), call)
			if err != nil {
				t.Error(err)
			}
			replies[i] = queuedReply{call, grants}
		})
		if i == 0 {
			<-entered
		} else {
			for wrap.Waiting(coalesced) < i {
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
		replies := g.together(coalesced, calls)
		require.LessOrEqual(t, g.calls.Load()-before, int64(2))
		for i, call := range calls {
			want, err := twin.CheckAndUseQuotas(t.Context(), call)
			require.NoError(t, err)
			require.NoError(t, replies[i].err)
			requireSame(t, strategy, replies[i].grants, want, call)
		}
	}
}

// randomCalls are of one set.
func randomCalls(r *rand.Rand, prefix string) [][]ratelimit.RequestedQuota {
	shared := ratelimit.Quota{Limit: 1 + r.Int64N(30), Window: 12 * time.Second, PrefixOverride: "all of " + prefix}
	set := ask(prefix, 0, ratelimit.Quota{Limit: r.Int64N(20), Window: 10 * time.Second, Granularity: time.Second, Burst: r.Int64N(2) * 7})
	if r.IntN(2) == 0 {
		set[0].Quotas = append(set[0].Quotas, shared)
	}
	if r.IntN(3) == 0 {
		set = append(set, ask(prefix+" too", 0, ratelimit.PerMinute(r.Int64N(30)), shared)...)
	}
	calls := make([][]ratelimit.RequestedQuota, 2+r.IntN(12))
	for i := range calls {
		calls[i] = slices.Clone(set)
		for j := range set {
			q := &calls[i][j]
			q.Requested = pick(r, 1, 1, 1, 1, 0, 2, 3, r.Int64N(12))
			q.AllOrNothing = r.IntN(2) == 0
			q.Quotas = slices.Clone(q.Quotas)
			q.Quotas[0].Name = fmt.Sprintf("of caller %d", i)
		}
	}
	return calls
}

// requireSame wants the same grants, but for the times that the doc of Coalesce
// excepts.
func requireSame(t *testing.T, strategy string, got, want []ratelimit.GrantedQuota, call []ratelimit.RequestedQuota) {
	t.Helper()
	for i := range want {
		g, w := got[i], want[i]
		g.States, w.States = slices.Clone(g.States), slices.Clone(w.States)
		passedOver := w.Granted == 0 || len(call) > 1 && w.Granted < call[i].Requested
		if strategy == "sliding-counter" { // when it has more depends on what others used
			g.RetryAfter, g.ResetAfter = w.RetryAfter, w.ResetAfter
			for j := range w.States {
				g.States[j].RetryAfter, g.States[j].NextAfter, g.States[j].ResetAfter = w.States[j].RetryAfter, w.States[j].NextAfter, w.States[j].ResetAfter
			}
		}
		for j := range w.States {
			if n := call[i].Requested; len(call) == 1 && n <= w.States[j].Remaining+1 && g.States[j].RetryAfter != w.States[j].RetryAfter {
				require.Equal(t, w, g, "room, or one unit short: that is known exactly")
			}
			if passedOver { // or had asked for nothing
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
		require.Equal(t, w, g, "%+v", call)
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

// A limiter that panics takes only its own caller along.
func TestCoalescePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(ratelimit.NewSlidingWindow(memory.New()))
		hold := g.before
		g.before = func(ctx context.Context) error {
			if hold(ctx); g.calls.Load() == 1 {
				panic("no")
			}
			return nil
		}
		coalesced := wrap.Coalesce(g)
		g.hold.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = coalesced.CheckAndUseQuotas(t.Context(), ask("a", 1, ratelimit.PerHour(10)))
		})
		synctest.Wait()
		wg.Go(func() { use(t, coalesced, ask("a", 1, ratelimit.PerHour(10))) })
		synctest.Wait()
		close(g.open)
		wg.Wait()
	})
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

		// Counters that could be one, by limits that are not.
		calls := [][]ratelimit.RequestedQuota{ask("a", 1, quota), ask("a", 1, ratelimit.PerHour(20))}
		both := slices.Concat(calls...)
		before := g.calls.Load()
		g.open = make(chan struct{})
		g.hold.Store(true)
		wg.Go(func() { use(t, coalesced, both) })
		synctest.Wait()
		use(t, coalesced, both)
		require.EqualValues(t, 2, g.calls.Load()-before)
		close(g.open)
		wg.Wait()
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
