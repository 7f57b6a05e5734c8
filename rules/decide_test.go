package rules_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// everywhere runs a test on every storage, a cluster too.
func everywhere(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	teststore.Each(t, test)
	t.Run("cluster", func(t *testing.T) {
		store, err := redisstore.New(redistest.StartCluster(t, 0).Client(t), redisstore.WithTimeout(10*time.Second))
		require.NoError(t, err)
		test(t, store)
	})
}

const api = `
rules:
  - path: /
    descriptors:
      - {key: ip, unit: minute, requests_per_unit: 3}
  - path: POST /api/{rest...}
    descriptors:
      - {key: account, unit: minute, requests_per_unit: 2}
      - {key: account, value: acme, unit: minute, requests_per_unit: 100}
      - {key: account, value: free-*, unit: hour, requests_per_unit: 1}
  - path: /api/users/{user}
    descriptors:
      - {key: user, window: 10s, requests_per_unit: 4}
`

// All rules that match are charged, or none; other values have counters of their own.
func TestDecide(t *testing.T) {
	everywhere(t, func(t *testing.T, store storage.Storage) {
		e := engine(t, store, api)
		ask := func(ip, account, path string) rules.Decision {
			return decide(t, e, start, rules.Request{Method: "POST", Path: path, Values: values("ip", ip, "account", account)})
		}
		d := ask("1", "a", "/api/users/u")
		require.True(t, d.Allowed)
		require.Equal(t, 3, d.Matched)
		require.EqualValues(t, 1, d.Remaining)
		require.True(t, ask("2", "a", "/api/users/u").Allowed)

		d = ask("3", "a", "/api/users/u")
		require.False(t, d.Allowed)
		require.Equal(t, []string{"POST /api/{rest...} account"}, names(d.Refused))
		require.Contains(t, d.Refused[0].Place, "rules.yaml:8")
		require.Equal(t, "sliding-window", d.Refused[0].Strategy)
		require.EqualValues(t, 2, d.Refused[0].Quota.Limit)
		require.Positive(t, d.RetryAfter)
		require.LessOrEqual(t, d.RetryAfter, time.Minute)
		require.True(t, decide(t, e, start.Add(d.RetryAfter), rules.Request{Method: "POST", Path: "/api/users/u", Values: values("ip", "3", "account", "a")}).Allowed)

		// What was refused charged nobody: ip 3 has all but the one above.
		for range 2 {
			require.True(t, ask("4", "acme", "/api/x").Allowed)
			require.True(t, ask("3", "acme", "/api/x").Allowed)
		}
		require.Equal(t, []string{"/ ip"}, names(ask("3", "acme", "/api/x").Refused))
		require.True(t, ask("5", "free-1", "/api/x").Allowed)
		require.Equal(t, []string{"POST /api/{rest...} account=free-*"}, names(ask("5", "free-1", "/api/x").Refused))
		require.True(t, ask("5", "free-2", "/api/x").Allowed, "each value counts for itself")

		// Two refuse.
		require.True(t, ask("5", "acme", "/api/x").Allowed)
		d = ask("5", "free-1", "/api/x")
		require.Equal(t, []string{"/ ip", "POST /api/{rest...} account=free-*"}, names(d.Refused))
		require.Equal(t, max(d.Refused[0].RetryAfter, d.Refused[1].RetryAfter), d.RetryAfter)

		// Nothing matches.
		require.Equal(t, rules.Decision{Allowed: true}, decide(t, e, start, rules.Request{Path: "/y"}))
	})
}

// counting counts the calls of a storage, and fails those that it is told to.
type counting struct {
	storage.Storage
	calls, uses atomic.Int64
	fail        func(c *storage.Call, script string) error
}

func (s *counting) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	s.calls.Add(1)
	if c.Op == storage.Use {
		s.uses.Add(1)
	}
	if s.fail != nil {
		if err := s.fail(c, script.Name); err != nil {
			return err
		}
	}
	return s.Storage.Run(ctx, script, c)
}

const several = `
rules:
  - path: /
    descriptors:
      - {key: ip, unit: minute, requests_per_unit: 5, strategy: list}
      - {key: ip, unit: hour, requests_per_unit: 50, strategy: list}
      - {key: account, unit: minute, requests_per_unit: 3, strategy: simple}
      - {key: user, unit: minute, requests_per_unit: 2, strategy: token-bucket, burst: 2}
`

func TestOneCallEachStrategy(t *testing.T) {
	store := &counting{Storage: memory.New()}
	e := engine(t, store, several)
	decide(t, e, start, rules.Request{Path: "/", Values: values("ip", "1")})
	require.EqualValues(t, 1, store.calls.Load())
	decide(t, e, start, rules.Request{Path: "/", Values: values("ip", "1", "user", "u")})
	require.EqualValues(t, 3, store.calls.Load())
	decide(t, e, start, rules.Request{Path: "/", Values: values("none", "1")})
	require.EqualValues(t, 3, store.calls.Load(), "what no rule is for costs no call")
}

// What earlier strategies were charged is given back when a later one refuses.
func TestGivenBack(t *testing.T) {
	everywhere(t, func(t *testing.T, store storage.Storage) {
		e := engine(t, store, several)
		all := rules.Request{Path: "/", Values: values("ip", "1", "account", "a", "user", "u")}
		for range 2 {
			require.True(t, decide(t, e, start, all).Allowed)
		}
		for range 5 {
			d := decide(t, e, start, all)
			require.False(t, d.Allowed)
			require.Equal(t, []string{"/ user"}, names(d.Refused))
		}
		require.EqualValues(t, 2, decide(t, e, start, rules.Request{Path: "/", Values: values("ip", "1")}).Remaining)
		require.EqualValues(t, 0, decide(t, e, start, rules.Request{Path: "/", Values: values("account", "a")}).Remaining)
	})
}

// Many at once are never allowed more than the tightest limit, and nothing stays
// charged for those who were refused.
func TestManyAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, store storage.Storage) {
		e := engine(t, store, `
rules:
  - path: /
    descriptors:
      - {key: ip, unit: hour, requests_per_unit: 1000, strategy: list}
      - {key: user, unit: hour, requests_per_unit: 7, strategy: token-bucket}
`)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					d, err := e.Decide(t.Context(), rules.Request{Path: "/", Values: values("ip", "1", "user", "u")})
					if err == nil && d.Err != nil {
						err = d.Err
					}
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 7, allowed.Load())
		d, err := e.Decide(t.Context(), rules.Request{Path: "/", Values: values("ip", "1")})
		require.NoError(t, err)
		require.EqualValues(t, 1000-7-1, d.Remaining)
	})
}

var errDown = fmt.Errorf("%w: planted", ratelimit.ErrUnavailable)

// A later call that fails gives back, too; a give-back that fails is told.
func TestFailures(t *testing.T) {
	store := &counting{Storage: memory.New()}
	e := engine(t, store, several)
	all := rules.Request{Path: "/", Values: values("ip", "1", "user", "u")}

	store.fail = func(c *storage.Call, script string) error {
		if script == "token-bucket" {
			return errDown
		}
		return nil
	}
	_, err := e.Decide(t.Context(), all, ratelimit.At(start))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.NotErrorIs(t, err, rules.ErrOvercharged)
	require.EqualValues(t, 1, store.uses.Load())

	store.fail = nil
	require.EqualValues(t, 1, decide(t, e, start, all).Remaining)
	require.True(t, decide(t, e, start, all).Allowed)
	store.fail = func(c *storage.Call, script string) error {
		if c.Op == storage.Use {
			return errDown
		}
		return nil
	}
	d, err := e.Decide(t.Context(), all, ratelimit.At(start))
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.ErrorIs(t, d.Err, rules.ErrOvercharged)
	require.ErrorContains(t, d.Err, "/ ip")
	require.EqualValues(t, 5-3-1, decide(t, e, start, rules.Request{Path: "/", Values: values("ip", "1")}).Remaining, "over-charged, never the other way")

	// A context that ends between the calls does not stop the give-back.
	ctx, cancel := context.WithCancel(t.Context())
	store.fail = func(c *storage.Call, script string) error {
		if script == "token-bucket" {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	_, err = e.Decide(ctx, rules.Request{Path: "/", Values: values("ip", "2", "user", "v")}, ratelimit.At(start))
	require.ErrorIs(t, err, context.Canceled)
	store.fail = nil
	require.EqualValues(t, 4, decide(t, e, start, rules.Request{Path: "/", Values: values("ip", "2")}).Remaining)
}

// Shadow rules count and tell, and never refuse; without them there is no second call.
func TestShadow(t *testing.T) {
	everywhere(t, func(t *testing.T, store storage.Storage) {
		counted := &counting{Storage: store}
		e := engine(t, counted, `
rules:
  - path: /
    descriptors:
      - {key: ip, unit: minute, requests_per_unit: 2, shadow: true, name: lower}
      - {key: ip, unit: minute, requests_per_unit: 4}
  - path: /live
    descriptors:
      - {key: "*", unit: minute, requests_per_unit: 100}
  - path: /shadow
    descriptors:
      - {key: "*", unit: minute, requests_per_unit: 0, shadow: true}
`)
		get := rules.Request{Path: "/", Values: values("ip", "1")}
		for i := range 6 {
			d := decide(t, e, start, get)
			require.Equal(t, i < 4, d.Allowed)
			require.Equal(t, 2, d.Matched)
			if i == 2 || i == 3 {
				require.Len(t, d.Shadow, 1)
				require.Equal(t, "lower", d.Shadow[0].Quota.Name)
			} else {
				require.Empty(t, d.Shadow, "a refused request is none of the shadow's: %d", i)
			}
		}
		calls := counted.calls.Load()
		d := decide(t, e, start, rules.Request{Path: "/shadow"})
		require.True(t, d.Allowed)
		require.Equal(t, []string{"/shadow *"}, names(d.Shadow))
		require.Equal(t, calls+1, counted.calls.Load())
		decide(t, e, start, rules.Request{Path: "/live"})
		require.Equal(t, calls+2, counted.calls.Load())

		counted.fail = func(c *storage.Call, _ string) error {
			if !c.Together && c.Requests[0].Cells[0].Limit == 0 {
				return errDown
			}
			return nil
		}
		d, err := e.Decide(t.Context(), rules.Request{Path: "/shadow"}, ratelimit.At(start))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.ErrorIs(t, d.Err, ratelimit.ErrUnavailable)
	})
}

// Two different tuples of values never meet, whatever is in them.
func TestTuplesNeverMeet(t *testing.T) {
	e := memoryEngine(t, `
rules:
  - path: /
    descriptors:
      - {key: a, unit: minute, requests_per_unit: 1, descriptors: [{key: b, unit: minute, requests_per_unit: 1}]}
  - path: /{a}/{b}/
    descriptors:
      - {key: "*", unit: hour, requests_per_unit: 100}
  - path: /n
    descriptors:
      - {key: x, descriptors: [{key: y, unit: minute, requests_per_unit: 1}]}
      - {key: "x:1:y", unit: minute, requests_per_unit: 1}
`)
	seen := 0
	for _, v := range [][2]string{{"1:b:2", "x"}, {"1", "b:2:x"}, {"1%3Ab", "x"}, {"1:b", "x"}, {"", "1"}, {"1", ""}, {"1*", ""}, {"1%2A", ""}, {"\x00", "\xff"}, {"\xff", "\x00"}} {
		require.True(t, decide(t, e, start, rules.Request{Path: "/n", Values: values("x", v[0], "y", v[1])}).Allowed, "%q", v)
		seen++
	}
	require.Equal(t, 10, seen)
	require.True(t, decide(t, e, start, rules.Request{Path: "/n", Values: values("x:1:y", "b:2:x")}).Allowed)
	require.False(t, decide(t, e, start, rules.Request{Path: "/n", Values: values("x:1:y", "b:2:x")}).Allowed)
	// A policy of any name has counters of its own.
	store := memory.New()
	p := engine(t, store, "rules: [{path: /, descriptors: [{key: k, unit: minute, requests_per_unit: 1}]}]")
	require.True(t, decide(t, p, start, rules.Request{Path: "/", Values: values("k", "v")}).Allowed)
	for _, name := range []string{"path", ":path", "/"} {
		policy, err := ratelimit.NewPolicy(name, ratelimit.NewSlidingWindow(store), ratelimit.PerMinute(1))
		require.NoError(t, err)
		for _, key := range []string{"/:k:v", "path:/:k:v", "k:v"} {
			d, err := policy.Allow(t.Context(), key)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
	}
}

func TestBadRequests(t *testing.T) {
	e := memoryEngine(t, api)
	for want, r := range map[string]rules.Request{
		"neither Path nor Domain":                          {},
		"Descriptors without a Domain":                     {Path: "/", Descriptors: []rules.Descriptor{{}}},
		"Units -1 is negative":                             {Path: "/", Units: -1},
		"Units 9007199254740992 is above 9007199254740991": {Path: "/", Units: 1 << 53},
	} {
		_, err := e.Decide(t.Context(), r)
		require.ErrorIs(t, err, ratelimit.ErrInvalidRequest)
		require.ErrorContains(t, err, want)
	}
	_, err := rules.Open(t.TempDir(), nil)
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Decide(ended, rules.Request{Path: "/", Values: values("ip", "1")})
	require.True(t, errors.Is(err, context.Canceled))
}

// Units are all charged, or none.
func TestUnits(t *testing.T) {
	e := memoryEngine(t, api)
	r := rules.Request{Path: "/", Values: values("ip", "1"), Units: 2}
	require.True(t, decide(t, e, start, r).Allowed)
	require.False(t, decide(t, e, start, r).Allowed)
	r.Units = 4
	d := decide(t, e, start, r)
	require.Equal(t, ratelimit.Never, d.RetryAfter)
	r.Units = 0
	require.True(t, decide(t, e, start, r).Allowed)
	require.False(t, decide(t, e, start, r).Allowed)
}
