package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

func open(t *testing.T, client *redis.Client, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(client, append([]redisstore.Option{redisstore.WithTimeout(10 * time.Second)}, opts...)...)
	require.NoError(t, err)
	return store
}

func ask(n int64, quotas ...ratelimit.Quota) []ratelimit.RequestedQuota {
	return []ratelimit.RequestedQuota{{Prefix: "a", Requested: n, Quotas: quotas}}
}

// stat is a number of INFO.
func stat(t *testing.T, client *redis.Client, section, name string) int {
	t.Helper()
	info, err := client.Info(t.Context(), section).Result()
	require.NoError(t, err)
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name); ok {
			value, _, _ = strings.Cut(value, ",")
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

// A call is one EVALSHA, however many requests and quotas it has, and one EVAL
// more when the server does not know the script.
func TestOneRoundTrip(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	for name, open := range limitertest.Strategies {
		limiter := open(store)
		requests := append(ask(1, ratelimit.PerMinute(9), ratelimit.PerHour(9)), ratelimit.RequestedQuota{
			Prefix: "a", Requested: 2, Quotas: []ratelimit.Quota{{Limit: 9, Window: time.Minute, Granularity: time.Minute}, ratelimit.PerDay(9)},
		})
		for _, want := range []struct{ evalsha, eval int }{{1, 1}, {1, 0}, {1, 0}} {
			require.NoError(t, client.ConfigResetStat(t.Context()).Err())
			_, err := limiter.CheckAndUseQuotas(t.Context(), requests)
			require.NoError(t, err)
			require.Equal(t, want.evalsha, stat(t, client, "commandstats", "cmdstat_evalsha:calls="), name)
			require.Equal(t, want.eval, stat(t, client, "commandstats", "cmdstat_eval:calls="), name)
		}
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
		grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(0, ratelimit.PerMinute(9), ratelimit.PerHour(9)))
		require.NoError(t, err)
		require.EqualValues(t, 6, grants[0].States[1].Remaining, "%s: three calls were charged", name)
	}
}

// Every key has an expiry, a little after its counter is back to full.
func TestExpiry(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	for name, open := range limitertest.Strategies {
		limiter := open(store)
		for range 20 {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(9), ratelimit.PerHour(11)))
			require.NoError(t, err)
		}
		_, grants, err := limiter.CheckWithinQuotas(t.Context(), ask(0, ratelimit.PerMinute(9), ratelimit.PerHour(11)))
		require.NoError(t, err)
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 2, name)
		for _, key := range keys {
			ttl, err := client.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.Positive(t, ttl, key)
			state, window := grants[0].States[0], time.Minute
			if strings.Contains(key, ":3600000000:") {
				state, window = grants[0].States[1], time.Hour
			}
			require.LessOrEqual(t, ttl, state.ResetAfter+window/8+2*time.Second, key)
			require.Greater(t, ttl, state.ResetAfter-time.Second, key)
		}
		require.NoError(t, limiter.Reset(t.Context(), ask(0, ratelimit.PerMinute(9), ratelimit.PerHour(11))))
		require.EqualValues(t, 0, client.DBSize(t.Context()).Val(), name)
	}
}

// A refusal and a check write nothing.
func TestRefusalsWriteNothing(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	for name, open := range limitertest.Strategies {
		limiter := open(store)
		quotas := []ratelimit.Quota{ratelimit.PerHour(2), ratelimit.PerMinute(5)}
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(2, quotas...))
		require.NoError(t, err)
		changes := stat(t, client, "persistence", "rdb_changes_since_last_save:")
		for range 3 {
			grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, quotas...))
			require.NoError(t, err)
			require.Zero(t, grants[0].Granted)
			_, _, err = limiter.CheckWithinQuotas(t.Context(), append(ask(1, quotas[1]), ask(1, quotas[1])...))
			require.NoError(t, err)
		}
		require.Equal(t, changes, stat(t, client, "persistence", "rdb_changes_since_last_save:"), name)
		require.NoError(t, limiter.Reset(t.Context(), ask(0, quotas...)))
	}
}

// What no strategy wrote is repaired: it counts as used up, for a window.
func TestGarbage(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store := open(t, client)
	quota := ratelimit.Quota{Limit: 5, Window: 200 * time.Millisecond, Granularity: 100 * time.Millisecond}
	for name, open := range limitertest.Strategies {
		limiter := open(store)
		for _, garbage := range []string{"x", "nan", "-1", "9999999999999999999999", strings.Repeat("x", 14), strings.Repeat("x", 21), strings.Repeat("x", 28), strings.Repeat("\xff", 35), strings.Repeat("1 2", 1000)} {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, quota))
			require.NoError(t, err)
			key := client.Keys(t.Context(), "*").Val()[0]
			require.NoError(t, client.Set(t.Context(), key, garbage, redis.KeepTTL).Err())
			grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, quota))
			require.NoError(t, err, "%s %q", name, garbage)
			require.Zero(t, grants[0].Granted, "%s %q", name, garbage)
			require.LessOrEqual(t, grants[0].RetryAfter, quota.Window+quota.Granularity, "%s %q", name, garbage)
			require.Positive(t, client.PTTL(t.Context(), key).Val())
			require.Eventually(t, func() bool {
				grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, quota))
				return err == nil && grants[0].Granted == 1
			}, 10*time.Second, 20*time.Millisecond, "%s %q: locked out", name, garbage)
			require.NoError(t, limiter.Reset(t.Context(), ask(0, quota)))
		}
	}
}

// A key of another type is not ours to repair.
func TestWrongType(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for name, make := range limitertest.Strategies {
		store := open(t, client)
		limiter := make(store)
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(5)))
		require.NoError(t, err)
		key := client.Keys(t.Context(), "*").Val()[0]
		require.NoError(t, client.Del(t.Context(), key).Err())
		require.NoError(t, client.SAdd(t.Context(), key, "x").Err())
		_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(5)))
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, name)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

func TestNamespaces(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for _, namespace := range []string{"a", "b", "a:b"} {
		limiter := ratelimit.NewSimpleLimiter(open(t, client, redisstore.WithNamespace(namespace)))
		grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(1)))
		require.NoError(t, err)
		require.EqualValues(t, 1, grants[0].Granted)
	}
	require.ElementsMatch(t, []string{
		"a:{a}:simple:60000000:0", "b:{a}:simple:60000000:0", "a:b:{a}:simple:60000000:0",
	}, client.Keys(t.Context(), "*").Val())
}

func TestNewRefuses(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for says, make := range map[string]func() (*redisstore.Store, error){
		"the client is nil":          func() (*redisstore.Store, error) { return redisstore.New(nil) },
		"WithTimeout: 0s":            func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithTimeout(0)) },
		"New: the client is nil":     func() (*redisstore.Store, error) { return redisstore.New((*redis.Client)(nil)) },
		"a pipeline sends nothing":   func() (*redisstore.Store, error) { return redisstore.New(client.Pipeline().(*redis.Pipeline)) },
		"a redis.Ring moves keys":    func() (*redisstore.Store, error) { return redisstore.New(redis.NewRing(&redis.RingOptions{})) },
		`WithNamespace: "" is empty`: func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithNamespace("")) },
		`WithNamespace: "a{" is`:     func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithNamespace("a{")) },
	} {
		_, err := make()
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorContains(t, err, says)
	}
}

// A server that is not there charges nothing, and says so.
func TestUnavailable(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, DialerRetries: 1, MaxRetries: -1})
	defer client.Close()
	server.Stop()
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(5)))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.ErrorIs(t, limiter.Reset(t.Context(), ask(1, ratelimit.PerMinute(5))), ratelimit.ErrUnavailable)
}

// Keys of different counters are different, and nothing in a prefix ends the
// hash tag early.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"a", "{", "}", "}x", "a}b", "{}", ":", "\x00", "\r\n", "\xff", "%7B", "a}:simple:1:0"} {
		f.Add(seed, "a", false)
		f.Add("a", seed, true)
	}
	store, err := redisstore.New(redis.NewClient(&redis.Options{}))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, a, b string, shared bool) {
		if a == "" || b == "" {
			return
		}
		x := storage.Key{Prefix: a, Counter: unique.Make(storage.Counter{Strategy: "simple", Window: 1000})}
		y := storage.Key{Prefix: b, Counter: unique.Make(storage.Counter{Strategy: "simple", Window: 1000, Shared: shared})}
		require.Equal(t, x == y, store.Key(x) == store.Key(y), "%q %q", a, b)
		for _, key := range []string{store.Key(x), store.Key(y)} {
			require.Equal(t, 1, strings.Count(key, "{"))
			require.Equal(t, 1, strings.Count(key, "}"))
			require.Greater(t, strings.Index(key, "}"), strings.Index(key, "{")+1, "an empty tag is no tag")
			for _, c := range []byte(key) {
				require.True(t, c > ' ' && c <= '~', fmt.Sprintf("%q", key))
			}
		}
	})
}

// With WithKeyDigest no text of a user is in Redis.
func TestKeyDigest(t *testing.T) {
	client := redistest.Start(t).Client(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client, redisstore.WithKeyDigest()))
	for range 2 {
		for _, prefix := range []string{"bob@example.org", "alice@example.org"} {
			_, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: prefix, Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(5)}}})
			require.NoError(t, err)
		}
	}
	keys := client.Keys(t.Context(), "*").Val()
	require.Len(t, keys, 2)
	for _, key := range keys {
		require.NotContains(t, key, "example")
		require.Regexp(t, `^ratelimit:\{[-_A-Za-z0-9]{43}\}:sliding-window:`, key)
	}
}

func TestCheck(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	store := open(t, client)
	require.NoError(t, store.Check(t.Context()))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	require.NoError(t, store.Check(t.Context()), "without maxmemory nothing is evicted")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	err := store.Check(t.Context())
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.ErrorContains(t, err, "maxmemory-policy is allkeys-lru")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, store.Check(t.Context()))

	// Without any one of the permissions.
	for _, command := range strings.Fields("time get getrange strlen set setrange append del pexpire eval evalsha info") {
		require.NoError(t, client.Do(t.Context(), append([]any{"acl", "setuser", "limited", "reset", "on", ">secret"}, redistest.ACL("ratelimit", "-"+command)...)...).Err())
		limited := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limited", Password: "secret"})
		err := open(t, limited).Check(t.Context())
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, command)
		limited.Close()
	}
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 0 }, 5*time.Second, 50*time.Millisecond,
		"without DEL the key goes by itself")

	server.Stop()
	require.ErrorIs(t, store.Check(t.Context()), ratelimit.ErrUnavailable)
}

// The log of a counter that is always in use does not grow: what expired is cleared
// away, all but a part of it.
func TestLogStaysShort(t *testing.T) {
	client := redistest.Start(t).Client(t)
	limiter := ratelimit.NewListLimiter(open(t, client))
	at, longest := limitertest.Start, int64(0)
	for range 2000 {
		at = at.Add(time.Second)
		grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerMinute(1000)), ratelimit.At(at))
		require.NoError(t, err)
		require.EqualValues(t, 1, grants[0].Granted)
		longest = max(longest, client.StrLen(t.Context(), client.Keys(t.Context(), "*").Val()[0]).Val())
	}
	const alive, bytes, head = 60, 14, 35
	require.LessOrEqual(t, longest, int64(head+bytes*(alive+alive/4+17)))
	require.Greater(t, longest, int64(head+bytes*(alive+10)), "it is cleared away at every use")
}
