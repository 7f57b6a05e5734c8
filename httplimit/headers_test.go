package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const big = 1 << 53 // sixteen digits

// The fields for what a Limiter can answer, at the edges of the numbers.
func TestRateLimitFields(t *testing.T) {
	type state = ratelimit.QuotaState
	for _, tt := range []struct {
		name   string
		quota  ratelimit.Quota
		denied bool
		state  state
		policy params
		item   params
		retry  string
	}{
		{"allowed", ratelimit.PerMinute(100), false, state{Remaining: 50, NextAfter: 30 * time.Second, ResetAfter: time.Minute},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(50), "t": int64(30)}, ""},
		{"rounded up", ratelimit.PerMinute(100), false, state{Remaining: 50, NextAfter: 30*time.Second + 1},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(50), "t": int64(31)}, ""},
		{"exhausted, but allowed", ratelimit.PerMinute(100), false, state{NextAfter: 1},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(0), "t": int64(1)}, ""},
		{"full", ratelimit.PerMinute(100), false, state{Remaining: 100},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(100)}, ""},
		{"denied", ratelimit.PerMinute(100), true, state{RetryAfter: 10 * time.Second, NextAfter: 3 * time.Second},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(0), "t": int64(10)}, "10"},
		{"denied with some left", ratelimit.PerMinute(100), true, state{Remaining: 3, RetryAfter: 10*time.Second + time.Microsecond},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(0), "t": int64(11)}, "11"},
		{"denied for a µs", ratelimit.PerMinute(100), true, state{RetryAfter: time.Microsecond},
			params{"q": int64(100), "w": int64(60)}, params{"r": int64(0), "t": int64(1)}, "1"},
		{"denied for good", ratelimit.PerMinute(5), true, state{Remaining: 5, RetryAfter: ratelimit.Never},
			params{"q": int64(5), "w": int64(60)}, params{"r": int64(0), "t": int64(60)}, "60"},
		{"denied for good, window under a second", ratelimit.Per(0, 5*time.Millisecond), true, state{RetryAfter: ratelimit.Never},
			params{"q": int64(0)}, params{"r": int64(0), "t": int64(1)}, "1"},
		{"window under a second", ratelimit.Per(7, 999*time.Millisecond), false, state{Remaining: 6, NextAfter: 99 * time.Millisecond},
			params{"q": int64(7)}, params{"r": int64(6), "t": int64(1)}, ""},
		{"window of no whole seconds", ratelimit.Per(7, 1500*time.Millisecond), false, state{Remaining: 6, NextAfter: time.Second},
			params{"q": int64(7), "w": int64(2)}, params{"r": int64(6), "t": int64(1)}, ""},
		{"numbers of sixteen digits", ratelimit.PerDay(big - 1), false, state{Remaining: big - 2, NextAfter: time.Second},
			params{"q": int64(999_999_999_999_999), "w": int64(86400)}, params{"r": int64(999_999_999_999_999), "t": int64(1)}, ""},
		{"longer than clients can read", ratelimit.Per(1, 71*365*24*time.Hour), true, state{RetryAfter: 71 * 365 * 24 * time.Hour},
			params{"q": int64(1), "w": int64(1<<31 - 1)}, params{"r": int64(0), "t": int64(1<<31 - 1)}, "2147483647"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			grant := ratelimit.GrantedQuota{Granted: 1, States: []state{tt.state}}
			if tt.denied {
				grant.Granted = 0
			}
			limiter := &stub{grants: []ratelimit.GrantedQuota{grant}}
			w := do(newMiddleware(t, newPolicy(t, "test", limiter, tt.quota))(noContent))
			require.Equal(t, map[string]params{"test": tt.policy}, fieldList(t, w.Header(), "RateLimit-Policy"))
			require.Equal(t, map[string]params{"test": tt.item}, fieldList(t, w.Header(), "RateLimit"))
			require.Equal(t, tt.retry, w.Header().Get("Retry-After"))
			require.Equal(t, tt.denied, w.Code == http.StatusTooManyRequests)
		})
	}
}

// The example of the draft, letter by letter.
func TestRateLimitLetters(t *testing.T) {
	p := newPolicy(t, "p", &stub{grants: []ratelimit.GrantedQuota{{Granted: 1, States: []ratelimit.QuotaState{
		{Remaining: 50, NextAfter: 30 * time.Second}, {Remaining: 900, NextAfter: time.Hour},
	}}}}, ratelimit.Quota{Name: "burst", Limit: 100, Window: time.Minute}, ratelimit.Quota{Name: "daily", Limit: 1000, Window: 24 * time.Hour})
	h := do(newMiddleware(t, p)(noContent)).Header()
	require.Equal(t, []string{`"burst";q=100;w=60, "daily";q=1000;w=86400`}, h.Values("RateLimit-Policy"))
	require.Equal(t, []string{`"burst";r=50;t=30, "daily";r=900;t=3600`}, h.Values("RateLimit"))
}

// A Limiter of another package need not tell the states of the quotas.
func TestRateLimitWithoutStates(t *testing.T) {
	limiter := &stub{grants: []ratelimit.GrantedQuota{{RetryAfter: 3 * time.Second}}}
	w := do(newMiddleware(t, newPolicy(t, "p", limiter, ratelimit.PerMinute(1), ratelimit.PerHour(9)))(noContent))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, map[string]params{"p-1m": {"r": int64(0), "t": int64(3)}, "p-1h": {"r": int64(0), "t": int64(3)}}, fieldList(t, w.Header(), "RateLimit"))
	limiter.grants = nil
	require.Equal(t, http.StatusServiceUnavailable, do(newMiddleware(t, newPolicy(t, "p", limiter, ratelimit.PerMinute(1)))(noContent)).Code)
}

// The fields over minutes of real use: with every strategy and storage a client
// that waits as long as it is told is let in.
func TestRateLimitIsTrue(t *testing.T) {
	for name, strategy := range limitertest.Strategies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy(t, "p", strategy(memory.New()), ratelimit.Per(3, 10*time.Second), ratelimit.PerMinute(10))
				h := newMiddleware(t, p)(noContent)
				refused := 0
				for range 100 {
					w := do(h)
					items := fieldList(t, w.Header(), "RateLimit")
					require.Len(t, items, 2)
					if w.Code == http.StatusNoContent {
						time.Sleep(731 * time.Millisecond)
						continue
					}
					refused++
					var longest int64
					for _, item := range items {
						if item["r"] == int64(0) {
							longest = max(longest, item["t"].(int64))
						}
					}
					require.Equal(t, strconv.FormatInt(longest, 10), w.Header().Get("Retry-After"))
					require.Positive(t, longest)
					time.Sleep(time.Duration(longest) * time.Second)
					require.Equal(t, http.StatusNoContent, do(h).Code, "waited %d s, as told", longest)
				}
				require.Greater(t, refused, 10)
			})
		})
	}
}

// A fixed window's t is the time to its end.
func TestFixedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at a full minute
		h := newMiddleware(t, newPolicy(t, "p", ratelimit.NewSimpleLimiter(memory.New()), ratelimit.PerMinute(2)))(noContent)
		time.Sleep(14500 * time.Millisecond)
		for _, want := range []params{{"r": int64(1), "t": int64(46)}, {"r": int64(0), "t": int64(46)}, {"r": int64(0), "t": int64(46)}} {
			require.Equal(t, want, fieldList(t, do(h).Header(), "RateLimit")["p"])
		}
	})
}

func TestRateLimitOnRedis(t *testing.T) {
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		limiter := ratelimit.NewSlidingWindow(store)
		h := newMiddleware(t, newPolicy(t, "a", limiter, ratelimit.PerHour(2)), httplimit.WithPolicy(newPolicy(t, "b", limiter, ratelimit.PerHour(9)), httplimit.Everyone))(noContent)
		for _, want := range [][2]int64{{1, 8}, {0, 7}, {0, 7}} {
			items := fieldList(t, do(h).Header(), "RateLimit")
			require.Equal(t, want, [2]int64{items["a"]["r"].(int64), items["b"]["r"].(int64)})
		}
	})
}

func TestNames(t *testing.T) {
	hour := func(name string) ratelimit.Quota { return ratelimit.Quota{Name: name, Limit: 1, Window: time.Hour} }
	for _, tt := range []struct {
		name   string
		policy string
		quotas []ratelimit.Quota
		want   []string
	}{
		{"the policy's", "api", []ratelimit.Quota{ratelimit.PerHour(1)}, []string{"api"}},
		{"the quota's", "api", []ratelimit.Quota{hour("daily")}, []string{"daily"}},
		{"one of each", "api", []ratelimit.Quota{hour("daily"), ratelimit.PerMinute(1)}, []string{"daily", "api"}},
		{"windows", "api", []ratelimit.Quota{ratelimit.Per(1, 5*time.Second), ratelimit.PerMinute(1), ratelimit.PerHour(1), ratelimit.PerDay(1), ratelimit.Per(1, 90*time.Second), ratelimit.Per(1, 1500*time.Millisecond), ratelimit.Per(1, 1010*time.Microsecond)},
			[]string{"api-5s", "api-1m", "api-1h", "api-1d", "api-90s", "api-1500ms", "api-1010us"}},
		{"windows that are equal", "api", []ratelimit.Quota{ratelimit.PerMinute(1), {Limit: 9, Window: time.Minute, PrefixOverride: "all"}}, []string{"api-1m", "api-1m-2"}},
		{"escaped", `a"b\c;d, e`, []ratelimit.Quota{ratelimit.PerMinute(1)}, []string{`a"b\c;d, e`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := do(newMiddleware(t, newPolicy(t, tt.policy, sliding(), tt.quotas...))(noContent)).Header()
			for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
				items := fieldList(t, h, field)
				require.Len(t, items, len(tt.want))
				for _, name := range tt.want {
					require.Contains(t, items, name)
				}
			}
		})
	}
}

func TestOlderForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		limiter := ratelimit.NewSimpleLimiter(memory.New())
		p := newPolicy(t, "p", limiter, ratelimit.PerMinute(2), ratelimit.PerHour(100))
		forms := func(forms ...httplimit.HeaderForm) http.Handler {
			return newMiddleware(t, p, httplimit.WithHeaders(forms...))(noContent)
		}
		triple := func(h http.Header, prefix string) [3]string {
			return [3]string{h.Get(prefix + "Limit"), h.Get(prefix + "Remaining"), h.Get(prefix + "Reset")}
		}
		w := do(forms(httplimit.XRateLimit))
		require.Equal(t, [3]string{"2", "1", "60"}, triple(w.Header(), "X-RateLimit-"))
		require.Empty(t, w.Header().Values("RateLimit"))
		w = do(forms(httplimit.XRateLimitEpoch, httplimit.OldRateLimitFields))
		require.Equal(t, [3]string{"2", "0", "60"}, triple(w.Header(), "RateLimit-"))
		epoch := strconv.FormatInt(time.Now().Unix()+1+60, 10) // not before it is true
		require.Equal(t, [3]string{"2", "0", epoch}, triple(w.Header(), "X-RateLimit-"))
		w = do(forms(httplimit.OldRateLimitFields, httplimit.RateLimitFields))
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Equal(t, [3]string{"2", "0", "60"}, triple(w.Header(), "RateLimit-"))
		require.Len(t, fieldList(t, w.Header(), "RateLimit"), 2)
		w = do(forms())
		require.Equal(t, "60", w.Header().Get("Retry-After"))
		require.Empty(t, w.Header().Values("RateLimit-Policy"))
	})
}

func TestUnit(t *testing.T) {
	cost := httplimit.WithCost(func(r *http.Request) int64 { return 400 })
	w := do(perHour(t, 1000, cost, httplimit.WithUnit("content-bytes")))
	require.Equal(t, params{"q": int64(1000), "w": int64(3600), "qu": "content-bytes"}, fieldList(t, w.Header(), "RateLimit-Policy")["test"])
}

// A middleware in another one adds to the lists.
func TestNested(t *testing.T) {
	limiter := sliding()
	outer := newMiddleware(t, newPolicy(t, "outer", limiter, ratelimit.PerHour(9)), httplimit.WithExposedHeaders())
	inner := newMiddleware(t, newPolicy(t, "inner", limiter, ratelimit.PerHour(1)), httplimit.WithExposedHeaders())
	for range 2 {
		h := do(outer(inner(noContent))).Header()
		require.Len(t, fieldList(t, h, "RateLimit"), 2)
		require.Len(t, fieldList(t, h, "RateLimit-Policy"), 2)
	}
}

// What one request's handler does to its header does not reach another's.
func TestHeadersAreTheHandlers(t *testing.T) {
	policy := newPolicy(t, "test", sliding(), ratelimit.PerHour(9))
	h := newMiddleware(t, policy)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NotEmpty(t, w.Header().Get("RateLimit"))
		before := w.Header().Get("RateLimit")
		w.Header()["Ratelimit-Policy"][0] = "spoilt"
		w.Header().Add("RateLimit-Policy", "more")
		require.Equal(t, before, w.Header().Get("RateLimit"))
		w.Header().Del("RateLimit")
	}))
	w := do(h)
	require.Empty(t, w.Header().Values("RateLimit"))
	require.Equal(t, `"test";q=9;w=3600`, do(newMiddleware(t, policy)(noContent)).Header().Get("RateLimit-Policy"))
	_ = do(h)
}

func TestExposedHeaders(t *testing.T) {
	expose := httplimit.WithExposedHeaders()
	const field = "Access-Control-Expose-Headers"
	require.Equal(t, "RateLimit-Policy, RateLimit, Retry-After", do(perHour(t, 1, expose)).Header().Get(field))
	require.Equal(t, "RateLimit-Policy, RateLimit, Retry-After", do(perHour(t, 0, expose)).Header().Get(field))
	require.Equal(t, "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
		do(perHour(t, 1, expose, httplimit.WithHeaders(httplimit.XRateLimit))).Header().Get(field))
	require.Empty(t, do(perHour(t, 1)).Header().Get(field))
	for before, want := range map[string]string{"*": "*", "ETag": "ETag, RateLimit-Policy, RateLimit, Retry-After"} {
		w := httptest.NewRecorder()
		w.Header().Set(field, before)
		perHour(t, 1, expose).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, []string{want}, w.Header().Values(field))
	}
}
