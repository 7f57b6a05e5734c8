package redistable_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/limits/redistable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// each runs a test on every kind of Redis.
func each(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).Client(t)) })
	t.Run("sentinel", func(t *testing.T) { test(t, redistest.StartSentinel(t).Client(t)) })
	t.Run("cluster", func(t *testing.T) { test(t, redistest.StartCluster(t, 0).Client(t)) })
}

func newTable(t testing.TB, client redis.UniversalClient, opts ...redistable.Option) *redistable.Table {
	table, err := redistable.New(client, opts...)
	require.NoError(t, err)
	return table
}

func perMinute(n int64) []ratelimit.Quota { return []ratelimit.Quota{ratelimit.PerMinute(n)} }

// limit is a limit of n a minute; without an account it is the default.
func limit(resource, account string, n int64) limits.Limit {
	return limits.Limit{Resource: resource, Account: account, Quotas: perMinute(n)}
}

func load(t testing.TB, store limits.Store, service string, list ...limits.Limit) limits.Report {
	t.Helper()
	report, err := limits.Loader{Store: store, Service: service}.Load(t.Context(), list)
	require.NoError(t, err)
	return report
}

func limitOf(t testing.TB, table limits.Table, resource, account string) int64 {
	t.Helper()
	quotas, err := table.Quotas(t.Context(), resource, account)
	require.NoError(t, err)
	require.Len(t, quotas, 1)
	return quotas[0].Limit
}

func TestTable(t *testing.T) {
	each(t, func(t *testing.T, client redis.UniversalClient) {
		table := newTable(t, client)
		several := []ratelimit.Quota{
			{Name: `a "name" <é> \`, Limit: 1<<53 - 1, Window: 1500 * time.Millisecond, Granularity: 500 * time.Millisecond},
			{Limit: 5, Window: 1234567 * time.Microsecond, Granularity: 1234567 * time.Microsecond, Burst: 7, PrefixOverride: "all"},
		}
		load(t, table, "billing",
			limit("search", "", 10), limit("search", "own", 20), limit("search", "blocked", 0),
			limits.Limit{Resource: "search", Account: "several", Quotas: several},
			limit("no default", "own", 30), limit("{}:%é", "{x}\x00", 40), limit("a}b", "", 50))
		for account, want := range map[string]int64{"own": 20, "blocked": 0, "someone": 10, "": 10, "OWN": 10, "\xff": 10} {
			require.Equal(t, want, limitOf(t, table, "search", account), account)
		}
		quotas, err := table.Quotas(t.Context(), "search", "several")
		require.NoError(t, err)
		require.Equal(t, several, quotas)
		require.EqualValues(t, 30, limitOf(t, table, "no default", "own"))
		require.EqualValues(t, 40, limitOf(t, table, "{}:%é", "{x}\x00"))
		require.EqualValues(t, 50, limitOf(t, table, "a}b", "x"))
		for _, resource := range []string{"no default", "nothing"} {
			_, err = table.Quotas(t.Context(), resource, "someone")
			require.ErrorIs(t, err, limits.ErrUnknownResource)
			require.NotErrorIs(t, err, ratelimit.ErrUnavailable)
		}
		_, err = newTable(t, client, redistable.WithNamespace("other")).Quotas(t.Context(), "search", "own")
		require.ErrorIs(t, err, limits.ErrUnknownResource)
	})
}

// What is no limit is an error, and never the default.
func TestTableBadEntries(t *testing.T) {
	client := redistest.Start(t).Client(t)
	table := newTable(t, client)
	load(t, table, "billing", limit("r", "", 10))
	for _, bad := range []string{
		"", "x", "5", "null", "{}", `{"service":"billing","quotas":[]}`, `{"service":"billing","quotas":[{"limit":1,"window":"x"}]}`,
		`{"service":"billing","quotas":[{"limit":-1,"window":"1m"}]}`, `{"service":"billing","quotas":[{"limit":1.5,"window":"1m"}]}`,
		`{"service":"billing","quotas":[{"limit":1,"window":60}]}`, `{"service":"billing","quotas":[{"limit":1,"window":"1m","new":1}]}`,
		`{"service":"billing","quotas":[{"limit":1,"window":"1m"}]} x`, `{"service":"billing","quotas":[{"limit":9007199254740992,"window":"1m"}]}`,
	} {
		require.NoError(t, client.HSet(t.Context(), "ratelimit:limits:{r}", "bad", bad).Err())
		_, err := table.Quotas(t.Context(), "r", "bad")
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, bad)
		require.ErrorContains(t, err, `resource "r": the entry of account "bad" is no limit`)
		require.EqualValues(t, 10, limitOf(t, table, "r", "good"))
	}
	require.NoError(t, client.HSet(t.Context(), "ratelimit:limits:{r}", "bad", "x").Err())
	report := load(t, table, "billing", limit("r", "", 10), limit("r", "bad", 1))
	require.Equal(t, "conflict r bad: what is there is no limit, and stays\nunchanged: 1", report.String())

	require.NoError(t, client.Set(t.Context(), "ratelimit:limits:{text}", "x", 0).Err())
	_, err := table.Quotas(t.Context(), "text", "a")
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	_, err = limits.Loader{Store: table, Service: "billing"}.Load(t.Context(), []limits.Limit{limit("text", "", 1)})
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.ErrorContains(t, err, `resource "text" of service "billing"`)
}

func TestNew(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for want, make := range map[string]func() (*redistable.Table, error){
		"the client is nil":            func() (*redistable.Table, error) { return redistable.New(nil) },
		"redis.Ring moves keys":        func() (*redistable.Table, error) { return redistable.New(ring) },
		`WithNamespace: "" is empty`:   func() (*redistable.Table, error) { return redistable.New(client, redistable.WithNamespace("")) },
		`WithNamespace: "{x}" is`:      func() (*redistable.Table, error) { return redistable.New(client, redistable.WithNamespace("{x}")) },
		"WithOnError: the function is": func() (*redistable.Table, error) { return redistable.New(client, redistable.WithOnError(nil)) },
	} {
		_, err := make()
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
		require.ErrorContains(t, err, want)
	}
	table := newTable(t, client)
	_, err := table.Quotas(t.Context(), "r", "a")
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	_, err = table.Resources(t.Context(), "billing")
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	_, err = table.Sync(t.Context(), "billing", "r", nil, false)
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	for _, list := range [][]limits.Limit{{limit("other", "", 1)}, {limit("r", "", 1), limit("r", "", 2)}, {{Resource: "r"}}} {
		_, err = table.Sync(t.Context(), "billing", "r", list, false)
		require.ErrorIs(t, err, limits.ErrInvalidLimit)
	}
	_, err = table.Sync(t.Context(), "", "r", nil, false)
	require.ErrorIs(t, err, limits.ErrInvalidLimit)
}

func TestLoad(t *testing.T) {
	each(t, func(t *testing.T, client redis.UniversalClient) {
		table := newTable(t, client)
		step := func(service, want string, list ...limits.Limit) {
			t.Helper()
			loader := limits.Loader{Store: table, Service: service}
			before := dump(t, client)
			plan, err := loader.Plan(t.Context(), list)
			require.NoError(t, err)
			require.Equal(t, before, dump(t, client), "a plan changes nothing")
			report, err := loader.Load(t.Context(), list)
			require.NoError(t, err)
			require.Equal(t, plan, report)
			require.Equal(t, want, report.String())
			after := dump(t, client)
			again, err := loader.Load(t.Context(), list)
			require.NoError(t, err)
			for _, c := range again.Changes {
				require.Equal(t, limits.Conflicted, c.Action, "twice does nothing")
			}
			require.Equal(t, after, dump(t, client))
		}
		step("billing", "added a (default): 1 per 1m0s\nadded a x: 2 per 1m0s\nadded b (default): 3 per 1m0s\nunchanged: 0",
			limit("b", "", 3), limit("a", "x", 2), limit("a", "", 1))
		step("search", `conflict a x: 2 per 1m0s of service "billing" stays`+"\nadded a y: 9 per 1m0s\nadded c (default): 4 per 1m0s\nunchanged: 0",
			limit("a", "x", 7), limit("a", "y", 9), limit("c", "", 4))
		step("billing", "removed a (default): 1 per 1m0s\nchanged a x: 2 per 1m0s -> 5 per 1m0s, 9 per 1h0m0s named \"hourly\"\nremoved b (default): 3 per 1m0s\nunchanged: 0",
			limits.Limit{Resource: "a", Account: "x", Quotas: []ratelimit.Quota{ratelimit.PerMinute(5), {Name: "hourly", Limit: 9, Window: time.Hour}}})
		require.EqualValues(t, 9, limitOf(t, table, "a", "y"), "of another service")
		step("billing", "removed a x: 5 per 1m0s, 9 per 1h0m0s named \"hourly\"\nunchanged: 0")
		step("search", "added a x: 7 per 1m0s\nunchanged: 2", limit("a", "x", 7), limit("a", "y", 9), limit("c", "", 4))
		require.EqualValues(t, 7, limitOf(t, table, "a", "x"))
		_, err := table.Quotas(t.Context(), "b", "x")
		require.ErrorIs(t, err, limits.ErrUnknownResource)
	})
}

// dump is all that is in a Redis.
func dump(t testing.TB, client redis.UniversalClient) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for _, resource := range []string{"a", "b", "c", "d"} {
		fields, err := client.HGetAll(t.Context(), "ratelimit:limits:{"+resource+"}").Result()
		require.NoError(t, err)
		all[resource] = fields
	}
	for _, service := range []string{"billing", "search"} {
		members, err := client.SMembers(t.Context(), "ratelimit:limits-of:{"+service+"}").Result()
		require.NoError(t, err)
		sorted := make(map[string]bool)
		for _, m := range members {
			sorted[m] = true
		}
		all["of "+service] = sorted
	}
	return all
}

func TestLoadRefuses(t *testing.T) {
	client := redistest.Start(t).Client(t)
	table := newTable(t, client)
	before := dump(t, client)
	for want, list := range map[string][]limits.Limit{
		"Limit -1 is negative": {limit("a", "", 1), limit("b", "", -1)},
		"is there twice":       {limit("a", "", 1), limit("a", "", 2)},
	} {
		_, err := limits.Loader{Store: table, Service: "billing"}.Load(t.Context(), list)
		require.ErrorIs(t, err, limits.ErrInvalidLimit)
		require.ErrorContains(t, err, want)
	}
	for _, service := range []string{"", strings.Repeat("x", 257), "\xff"} {
		_, err := limits.Loader{Store: table, Service: service}.Load(t.Context(), nil)
		require.ErrorIs(t, err, limits.ErrInvalidLimit)
	}
	_, err := limits.Loader{Service: "billing"}.Load(t.Context(), nil)
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.Equal(t, before, dump(t, client))
}

// More than a Lua stack holds.
func TestLoadMany(t *testing.T) {
	client := redistest.Start(t).Client(t)
	table := newTable(t, client)
	const n = 20_000
	var list []limits.Limit
	for i := range n {
		list = append(list, limit("a", fmt.Sprint(i), int64(i)))
	}
	require.Len(t, load(t, table, "billing", list...).Changes, n)
	require.Equal(t, limits.Report{Unchanged: n}, load(t, table, "billing", list...))
	for i := range n {
		if i%997 == 0 {
			require.EqualValues(t, i, limitOf(t, table, "a", fmt.Sprint(i)))
		}
	}
	require.Len(t, load(t, table, "billing").Changes, n)
	require.Zero(t, client.Exists(t.Context(), "ratelimit:limits:{a}").Val())
}

// The permissions that docs/limits.md names are enough.
func TestPermissions(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	user := func(name string, rules ...any) *redis.Client {
		acl := append([]any{"acl", "setuser", name, "reset", "on", ">secret"}, rules...)
		require.NoError(t, admin.Do(t.Context(), acl...).Err())
		client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "secret"})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	loader := newTable(t, user("loader", "~ratelimit:limits*", "&ratelimit:limits-changed", "+eval", "+hgetall", "+hset", "+hdel", "+publish", "+sadd", "+smembers"))
	load(t, loader, "billing", limit("a", "", 1), limit("a", "x", 2))
	load(t, loader, "billing", limit("a", "x", 2))
	reader := newTable(t, user("reader", "~ratelimit:limits*", "&ratelimit:limits-changed", "+hmget", "+subscribe", "+ping"))
	require.EqualValues(t, 2, limitOf(t, reader, "a", "x"))
	cache := listening(t, reader)
	subscribed(t, admin)
	becomes(t, cache, "a", "x", 2)
	load(t, loader, "billing", limit("a", "x", 3))
	becomes(t, cache, "a", "x", 3)

	// Without the channel nothing changes, rather than something that nobody is told.
	mute := newTable(t, user("mute", "~ratelimit:*", "resetchannels", "+eval", "+hgetall", "+hset", "+hdel", "+publish", "+sadd", "+smembers"))
	_, err := limits.Loader{Store: mute, Service: "billing"}.Load(t.Context(), nil)
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.EqualValues(t, 3, limitOf(t, reader, "a", "x"))
}
