package wrap_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/wrap"
)

// A primary is a limiter in memory that fails with an error while it has one.
type primary struct {
	spy
	err atomic.Pointer[error]
}

func newPrimary() *primary {
	p := &primary{spy: spy{Limiter: ratelimit.NewSlidingWindow(memory.New())}}
	p.before = func(context.Context) error {
		if err := p.err.Load(); err != nil {
			return *err
		}
		return nil
	}
	return p
}

func (p *primary) fail(err error) { p.err.Store(&err) }
func (p *primary) heal()          { p.err.Store(nil) }

var errGone = fmt.Errorf("%w: dial tcp: connection refused", ratelimit.ErrUnavailable)

// Which errors take the path, of each operation.
func TestFallbackErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	requests := ask("a", 1, ratelimit.PerHour(5))
	for _, c := range []struct {
		name     string
		err      error
		ctx      context.Context
		degraded bool
	}{
		{"unavailable", errGone, t.Context(), true},
		{"indeterminate", fmt.Errorf("%w: %w", ratelimit.ErrIndeterminate, context.DeadlineExceeded), t.Context(), true},
		{"the caller's time is up", fmt.Errorf("%w: %w", ratelimit.ErrIndeterminate, os.ErrDeadlineExceeded), late{t.Context()}, false},
		{"the caller has gone", fmt.Errorf("%w: %w", ratelimit.ErrIndeterminate, context.Canceled), ended, false},
		{"misconfigured", ratelimit.ErrMisconfigured, t.Context(), false},
		{"in parts", errors.Join(ratelimit.ErrUnavailable, ratelimit.ErrMisconfigured), t.Context(), false},
		{"bad input", ratelimit.ErrInvalidRequest, t.Context(), false},
		{"something else", io.EOF, t.Context(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, call := range map[string]func(l ratelimit.Limiter) error{
				"CheckAndUseQuotas": func(l ratelimit.Limiter) error { _, err := l.CheckAndUseQuotas(c.ctx, requests); return err },
				"CheckWithinQuotas": func(l ratelimit.Limiter) error { _, _, err := l.CheckWithinQuotas(c.ctx, requests); return err },
				"UseQuotas": func(l ratelimit.Limiter) error {
					return l.UseQuotas(c.ctx, requests, []ratelimit.GrantedQuota{{Prefix: "a", Granted: 1}}, time.Time{})
				},
				"Reset": func(l ratelimit.Limiter) error { return l.Reset(c.ctx, requests) },
			} {
				p := newPrimary()
				f := wrap.Fallback(p, wrap.WithMode(wrap.Allow()))
				p.fail(c.err)
				err := call(f)
				if !c.degraded || name == "Reset" {
					require.Equal(t, c.err, err, name)
				} else {
					require.NoError(t, err, name)
				}
				require.Equal(t, c.degraded, f.Stats().Down, name)
			}
		})
	}
}

// A late is a context whose deadline has passed and whose timer has not fired yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now(), true }

// Callers whose own deadlines are too short for a slow Redis say nothing about it,
// also where the client takes their deadlines for its sockets.
func TestFallbackShortDeadlines(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, PoolSize: 100})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.WithTimeout(time.Minute))
	require.NoError(t, err)
	f := wrap.Fallback(ratelimit.NewSlidingWindow(store), wrap.WithMode(wrap.Allow()))
	call := ask("a", 1, ratelimit.PerDay(1e6))
	for range 60 {
		proxy.Set(redistest.None)
		require.False(t, use(t, f, call).Degraded)
		proxy.Set(redistest.SwallowReplies)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := f.CheckAndUseQuotas(ctx, call)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	require.Zero(t, f.Stats())
}

// While the primary is down, bad input is still refused, and ended contexts too.
func TestFallbackDownBadInput(t *testing.T) {
	for name, m := range map[string]wrap.Mode{"deny": wrap.Deny(), "allow": wrap.Allow(), "local": wrap.Local(2, ratelimit.NewSlidingWindow)} {
		p := newPrimary()
		f := wrap.Fallback(p, wrap.WithMode(m), wrap.WithProbeInterval(time.Hour))
		p.fail(errGone)
		use(t, f, ask("a", 1, ratelimit.PerHour(5)))
		for _, bad := range [][]ratelimit.RequestedQuota{nil, ask("a", 1), ask("", 1, ratelimit.PerHour(1)), ask("a", -1, ratelimit.PerHour(1)), ask("a", 1, ratelimit.PerHour(-1))} {
			_, err := f.CheckAndUseQuotas(t.Context(), bad)
			requireBadInput(t, err, name)
			_, _, err = f.CheckWithinQuotas(t.Context(), bad)
			requireBadInput(t, err, name)
			requireBadInput(t, f.UseQuotas(t.Context(), bad, nil, time.Time{}), name)
			requireBadInput(t, f.Reset(t.Context(), bad), name)
		}
		for _, bad := range []ratelimit.Quota{ratelimit.PerHour(1 << 54), {Limit: 5, Window: time.Hour, Burst: 1 << 40}, {Window: time.Hour, Burst: 1 << 54}} {
			_, want := ratelimit.NewSlidingWindow(memory.New()).CheckAndUseQuotas(t.Context(), ask("a", 1, bad))
			_, err := f.CheckAndUseQuotas(t.Context(), ask("a", 1, bad))
			require.ErrorIs(t, err, ratelimit.ErrInvalidQuota, name)
			require.EqualError(t, err, want.Error(), name)
		}
		requireBadInput(t, f.UseQuotas(t.Context(), ask("a", 1, ratelimit.PerHour(5)), nil, time.Time{}), name)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.CheckAndUseQuotas(ctx, ask("a", 1, ratelimit.PerHour(5)))
		require.ErrorIs(t, err, context.Canceled, name)
		require.EqualValues(t, 1, p.calls.Load())
	}
}

func requireBadInput(t *testing.T, err error, what string) {
	t.Helper()
	for _, bad := range []error{ratelimit.ErrInvalidRequest, ratelimit.ErrInvalidQuota, ratelimit.ErrEmptyPrefix} {
		if errors.Is(err, bad) {
			return
		}
	}
	require.Fail(t, "not bad input", "%s: %v", what, err)
}

// The first failure opens, one call an interval is a probe, the first that is
// answered closes, and each change is told once.
func TestFallbackBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		var told []string
		f := wrap.Fallback(p, wrap.WithMode(wrap.Allow()), wrap.WithProbeInterval(10*time.Second), wrap.WithOnChange(func(down bool, cause error) {
			told = append(told, fmt.Sprint(down, cause))
		}))
		call := func() bool { return use(t, f, ask("a", 1, ratelimit.PerHour(1000))).Degraded }
		require.False(t, call())
		p.fail(errGone)
		for range 100 {
			require.True(t, call())
		}
		require.Equal(t, wrap.FallbackStats{Down: true, Outages: 1, Degraded: 100}, f.Stats())
		require.EqualValues(t, 2, p.calls.Load())
		for range 1000 { // 100 s
			time.Sleep(100 * time.Millisecond)
			require.True(t, call())
		}
		require.Equal(t, wrap.FallbackStats{Down: true, Outages: 1, Degraded: 1100, Probes: 10}, f.Stats())
		p.heal()
		time.Sleep(10*time.Second - time.Microsecond)
		require.True(t, call())
		time.Sleep(time.Microsecond)
		require.False(t, call(), "the probe's own answer is the primary's")
		require.False(t, call())
		require.Equal(t, wrap.FallbackStats{Outages: 1, Degraded: 1101, Probes: 11}, f.Stats())
		p.fail(fmt.Errorf("%w: again", ratelimit.ErrIndeterminate))
		require.True(t, call())
		require.Equal(t, []string{"true " + errGone.Error(), "false <nil>", "true " + ratelimit.ErrIndeterminate.Error() + ": again"}, told)
	})
}

// Bad input, and callers who have gone already, reach no primary: they leave the
// probe to the next call. One whose caller goes meanwhile was a probe.
func TestFallbackProbeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		f := wrap.Fallback(p, wrap.WithMode(wrap.Allow()))
		good := ask("a", 1, ratelimit.PerHour(5))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p.fail(errGone)
		require.True(t, use(t, f, good).Degraded)

		time.Sleep(time.Second)
		p.fail(ratelimit.ErrEmptyPrefix) // what a limiter says to bad input
		for range 10 {
			_, err := f.CheckAndUseQuotas(t.Context(), good)
			require.ErrorIs(t, err, ratelimit.ErrEmptyPrefix)
			_, err = f.CheckAndUseQuotas(ended, good)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Zero(t, f.Stats().Probes)
		p.fail(errGone)
		require.True(t, use(t, f, good).Degraded)
		require.EqualValues(t, 1, f.Stats().Probes)

		time.Sleep(time.Second)
		leaving, leave := context.WithCancel(t.Context())
		before := p.calls.Load()
		p.before = func(context.Context) error {
			leave()
			return fmt.Errorf("%w: %w", ratelimit.ErrIndeterminate, context.Canceled)
		}
		_, err := f.CheckAndUseQuotas(leaving, good)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, use(t, f, good).Degraded)
		require.Equal(t, before+1, p.calls.Load(), "one an interval")
		require.EqualValues(t, 2, f.Stats().Probes)

		time.Sleep(time.Second)
		p.before = nil
		require.False(t, use(t, f, good).Degraded)
	})
}

// Calls that were under way when the primary went down, or came back, change
// nothing when they end later; and a probe that hangs is one probe.
func TestFallbackLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		slow := make(chan error)
		p.before = func(ctx context.Context) error {
			if ctx.Value(t) != nil {
				return <-slow
			}
			if err := p.err.Load(); err != nil {
				return *err
			}
			return nil
		}
		f := wrap.Fallback(p, wrap.WithMode(wrap.Allow()))
		call := func(ctx context.Context) (degraded bool) { // not use: it has the test's context
			grants, err := f.CheckAndUseQuotas(ctx, ask("a", 1, ratelimit.PerHour(1000)))
			require.NoError(t, err)
			return grants[0].Degraded
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { call(context.WithValue(context.Background(), t, true)) })
		}
		synctest.Wait()
		p.fail(errGone)
		require.True(t, call(t.Context()))
		slow <- nil // sent before it went down
		synctest.Wait()
		require.True(t, f.Stats().Down)

		time.Sleep(time.Second)
		p.heal()
		require.False(t, call(t.Context()))
		slow <- errGone // also
		wg.Wait()
		require.False(t, f.Stats().Down)
		require.EqualValues(t, 1, f.Stats().Outages)

		p.fail(errGone)
		require.True(t, call(t.Context()))
		time.Sleep(time.Second)
		wg.Go(func() { call(context.WithValue(context.Background(), t, true)) })
		synctest.Wait()
		before := p.calls.Load()
		require.True(t, call(t.Context()))
		require.Equal(t, before, p.calls.Load(), "the probe is not back, and nobody else asks")
		slow <- errGone
		wg.Wait()
	})
}

// A burst of callers who all find the primary down is one change.
func TestFallbackToldOnce(t *testing.T) {
	p := newPrimary()
	var told atomic.Int64
	f := wrap.Fallback(p, wrap.WithProbeInterval(time.Hour), wrap.WithOnChange(func(bool, error) { told.Add(1) }))
	p.fail(errGone)
	require.Zero(t, flood(t, f, "a", 10, 64, 20))
	require.EqualValues(t, 1, told.Load())
	require.EqualValues(t, 64*20, f.Stats().Degraded)
}

// Only the callers who found the changes wait for the functions that are told of
// them, one after the other.
func TestFallbackSlowOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		failed := p.before
		p.before = func(ctx context.Context) error { time.Sleep(time.Millisecond); return failed(ctx) }
		var told []bool
		telling := 0
		f := wrap.Fallback(p, wrap.WithProbeInterval(time.Second), wrap.WithOnChange(func(down bool, _ error) {
			telling++
			require.Equal(t, 1, telling, "one at a time")
			time.Sleep(10 * time.Second)
			telling--
			told = append(told, down)
		}))
		p.fail(errGone)
		start := time.Now()
		var wg sync.WaitGroup
		var waited atomic.Int64
		call := func() {
			use(t, f, ask("a", 1, ratelimit.PerHour(5)))
			if time.Since(start) > time.Second+time.Millisecond {
				waited.Add(1)
			}
		}
		for range 100 {
			wg.Go(call)
		}
		time.Sleep(time.Second) // the first is still being told
		p.heal()
		time.Sleep(time.Millisecond)
		wg.Go(call) // a probe, which finds the next change
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.False(t, f.Stats().Down)
		wg.Wait()
		require.EqualValues(t, 2, waited.Load())
		require.Equal(t, []bool{true, false}, told)
	})
}

func TestFallbackDeny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		f := wrap.Fallback(p) // the default
		p.fail(errGone)
		call := ask("a", 1, ratelimit.PerHour(5))
		want := ratelimit.GrantedQuota{
			Prefix: "a", RetryAfter: time.Second, ResetAfter: time.Second, Degraded: true, At: time.UnixMicro(time.Now().UnixMicro()),
			States: []ratelimit.QuotaState{{RetryAfter: time.Second, NextAfter: time.Second, ResetAfter: time.Second}},
		}
		require.Equal(t, want, use(t, f, call))
		_, grants, err := f.CheckWithinQuotas(t.Context(), call)
		require.NoError(t, err)
		require.Equal(t, want, grants[0])
		require.ErrorIs(t, f.UseQuotas(t.Context(), call, []ratelimit.GrantedQuota{{Prefix: "a", Granted: 1}}, time.Time{}), ratelimit.ErrUnavailable)
		require.ErrorIs(t, f.Reset(t.Context(), call), ratelimit.ErrUnavailable)
		require.Zero(t, use(t, f, ask("a", 0, ratelimit.PerHour(5))).RetryAfter)

		// Who waits, waits for the probe.
		policy, err := ratelimit.NewPolicy("login", f, ratelimit.PerHour(5))
		require.NoError(t, err)
		p.heal()
		start := time.Now()
		require.NoError(t, policy.Wait(t.Context(), "bob"))
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestFallbackAllow(t *testing.T) {
	p := newPrimary()
	f := wrap.Fallback(p, wrap.WithMode(wrap.Allow()), wrap.WithProbeInterval(time.Hour))
	p.fail(errGone)
	for range 100 {
		g := use(t, f, ask("a", 3, ratelimit.PerHour(5)))
		require.EqualValues(t, 3, g.Granted)
		require.EqualValues(t, 2, g.Remaining)
		require.True(t, g.Degraded)
	}
	never := ratelimit.Quota{Name: "closed", Window: time.Hour, Burst: 3}
	require.Equal(t, []ratelimit.Quota{never}, use(t, f, ask("a", 1, never)).ReachedQuotas, "a Limit of 0 admits nothing")
	require.Zero(t, use(t, f, inFull(ask("a", 6, ratelimit.PerHour(5)))).Granted, "nor is more granted than there ever is")
	burst := ratelimit.Quota{Limit: 1, Window: time.Second, Burst: 7}
	g := use(t, f, ask("a", 8, burst))
	require.EqualValues(t, 7, g.Granted)
	require.Equal(t, []ratelimit.Quota{burst}, g.ReachedQuotas)

	call := ask("a", 1, ratelimit.PerHour(5))
	_, grants, err := f.CheckWithinQuotas(t.Context(), call)
	require.NoError(t, err)
	require.NoError(t, f.UseQuotas(t.Context(), call, grants, time.Time{}))
	require.ErrorIs(t, f.Reset(t.Context(), call), ratelimit.ErrUnavailable)
}

func TestFallbackLocal(t *testing.T) {
	p := newPrimary()
	quota := ratelimit.Quota{Name: "of eleven", Limit: 11, Window: time.Hour}
	call := ask("a", 1, quota)
	f := wrap.Fallback(p, wrap.WithMode(wrap.Local(3, ratelimit.NewSlidingWindow)), wrap.WithProbeInterval(time.Hour))
	require.False(t, use(t, f, call).Degraded)
	p.fail(errGone)
	g := use(t, f, ask("a", 2, quota))
	require.EqualValues(t, 2, g.Granted)
	require.EqualValues(t, 1, g.Remaining)
	require.NoError(t, f.UseQuotas(t.Context(), call, []ratelimit.GrantedQuota{{Prefix: "a", Granted: 1}}, time.Time{}))
	_, grants, err := f.CheckWithinQuotas(t.Context(), call)
	require.NoError(t, err)
	require.Zero(t, grants[0].Granted)
	require.True(t, grants[0].Degraded)
	g = use(t, f, call)
	require.Zero(t, g.Granted)
	require.Equal(t, []ratelimit.Quota{quota}, g.ReachedQuotas, "as the caller wrote it")
	require.ErrorIs(t, f.Reset(t.Context(), call), ratelimit.ErrUnavailable)
	require.EqualValues(t, 1, use(t, f, call).Granted, "here it was reset")

	require.Zero(t, use(t, f, ask("b", 1, ratelimit.PerHour(2))).Granted, "2 among 3 are none for each")
	bucket := wrap.Fallback(p, wrap.WithMode(wrap.Local(3, ratelimit.NewTokenBucket)))
	require.EqualValues(t, 1, use(t, bucket, ask("b", 5, ratelimit.Quota{Limit: 100, Window: time.Second, Burst: 2})).Granted)
	list := wrap.Fallback(p, wrap.WithMode(wrap.Local(0, ratelimit.NewListLimiter)))
	require.EqualValues(t, 5, use(t, list, ask("b", 9, ratelimit.PerHour(5))).Granted)
}

// Units are given back to the counters that counted them: those of a degraded grant
// never to the primary, and none to both.
func TestFallbackGivesBack(t *testing.T) {
	for name, m := range map[string]wrap.Mode{"deny": wrap.Deny(), "allow": wrap.Allow(), "local": wrap.Local(1, ratelimit.NewSimpleLimiter)} {
		synctest.Test(t, func(t *testing.T) {
			p := newPrimary()
			p.Limiter = ratelimit.NewSimpleLimiter(memory.New())
			f := wrap.Fallback(p, wrap.WithMode(m))
			quota := ratelimit.PerDay(10)
			left := func(prefix string) int64 { return use(t, f, ask(prefix, 0, quota)).Remaining }
			down := func() { p.fail(errGone); require.True(t, use(t, f, ask("x", 0, quota)).Degraded) }
			up := func() { p.heal(); time.Sleep(time.Second); require.False(t, use(t, f, ask("x", 0, quota)).Degraded) }
			local := func(units int64) int64 { // that are left when so many are left with Local
				return map[string]int64{"deny": 0, "allow": 10, "local": units}[name]
			}
			both := append(ask("a", 0, quota), ask("b", 0, quota)...)
			back := func(a, b ratelimit.GrantedQuota) error {
				a.Granted, b.Granted = -a.Granted, -b.Granted
				return f.UseQuotas(t.Context(), both, []ratelimit.GrantedQuota{a, b}, a.At)
			}

			primaryA, primaryB := use(t, f, ask("a", 10, quota)), use(t, f, ask("b", 10, quota))
			down()
			degradedA := use(t, f, ask("a", 6, quota))
			require.NoError(t, f.UseQuotas(t.Context(), ask("a", 0, quota), []ratelimit.GrantedQuota{{Prefix: "a", Granted: -1, Degraded: true}}, degradedA.At))
			require.Equal(t, local(5), left("a"))
			up()
			degradedA.Granted = 3
			before := p.calls.Load()
			require.NoError(t, back(degradedA, ratelimit.GrantedQuota{Prefix: "b"}))
			require.Equal(t, before, p.calls.Load(), "there is nothing for the primary")
			require.Zero(t, left("a"))
			require.NoError(t, back(degradedA, primaryB), "to each its own")
			require.Equal(t, []int64{0, 10}, []int64{left("a"), left("b")})
			requireBadInput(t, f.UseQuotas(t.Context(), ask("a", 0, quota), []ratelimit.GrantedQuota{{Prefix: "a", Granted: -1, Degraded: true}}, time.Time{}), name)
			requireBadInput(t, f.UseQuotas(t.Context(), both, []ratelimit.GrantedQuota{{Prefix: "a", Granted: -1, Degraded: true}, {Prefix: "a", Granted: 1}}, time.Now()), name)

			down()
			require.Equal(t, local(10), left("a"))
			use(t, f, ask("a", 8, quota))
			up()
			p.Limiter = lossy{p.Limiter}
			err := back(primaryA, ratelimit.GrantedQuota{Prefix: "b", Granted: -4})
			require.Equal(t, name == "deny", errors.Is(err, ratelimit.ErrIndeterminate), err)
			require.Equal(t, []int64{local(2), local(6)}, []int64{left("a"), left("b")}, "what was used counts here too")
			up()
			require.Equal(t, []int64{10, 6}, []int64{left("a"), left("b")}, "given back once")
		})
	}
}

// A lossy is a limiter of which the answers to UseQuotas are lost.
type lossy struct{ ratelimit.Limiter }

func (l lossy) UseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, at time.Time) error {
	return errors.Join(ratelimit.ErrIndeterminate, l.Limiter.UseQuotas(ctx, requests, grants, at))
}

// What is valid for the primary is so while it is down, the largest Burst too.
func TestFallbackBursts(t *testing.T) {
	const year = 365 * 24 * time.Hour
	rapid.Check(t, func(rt *rapid.T) {
		strategy := rapid.SampledFrom(ratelimit.Strategies()).Draw(rt, "strategy")
		q := ratelimit.Quota{
			Name: "large", Limit: rapid.Int64Range(1, 1<<20).Draw(rt, "limit"),
			Window: rapid.SampledFrom([]time.Duration{time.Second, 24 * time.Hour, year, 60 * year}).Draw(rt, "window"),
		}
		q.Burst = rapid.Int64Range(1, min(storage.MaxNumber/q.Limit, storage.MaxSpan/(q.Window.Microseconds()/q.Limit+1))).Draw(rt, "burst")
		instances := rapid.IntRange(1, 9).Draw(rt, "instances")
		for name, m := range map[string]wrap.Mode{"allow": wrap.Allow(), "local": wrap.Local(instances, limitertest.Strategies[strategy])} {
			p := newPrimary()
			p.Limiter = limitertest.Strategies[strategy](memory.New())
			f := wrap.Fallback(p, wrap.WithMode(m))
			require.False(t, use(t, f, ask("a", 1, q)).Degraded)
			p.fail(errGone)
			g := use(t, f, ask("a", storage.MaxNumber, q))
			require.True(t, g.Degraded)
			require.Equal(t, []ratelimit.Quota{q}, g.ReachedQuotas, name)
			require.NoError(t, f.UseQuotas(t.Context(), ask("a", 1, q), []ratelimit.GrantedQuota{{Prefix: "a", Granted: 1}}, time.Time{}), name)
		}
	})
}

// The counters of Local are forgotten also for a caller who has gone, and never by
// bad input.
func TestFallbackResetEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		f := wrap.Fallback(p, wrap.WithMode(wrap.Local(1, ratelimit.NewSlidingWindow)))
		call := ask("a", 1, ratelimit.PerHour(1))
		p.fail(errGone)
		require.EqualValues(t, 1, use(t, f, call).Granted)

		p.heal()
		time.Sleep(time.Second)
		requireBadInput(t, f.Reset(t.Context(), append(call, ask("", 1, ratelimit.PerHour(1))...)), "no prefix")
		p.fail(errGone)
		time.Sleep(time.Second)
		require.Zero(t, use(t, f, call).Granted)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, f.Reset(ended, call))
		require.EqualValues(t, 1, use(t, f, call).Granted)
	})
}

// The longest interval is one.
func TestFallbackNeverProbes(t *testing.T) {
	p := newPrimary()
	f := wrap.Fallback(p, wrap.WithProbeInterval(math.MaxInt64))
	p.fail(errGone)
	for range 10 {
		require.Greater(t, use(t, f, ask("a", 1, ratelimit.PerHour(1))).RetryAfter, 100*365*24*time.Hour)
	}
	require.EqualValues(t, 1, p.calls.Load())
}

// What only the divided limits can never hold is to be asked again when the primary
// is, and may then be granted; what the caller's own can't never is.
func TestFallbackLocalNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for strategy, open := range limitertest.Strategies {
			p := newPrimary()
			p.Limiter = open(memory.New())
			p.fail(errGone)
			f := wrap.Fallback(p, wrap.WithMode(wrap.Local(4, open)))
			small, large := ratelimit.PerMinute(3), ratelimit.PerHour(100)
			bucket := ratelimit.Quota{Limit: 100, Window: time.Minute, Burst: 10}

			g := use(t, f, ask("a", 1, small, large))
			require.True(t, g.Degraded)
			require.Equal(t, time.Second, g.RetryAfter, strategy)
			require.Equal(t, time.Second, g.States[0].RetryAfter, strategy)
			require.Zero(t, g.States[1].RetryAfter, strategy)
			require.Equal(t, time.Second, use(t, f, inFull(ask("a", 50, large))).RetryAfter, strategy)
			g = use(t, f, inFull(ask("a", 50, small, large)))
			require.Equal(t, ratelimit.Never, g.RetryAfter, strategy)
			require.Equal(t, ratelimit.Never, g.States[0].RetryAfter, strategy)
			require.Equal(t, time.Second, g.States[1].RetryAfter, strategy)
			g = use(t, f, inFull(ask("a", 50, bucket)))
			require.Equal(t, strategy == "token-bucket", g.RetryAfter == ratelimit.Never, strategy)

			// Of several each by its own limit.
			grants, err := f.CheckAndUseQuotas(t.Context(), append(ask("b", 2, small), ask("c", 4, small)...), ratelimit.Together())
			require.NoError(t, err)
			require.Equal(t, time.Second, grants[0].RetryAfter, strategy)
			require.Equal(t, ratelimit.Never, grants[1].RetryAfter, strategy)

			policy, err := ratelimit.NewPolicy("p", f, small)
			require.NoError(t, err)
			p.heal()
			start := time.Now()
			require.NoError(t, policy.Wait(t.Context(), "bob"))
			require.Equal(t, time.Second, time.Since(start), strategy)
		}
	})
}

// One wrapped limiter, several policies.
func TestFallbackModeOf(t *testing.T) {
	p := newPrimary()
	local := wrap.Local(1, ratelimit.NewSlidingWindow)
	f := wrap.Fallback(p, wrap.WithModeOf(func(r ratelimit.RequestedQuota) wrap.Mode {
		switch {
		case strings.HasPrefix(r.Prefix, "login:"):
			return wrap.Deny()
		case strings.HasPrefix(r.Prefix, "order:"):
			return local
		}
		return wrap.Allow()
	}))
	p.fail(errGone)
	allowed := map[string]int{}
	for _, name := range []string{"login", "order", "search"} {
		policy, err := ratelimit.NewPolicy(name, f, ratelimit.PerHour(3))
		require.NoError(t, err)
		for range 5 {
			d, err := policy.Allow(t.Context(), "bob")
			require.NoError(t, err)
			require.True(t, d.Degraded)
			if d.Allowed {
				allowed[name]++
			}
		}
	}
	require.Equal(t, map[string]int{"order": 3, "search": 5}, allowed)

	// Of several the strictest.
	both := append(ask("search:x", 1, ratelimit.PerHour(3)), ask("order:x", 1, ratelimit.PerHour(1))...)
	for want := int64(1); want >= 0; want-- {
		grants, err := f.CheckAndUseQuotas(t.Context(), both, ratelimit.Together())
		require.NoError(t, err)
		require.Equal(t, []int64{want, want}, []int64{grants[0].Granted, grants[1].Granted})
	}
	grants, err := f.CheckAndUseQuotas(t.Context(), append(both, ask("login:x", 1, ratelimit.PerHour(1))...))
	require.NoError(t, err)
	require.Zero(t, grants[0].Granted+grants[1].Granted+grants[2].Granted)
}

// All instances together grant no more locally than the limit, whatever the
// numbers; each strategy.
func TestLocalShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		instances := rapid.IntRange(1, 9).Draw(rt, "instances")
		limit, burst := rapid.Int64Range(0, 40).Draw(rt, "limit"), rapid.Int64Range(0, 40).Draw(rt, "burst")
		strategy := rapid.SampledFrom(ratelimit.Strategies()).Draw(rt, "strategy")
		granted := int64(0)
		for range instances {
			p := newPrimary()
			p.fail(errGone)
			f := wrap.Fallback(p, wrap.WithMode(wrap.Local(instances, limitertest.Strategies[strategy])))
			g := use(t, f, ask("a", 1000, ratelimit.Quota{Limit: limit, Window: 24 * time.Hour, Burst: burst}))
			granted += g.Granted
		}
		most := limit
		if strategy == "token-bucket" && burst > 0 && limit > 0 {
			most = max(burst, int64(instances))
		}
		require.LessOrEqual(t, granted, most)
	})
}

// A redisLimiter is a limiter on a Redis, with a count of the connections it
// tried to make.
func redisLimiter(t testing.TB, addr string, opts ...redisstore.Option) (limiter ratelimit.Limiter, dials *atomic.Int64) {
	dials = new(atomic.Int64)
	client := redis.NewClient(&redis.Options{Addr: addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, opts...)
	require.NoError(t, err)
	return ratelimit.NewSlidingWindow(store), dials
}

// After a kill -9 a call costs no dial, and next to nothing.
func TestFallbackKilled(t *testing.T) {
	const interval, calls = 200 * time.Millisecond, 10_000
	for name, m := range map[string]wrap.Mode{"deny": wrap.Deny(), "allow": wrap.Allow(), "local": wrap.Local(2, ratelimit.NewSlidingWindow)} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			limiter, dials := redisLimiter(t, server.Addr)
			inner := &spy{Limiter: limiter}
			f := wrap.Fallback(inner, wrap.WithMode(m), wrap.WithProbeInterval(interval))
			require.False(t, use(t, f, ask("a", 1, ratelimit.PerHour(1e6))).Degraded)
			server.Stop() // kill -9

			before, start := inner.calls.Load(), time.Now()
			dials.Store(0)
			took := make([]time.Duration, calls)
			call, ctx := ask("a", 1, ratelimit.PerHour(1e6)), t.Context()
			for i := range took {
				began := time.Now()
				grants, err := f.CheckAndUseQuotas(ctx, call)
				took[i] = time.Since(began)
				if err != nil || !grants[0].Degraded {
					t.Fatal(grants, err)
				}
			}
			most := 2 + int64(time.Since(start)/interval) // the first failure, and the probes
			slices.Sort(took)
			t.Logf("median %v; %d calls of Redis, %d dials in %v", took[calls/2], inner.calls.Load()-before, dials.Load(), time.Since(start))
			require.LessOrEqual(t, inner.calls.Load()-before, most)
		})
	}
}

// TestFallbackRecovery lets replies get lost on the wire: what was charged then is
// charged once, and nothing is charged for what was answered here.
func TestFallbackRecovery(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	limiter, _ := redisLimiter(t, proxy.Addr, redisstore.WithTimeout(50*time.Millisecond))
	var primaryGranted atomic.Int64
	inner := &spy{Limiter: limiter}
	f := wrap.Fallback(inner, wrap.WithMode(wrap.Local(1, ratelimit.NewSlidingWindow)), wrap.WithProbeInterval(50*time.Millisecond))
	const limit = 1_000_000
	call := ask("a", 1, ratelimit.PerDay(limit))
	degraded := 0
	run := func(d time.Duration) {
		for start := time.Now(); time.Since(start) < d; {
			if g := use(t, f, call); g.Degraded {
				degraded++
			} else {
				primaryGranted.Add(1)
			}
		}
	}
	run(20 * time.Millisecond)
	for _, fault := range []redistest.Fault{redistest.SwallowReplies, redistest.CloseAfterRequest, redistest.ResetBeforeRequest, redistest.Refuse} {
		proxy.Set(fault)
		run(150 * time.Millisecond)
		proxy.Set(redistest.None)
		require.Eventually(t, func() bool { run(time.Millisecond); return !f.Stats().Down }, 20*time.Second, 10*time.Millisecond)
	}
	require.NotZero(t, degraded)
	lost := inner.calls.Load() - primaryGranted.Load() // asked, and not answered
	direct, _ := redisLimiter(t, server.Addr)
	_, grants, err := direct.CheckWithinQuotas(t.Context(), call)
	require.NoError(t, err)
	charged := limit - grants[0].Remaining
	t.Logf("granted by Redis %d, answers lost %d, charged %d, degraded %d", primaryGranted.Load(), lost, charged, degraded)
	require.GreaterOrEqual(t, charged, primaryGranted.Load())
	require.LessOrEqual(t, charged, primaryGranted.Load()+lost, "each call at most once")
}

// TestFallbackProcesses has three processes share a Redis that goes away and comes
// back: what they grant together stays within what Local promises.
func TestFallbackProcesses(t *testing.T) {
	const limit, instances = 31, 3
	server := redistest.Start(t)
	var processes []*process
	for range instances {
		processes = append(processes, startProcess(t, server.Addr))
	}
	all := func() (granted, degraded int) {
		for _, p := range processes {
			p.tell(t, "saturate")
		}
		for _, p := range processes {
			var g, d int
			_, err := fmt.Sscan(p.hear(t), &g, &d)
			require.NoError(t, err)
			granted, degraded = granted+g, degraded+d
		}
		return granted, degraded
	}
	granted, degraded := all()
	require.Equal(t, []int{limit, 0}, []int{granted, degraded}, "one limit for all")
	total := granted
	for outage := range 2 {
		server.Signal(syscall.SIGSTOP)
		granted, degraded = all()
		if outage == 0 {
			require.Equal(t, []int{limit / instances * instances, limit / instances * instances}, []int{granted, degraded})
		} else {
			require.Zero(t, granted, "the counters of the first outage hold in the second")
		}
		total += granted
		server.Signal(syscall.SIGCONT)
		for _, p := range processes {
			p.tell(t, "recover")
			require.Equal(t, "back\n", p.hear(t))
		}
		granted, _ = all()
		require.Zero(t, granted)
	}
	require.LessOrEqual(t, total, 2*limit)
}

// A process is this test binary, run again.
type process struct {
	in  io.Writer
	out *bufio.Reader
}

const processEnv = "RATELIMIT_WRAP_PROCESS"

func TestMain(m *testing.M) {
	if addr := os.Getenv(processEnv); addr != "" {
		runProcess(addr)
		return
	}
	os.Exit(m.Run())
}

func startProcess(t *testing.T, addr string) *process {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), processEnv+"="+addr), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait()
	})
	return &process{in, bufio.NewReader(out)}
}

// tell has it saturate, which is to ask until nothing more is granted, or recover,
// which is to ask until the primary answers.
func (p *process) tell(t *testing.T, what string) {
	_, err := fmt.Fprintln(p.in, what)
	require.NoError(t, err)
}

func (p *process) hear(t *testing.T) string {
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	return line
}

// runProcess does what it is told until its input ends.
func runProcess(addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.WithTimeout(500*time.Millisecond))
	if err != nil {
		panic(err)
	}
	limiter := wrap.Fallback(ratelimit.NewSlidingWindow(store), wrap.WithMode(wrap.Local(3, ratelimit.NewSlidingWindow)),
		wrap.WithProbeInterval(300*time.Millisecond))
	one := func() ratelimit.GrantedQuota {
		grants, err := limiter.CheckAndUseQuotas(context.Background(), ask("a", 1, ratelimit.PerDay(31)))
		if err != nil {
			panic(err)
		}
		return grants[0]
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "recover" {
			for one().Degraded {
				time.Sleep(10 * time.Millisecond)
			}
			fmt.Println("back")
			continue
		}
		granted, degraded := 0, 0
		for refused := 0; refused < 3; {
			switch g := one(); {
			case g.Granted == 0:
				refused++
			case g.Degraded:
				degraded++
				fallthrough
			default:
				granted++
			}
		}
		fmt.Println(granted, degraded)
	}
}
