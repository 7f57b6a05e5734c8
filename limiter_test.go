package ratelimit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

func TestScripts(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		limitertest.RunScripts(t, func(_ *testing.T, strategy string) ratelimit.Limiter {
			return limitertest.Strategies[strategy](store)
		})
	})
}

// untouchable is a storage that must not be reached.
type untouchable struct{ t *testing.T }

func (u untouchable) Run(context.Context, *storage.Script, *storage.Call) error {
	u.t.Error("something was sent")
	return nil
}

func (u untouchable) Forget(context.Context, []storage.Key) error {
	u.t.Error("something was sent")
	return nil
}

func TestBadInput(t *testing.T) {
	good := ratelimit.PerMinute(5)
	request := func(change func(r *ratelimit.RequestedQuota)) []ratelimit.RequestedQuota {
		r := ratelimit.RequestedQuota{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{good}}
		change(&r)
		return []ratelimit.RequestedQuota{r}
	}
	withQuota := func(q ratelimit.Quota) []ratelimit.RequestedQuota {
		return request(func(r *ratelimit.RequestedQuota) { r.Quotas = []ratelimit.Quota{good, q} })
	}
	for _, c := range []struct {
		name     string
		requests []ratelimit.RequestedQuota
		is       error
		says     string
	}{
		{"no requests", nil, ratelimit.ErrInvalidRequest, "no requests"},
		{"no prefix", request(func(r *ratelimit.RequestedQuota) { r.Prefix = "" }), ratelimit.ErrEmptyPrefix, "requests[0]"},
		{"no quotas", request(func(r *ratelimit.RequestedQuota) { r.Quotas = nil }), ratelimit.ErrInvalidRequest, "requests[0] has no Quotas"},
		{"negative request", request(func(r *ratelimit.RequestedQuota) { r.Requested = -3 }), ratelimit.ErrInvalidRequest, "requests[0].Requested -3 is negative"},
		{"huge request", request(func(r *ratelimit.RequestedQuota) { r.Requested = 1 << 53 }), ratelimit.ErrInvalidRequest, "9007199254740992 is above 9007199254740991"},
		{"same counter", withQuota(ratelimit.PerMinute(7)), ratelimit.ErrInvalidRequest, "requests[0].Quotas[0] and [1] are the same counter"},
		{"bad quota", withQuota(ratelimit.Per(-1, time.Second)), ratelimit.ErrInvalidQuota, "Limit -1 is negative (requests[0].Quotas[1])"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, open := range limitertest.Strategies {
				limiter := open(untouchable{t})
				_, err := limiter.CheckAndUseQuotas(t.Context(), c.requests)
				require.ErrorIs(t, err, c.is, name)
				require.ErrorContains(t, err, c.says, name)
				require.True(t, strings.HasPrefix(err.Error(), "ratelimit: "), err)
				_, _, err = limiter.CheckWithinQuotas(t.Context(), c.requests)
				require.ErrorIs(t, err, c.is, name)
				err = limiter.UseQuotas(t.Context(), c.requests, make([]ratelimit.GrantedQuota, len(c.requests)), time.Now())
				require.ErrorIs(t, err, c.is, name)
				err = limiter.Reset(t.Context(), c.requests)
				require.ErrorIs(t, err, c.is, name)
			}
		})
	}
}

func TestBadTimes(t *testing.T) {
	limiter := ratelimit.NewSlidingWindow(untouchable{t})
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(5)}}}
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(0, -1000), time.UnixMicro(1 << 52), time.Unix(1<<60, 0)} {
		_, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(at))
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest, at)
		require.ErrorContains(t, err, "is not between 1970 and 2112")
	}
}

func TestBadGrants(t *testing.T) {
	limiter := ratelimit.NewSlidingWindow(untouchable{t})
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(5)}}}
	for says, grants := range map[string][]ratelimit.GrantedQuota{
		"0 grants for 1 requests":                                              nil,
		"2 grants for 1 requests":                                              {{Prefix: "a"}, {Prefix: "a"}},
		`grants[0].Prefix "b" is not its request's`:                            {{Prefix: "b", Granted: 1}},
		"grants[0].Granted -9007199254740992 is not between ±9007199254740991": {{Prefix: "a", Granted: -1 << 53}},
		"grants[0].Granted 9007199254740992 is not":                            {{Prefix: "a", Granted: 1 << 53}},
	} {
		err := limiter.UseQuotas(t.Context(), requests, grants, time.Now())
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
		require.ErrorContains(t, err, says)
	}
}

func TestNilStorageAndContexts(t *testing.T) {
	requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(5)}}}
	for name, open := range limitertest.Strategies {
		for _, store := range []storage.Storage{nil, (*memory.Store)(nil), (*redisstore.Store)(nil)} {
			_, err := open(store).CheckAndUseQuotas(t.Context(), requests)
			require.ErrorIs(t, err, ratelimit.ErrMisconfigured, name)
			require.ErrorIs(t, open(store).Reset(t.Context(), requests), ratelimit.ErrMisconfigured, name)
		}
		var none context.Context
		_, err := open(untouchable{t}).CheckAndUseQuotas(none, requests)
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest, name)
		require.ErrorContains(t, err, "context is nil")
	}
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		limiter := ratelimit.NewSlidingWindow(store)
		_, err := limiter.CheckAndUseQuotas(ctx, requests)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, limiter.Reset(ctx, requests), context.Canceled)
		_, grants, err := limiter.CheckWithinQuotas(t.Context(), requests)
		require.NoError(t, err)
		require.EqualValues(t, 5, grants[0].Remaining)
	})
}

// Prefixes of any bytes work, and never meet.
func TestPrefixes(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	sum := sha256.Sum256([]byte(long))
	prefixes := []string{
		"{", "}", "}x", "a}b", "{}", ":", "\x00", "\r\n", "\xff\xfe", "%", "%7B", "a:b", "a", "a}:simple:1000:0", "shared",
		"a}:shared:sliding-window:60000000:6000000", strings.Repeat("é", 100), strings.Repeat("é", 100) + "x",
		long, long + "x", "sha256:" + hex.EncodeToString(sum[:]), "sha256:", strings.Repeat("x", 200), strings.Repeat("x", 201),
	}
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			limiter := open(store)
			for _, shared := range []bool{false, true} {
				for i, prefix := range prefixes {
					r := ratelimit.RequestedQuota{Prefix: prefix, Requested: int64(i) + 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(1000)}}
					if shared {
						r.Prefix, r.Quotas[0].PrefixOverride = "any", prefix
					}
					grants, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{r}, ratelimit.At(limitertest.Start))
					require.NoError(t, err, "%s %.50q", name, prefix)
					require.EqualValues(t, 1000-i-1, grants[0].Remaining, "%s %.50q met another prefix", name, prefix)
					require.Equal(t, r.Prefix, grants[0].Prefix)
				}
			}
		}
	})
}

// Section by section: what the operations mean, on every strategy and storage.
func TestOperations(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			t.Run(name, func(t *testing.T) { testOperations(t, open(store)) })
		}
	})
}

func testOperations(t *testing.T, limiter ratelimit.Limiter) {
	ctx, at := t.Context(), limitertest.Start.Add(time.Second)
	use := func(requests ...ratelimit.RequestedQuota) []ratelimit.GrantedQuota {
		t.Helper()
		grants, err := limiter.CheckAndUseQuotas(ctx, requests, ratelimit.At(at))
		require.NoError(t, err)
		return grants
	}
	check := func(requests ...ratelimit.RequestedQuota) []ratelimit.GrantedQuota {
		t.Helper()
		checked, grants, err := limiter.CheckWithinQuotas(ctx, requests, ratelimit.At(at))
		require.NoError(t, err)
		require.True(t, checked.Equal(at))
		return grants
	}
	global := ratelimit.Quota{Limit: 10, Window: time.Hour, PrefixOverride: "global"}
	own := ratelimit.Quota{Limit: 6, Window: time.Minute}
	ask := func(prefix string, n int64) ratelimit.RequestedQuota {
		return ratelimit.RequestedQuota{Prefix: prefix, Requested: n, Quotas: []ratelimit.Quota{own, global}}
	}

	// Requests of one call see what the ones before them were granted, also where
	// they share a quota, and also in a check.
	for _, call := range []func(...ratelimit.RequestedQuota) []ratelimit.GrantedQuota{check, use} {
		grants := call(ask("a", 4), ask("b", 9), ask("a", 1))
		require.EqualValues(t, 4, grants[0].Granted)
		require.Empty(t, grants[0].ReachedQuotas)
		require.EqualValues(t, 6, grants[1].Granted, "own limit, and 6 left of global")
		require.Equal(t, []ratelimit.Quota{own}, grants[1].ReachedQuotas)
		require.EqualValues(t, 0, grants[2].Granted, "nothing left of global")
		require.Equal(t, []ratelimit.Quota{global}, grants[2].ReachedQuotas)
		require.Equal(t, "a", grants[2].Prefix)
	}
	// The check before changed nothing, or the use would have found nothing left.
	grants := check(ask("a", 0), ask("b", 0))
	require.EqualValues(t, 0, grants[0].Remaining)
	require.EqualValues(t, 2, grants[0].States[0].Remaining)
	require.EqualValues(t, 0, grants[0].States[1].Remaining)

	// All or nothing.
	lone := ratelimit.RequestedQuota{Prefix: "c", Requested: 7, Quotas: []ratelimit.Quota{own}, AllOrNothing: true}
	grants = use(lone)
	require.EqualValues(t, 0, grants[0].Granted)
	require.EqualValues(t, 6, grants[0].Remaining)
	require.Equal(t, ratelimit.Never, grants[0].RetryAfter)

	// Together: all requests in full, or none.
	both := []ratelimit.RequestedQuota{
		{Prefix: "d", Requested: 2, Quotas: []ratelimit.Quota{own}},
		{Prefix: "e", Requested: 5, Quotas: []ratelimit.Quota{own}},
	}
	for _, want := range [][]int64{{2, 5}, {0, 0}} {
		grants, err := limiter.CheckAndUseQuotas(ctx, both, ratelimit.At(at), ratelimit.Together())
		require.NoError(t, err)
		require.Equal(t, want, []int64{grants[0].Granted, grants[1].Granted})
		require.EqualValues(t, 4, grants[0].Remaining, "of the second call nothing was charged")
	}
	require.NoError(t, limiter.Reset(ctx, both))

	// Use records unconditionally, also above a limit; a raised limit keeps it.
	lone.Requested, lone.AllOrNothing = 1, false
	require.NoError(t, limiter.UseQuotas(ctx, []ratelimit.RequestedQuota{lone}, []ratelimit.GrantedQuota{{Prefix: "c", Granted: 8}}, at))
	require.EqualValues(t, 0, use(lone)[0].Granted)
	lone.Quotas = []ratelimit.Quota{{Limit: 10, Window: time.Minute}}
	grants = use(lone)
	require.EqualValues(t, 1, grants[0].Granted)
	require.EqualValues(t, 1, grants[0].Remaining)

	// Reset forgets the counters that its requests name, shared ones too.
	require.NoError(t, limiter.Reset(ctx, []ratelimit.RequestedQuota{ask("a", 0)}))
	grants = check(ask("a", 0), ask("b", 0), lone)
	require.EqualValues(t, 6, grants[0].Remaining)
	require.EqualValues(t, 0, grants[1].Remaining)
	require.EqualValues(t, 10, grants[1].States[1].Remaining)
	require.EqualValues(t, 1, grants[2].Remaining)
	require.NoError(t, limiter.Reset(ctx, []ratelimit.RequestedQuota{ask("b", 0), lone}))
}

// Without At the storage's clock decides.
func TestStorageClock(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		for name, open := range limitertest.Strategies {
			limiter := open(store)
			requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(5)}}}
			at, grants, err := limiter.CheckWithinQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, 5*time.Second, name)
			require.NoError(t, limiter.UseQuotas(t.Context(), requests, grants, at))
			require.NoError(t, limiter.UseQuotas(t.Context(), requests, grants, time.Time{}), "the zero time is now")
			grants, err = limiter.CheckAndUseQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.EqualValues(t, 2, grants[0].Remaining, name)
		}
	})
}

func TestCheckNarrower(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		log := ratelimit.PerHour(10)
		limiter := ratelimit.NewListLimiter(store)
		ask := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{log}}}
		for _, minutes := range []int{0, 20, 21, 22, 23, 29} {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask, ratelimit.At(limitertest.Start.Add(time.Duration(minutes)*time.Minute)))
			require.NoError(t, err)
		}
		at := ratelimit.At(limitertest.Start.Add(30 * time.Minute))
		five, err := limiter.CheckNarrower(t.Context(), "a", log, ratelimit.Per(5, 15*time.Minute), at)
		require.NoError(t, err)
		require.EqualValues(t, 0, five.Granted)
		require.Equal(t, 5*time.Minute, five.RetryAfter)
		two, err := limiter.CheckNarrower(t.Context(), "a", log, ratelimit.PerMinute(2), at)
		require.NoError(t, err)
		require.EqualValues(t, 1, two.Granted)
		require.EqualValues(t, 2, two.Remaining)
		_, grants, err := limiter.CheckWithinQuotas(t.Context(), ask, at)
		require.NoError(t, err)
		require.EqualValues(t, 4, grants[0].Remaining, "nothing was recorded")

		for says, narrower := range map[string]ratelimit.Quota{
			"Limit 11 is above the log's 10":                ratelimit.PerMinute(11),
			"Window 2h0m0s is longer than the log's 1h0m0s": ratelimit.Per(5, 2*time.Hour),
			`PrefixOverride "b" is not the log's ""`:        {Limit: 1, Window: time.Minute, PrefixOverride: "b"},
			"Window 1µs is under 1ms":                       ratelimit.Per(1, time.Microsecond),
		} {
			_, err := limiter.CheckNarrower(t.Context(), "a", log, narrower, at)
			require.ErrorIs(t, err, ratelimit.ErrInvalidQuota)
			require.ErrorContains(t, err, says)
		}
	})
}
