package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func TestPerAddress(t *testing.T) {
	h := perHour(t, 2)
	for i, tt := range []struct {
		peer string
		want int
	}{
		{"192.0.2.1:1000", 204}, {"192.0.2.1:2000", 204}, {"192.0.2.1:1000", 429},
		{"192.0.2.2:1000", 204},
	} {
		require.Equal(t, tt.want, do(h, peer(tt.peer), header("X-Forwarded-For", strconv.Itoa(i))).Code, "request %d", i)
	}
}

// Without headers, one quota is asked on another way, with the same answers.
func TestWithoutHeaders(t *testing.T) {
	h := perHour(t, 2, httplimit.WithHeaders(), httplimit.WithExposedHeaders(), httplimit.WithCost(func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }))
	query := func(q string) func(*http.Request) { return func(r *http.Request) { r.URL.RawQuery = q } }
	w := do(h, query("xxx"))
	require.Equal(t, 429, w.Code)
	require.Equal(t, "3600", w.Header().Get("Retry-After"), "for good")
	w = do(h, query("xx"))
	require.Equal(t, 204, w.Code)
	require.Equal(t, http.Header{"Access-Control-Expose-Headers": {"Retry-After"}}, w.Header())
	w = do(h, query("x"))
	require.Equal(t, 429, w.Code)
	require.Equal(t, []string{"test"}, problemOf(t, w).Violated)
	require.Empty(t, w.Header().Get("RateLimit"))
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
	require.Equal(t, 400, do(h, peer("junk")).Code)

	policy := newPolicy(t, "test", &stub{err: ratelimit.ErrUnavailable}, ratelimit.PerHour(1))
	require.Equal(t, 503, do(newMiddleware(t, policy, httplimit.WithHeaders())(noContent)).Code)
}

// All policies are charged, or none; both are told.
func TestSeveralPolicies(t *testing.T) {
	limiter := sliding()
	perKey := newPolicy(t, "per-key", limiter, ratelimit.PerHour(2))
	global := newPolicy(t, "global", limiter, ratelimit.PerHour(3))
	h := newMiddleware(t, perKey, httplimit.WithKey(httplimit.Header("X-API-Key")), httplimit.WithPolicy(global, httplimit.Everyone))(noContent)
	for _, tt := range []struct {
		key          string
		want         int
		left, common int64
	}{
		{"a", 204, 1, 2}, {"a", 204, 0, 1},
		{"a", 429, 0, 1}, // not charged to the global limit
		{"b", 204, 1, 0},
		{"b", 429, 1, 0},
	} {
		w := do(h, header("X-API-Key", tt.key))
		require.Equal(t, tt.want, w.Code)
		items := fieldList(t, w.Header(), "RateLimit")
		require.Equal(t, tt.left, items["per-key"]["r"])
		require.Equal(t, tt.common, items["global"]["r"])
	}
	require.Equal(t, []string{"per-key"}, problemOf(t, do(h, header("X-API-Key", "a"))).Violated[:1])
	require.Equal(t, []string{"global"}, problemOf(t, do(h, header("X-API-Key", "b"))).Violated)
}

func TestCost(t *testing.T) {
	h := perHour(t, 10, httplimit.WithCost(func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
		return n
	}))
	for _, tt := range []struct {
		cost string
		want int
		left int64
	}{{"4", 204, 6}, {"7", 429, 0}, {"6", 204, 0}, {"1", 429, 0}, {"0", 204, 0}, {"11", 429, 0}} {
		w := do(h, header("Cost", tt.cost))
		require.Equal(t, tt.want, w.Code, "cost %s", tt.cost)
		require.Equal(t, tt.left, fieldList(t, w.Header(), "RateLimit")["test"]["r"], "cost %s", tt.cost)
	}
	require.Equal(t, "3600", do(h, header("Cost", "11")).Header().Get("Retry-After"), "never, but not in 292 years")
	w := do(h, header("Cost", "-1"))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, "about:blank", problemOf(t, w).Type)
}

func TestSkip(t *testing.T) {
	h := perHour(t, 1, httplimit.WithSkip(func(r *http.Request) bool { return r.Method == http.MethodOptions }))
	for range 3 {
		w := do(h, method(http.MethodOptions))
		require.Equal(t, 204, w.Code)
		require.Empty(t, w.Header())
	}
	require.Equal(t, 204, do(h).Code)
	require.Equal(t, 429, do(h).Code)
}

func TestCountIf(t *testing.T) {
	failures := httplimit.WithCountIf(func(status int) bool { return status == http.StatusUnauthorized })
	policy := newPolicy(t, "test", sliding(), ratelimit.PerHour(2))
	ran := 0
	h := newMiddleware(t, policy, failures)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran++
		status, _ := strconv.Atoi(r.Header.Get("Want"))
		w.WriteHeader(status)
	}))
	for _, tt := range []struct{ status, want int }{
		{200, 200}, {200, 200}, {200, 200}, {401, 401}, {500, 500}, {401, 401},
		{200, 429}, {401, 429},
	} {
		require.Equal(t, tt.want, do(h, header("Want", strconv.Itoa(tt.status))).Code)
	}
	require.Equal(t, 6, ran)
}

// What is checked counts from the time of the check, in time to be seen by
// whoever has the answer.
func TestCountIfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := newPolicy(t, "test", ratelimit.NewListLimiter(memory.New()), ratelimit.PerMinute(1))
		h := newMiddleware(t, policy, httplimit.WithCountIf(func(int) bool { return true }))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(20 * time.Second)
			w.WriteHeader(http.StatusAccepted)
			d, err := policy.Check(t.Context(), "192.0.2.1", 1)
			require.NoError(t, err)
			require.False(t, d.Allowed, "charged as soon as the status is known")
			require.Equal(t, 40*time.Second, d.RetryAfter)
		}))
		require.Equal(t, http.StatusAccepted, do(h).Code)
	})
}

// A handler that panics counts as 500, unless it has answered.
func TestCountIfPanic(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  int
		handler http.HandlerFunc
	}{
		{"panic", 500, func(http.ResponseWriter, *http.Request) { panic("oops") }},
		{"answer and panic", 202, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); panic("oops") }},
		{"nothing", 200, func(http.ResponseWriter, *http.Request) {}},
		{"body", 200, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }},
		{"early hints", 404, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }},
		{"twice", 404, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(500) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var statuses []int
			h := newMiddleware(t, newPolicy(t, "test", sliding(), ratelimit.PerHour(2)), httplimit.WithCountIf(func(status int) bool {
				statuses = append(statuses, status)
				return false
			}))(tt.handler)
			func() {
				defer func() { _ = recover() }()
				do(h)
			}()
			require.Equal(t, []int{tt.status}, statuses)
		})
	}
}

func TestCountIfStorageFails(t *testing.T) {
	limiter := &stub{grants: []ratelimit.GrantedQuota{{Granted: 1}}, useErr: ratelimit.ErrUnavailable}
	var reported error
	h := newMiddleware(t, newPolicy(t, "test", limiter, ratelimit.PerHour(2)),
		httplimit.WithCountIf(func(int) bool { return true }),
		httplimit.WithOnError(func(_ *http.Request, err error) { reported = err }))(noContent)
	require.Equal(t, 204, do(h).Code)
	require.ErrorIs(t, reported, ratelimit.ErrUnavailable)
}

func TestDryRun(t *testing.T) {
	var refusals []httplimit.Refusal
	var failures []error
	h := perHour(t, 1, httplimit.WithKey(httplimit.Header("X-API-Key")),
		httplimit.WithDryRun(func(_ *http.Request, refusal httplimit.Refusal) { refusals = append(refusals, refusal) }),
		httplimit.WithOnError(func(_ *http.Request, err error) { failures = append(failures, err) }))
	for range 3 {
		w := do(h, header("X-API-Key", "a"))
		require.Equal(t, 204, w.Code)
		require.Empty(t, w.Header())
	}
	require.Len(t, refusals, 2)
	require.Equal(t, []string{"test"}, refusals[0].Violated)
	require.InDelta(t, 3600, refusals[0].RetryAfter.Seconds(), 400)
	require.Equal(t, 204, do(h).Code)
	require.Len(t, failures, 1)
	require.ErrorIs(t, failures[0], httplimit.ErrNoKey)
}

func TestDryRunCountIf(t *testing.T) {
	refused := 0
	h := perHour(t, 2, httplimit.WithDryRun(func(*http.Request, httplimit.Refusal) { refused++ }),
		httplimit.WithCountIf(func(status int) bool { return status == 204 }))
	for range 5 {
		require.Equal(t, 204, do(h).Code)
	}
	require.Equal(t, 3, refused)
}

func TestNewRefuses(t *testing.T) {
	limiter := sliding()
	good := newPolicy(t, "good", limiter, ratelimit.PerHour(1))
	named := func(name string) ratelimit.Quota { return ratelimit.Quota{Name: name, Limit: 1, Window: time.Hour} }
	type uncomparable struct {
		ratelimit.Limiter
		_ []int
	}
	for name, tt := range map[string]struct {
		policy *ratelimit.Policy
		opt    httplimit.Option
	}{
		"no policy":              {nil, httplimit.WithUnit("")},
		"no second policy":       {good, httplimit.WithPolicy(nil, httplimit.Everyone)},
		"no key":                 {good, httplimit.WithKey(nil)},
		"no second key":          {good, httplimit.WithPolicy(newPolicy(t, "b", limiter, ratelimit.PerHour(1)), nil)},
		"another limiter":        {good, httplimit.WithPolicy(newPolicy(t, "b", sliding(), ratelimit.PerHour(1)), httplimit.Everyone)},
		"uncomparable limiters":  {newPolicy(t, "a", uncomparable{Limiter: limiter}, ratelimit.PerHour(1)), httplimit.WithPolicy(newPolicy(t, "b", uncomparable{Limiter: limiter}, ratelimit.PerHour(1)), httplimit.Everyone)},
		"the same policy twice":  {good, httplimit.WithPolicy(good, httplimit.Everyone)},
		"the same name twice":    {good, httplimit.WithPolicy(newPolicy(t, "b", limiter, named("good")), httplimit.Everyone)},
		"a name with a newline":  {newPolicy(t, "a", limiter, named("a\nb")), httplimit.WithUnit("")},
		"a name with an umlaut":  {newPolicy(t, "a", limiter, named("ä")), httplimit.WithUnit("")},
		"a name with DEL":        {newPolicy(t, "a", limiter, named("\x7f")), httplimit.WithUnit("")},
		"a unit with a newline":  {good, httplimit.WithUnit("a\r\nb")},
		"both forms of X":        {good, httplimit.WithHeaders(httplimit.XRateLimit, httplimit.XRateLimitEpoch)},
		"a form that is not one": {good, httplimit.WithHeaders(17)},
		"no cost":                {good, httplimit.WithCost(nil)},
		"no skip":                {good, httplimit.WithSkip(nil)},
		"no count":               {good, httplimit.WithCountIf(nil)},
		"no refusal handler":     {good, httplimit.WithRefusalHandler(nil)},
		"no failure handler":     {good, httplimit.WithFailureHandler(nil)},
		"no dry run":             {good, httplimit.WithDryRun(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := httplimit.New(tt.policy, tt.opt)
			require.Error(t, err)
			require.Nil(t, m)
		})
	}
	_, err := httplimit.New(newPolicy(t, "a", uncomparable{Limiter: limiter}, ratelimit.PerHour(1)))
	require.NoError(t, err, "of one limiter there is nothing to compare")
}

func TestRefusal(t *testing.T) {
	h := perHour(t, 1)
	require.Equal(t, 204, do(h).Code)
	w := do(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	p := problemOf(t, w)
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", p.Type)
	require.Equal(t, []string{"test"}, p.Violated)
	require.NotContains(t, w.Body.String(), "192.0.2")
	for field, values := range w.Header() {
		require.NotContains(t, fmt.Sprint(values), "192.0.2", "%s", field)
	}
	head := do(h, method(http.MethodHead))
	require.Equal(t, 429, head.Code)
	require.Zero(t, head.Body.Len())
	require.NotEmpty(t, head.Header().Get("Retry-After"))
}

// A refusal does not keep what the header of another answer was to say.
func TestRefusalAfterOthers(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Content-Length", "12345")
	w.Header().Set("ETag", `"x"`)
	perHour(t, 0).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Empty(t, w.Header().Get("Content-Length"))
	require.Empty(t, w.Header().Get("ETag"))
}

func TestRefusalHandler(t *testing.T) {
	h := perHour(t, 0, httplimit.WithRefusalHandler(func(w http.ResponseWriter, r *http.Request, refusal httplimit.Refusal) {
		require.NotEmpty(t, w.Header().Get("RateLimit"))
		require.Equal(t, time.Hour, refusal.RetryAfter)
		w.WriteHeader(http.StatusTeapot)
	}))
	w := do(h)
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, "3600", w.Header().Get("Retry-After"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
}

func TestFailures(t *testing.T) {
	for name, err := range map[string]error{
		"unavailable": ratelimit.ErrUnavailable, "indeterminate": ratelimit.ErrIndeterminate,
		"misconfigured": ratelimit.ErrMisconfigured, "unknown": errors.New("192.0.2.1 is on fire"),
		"no limit for the account": limits.ErrUnknownResource,
	} {
		t.Run(name, func(t *testing.T) {
			var reported []error
			report := httplimit.WithOnError(func(_ *http.Request, err error) { reported = append(reported, err) })
			policy := newPolicy(t, "test", &stub{err: fmt.Errorf("deep down: %w", err)}, ratelimit.PerHour(1))
			w := do(newMiddleware(t, policy, report)(noContent))
			require.Equal(t, 503, w.Code)
			require.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", problemOf(t, w).Type)
			require.Equal(t, "5", w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.NotContains(t, w.Body.String(), "deep down")
			require.NotContains(t, w.Body.String(), "192")

			w = do(newMiddleware(t, policy, report, httplimit.WithFailOpen())(noContent))
			switch err {
			case ratelimit.ErrUnavailable, ratelimit.ErrIndeterminate, ratelimit.ErrMisconfigured:
				require.Equal(t, 204, w.Code)
				require.Empty(t, w.Header())
			default:
				require.Equal(t, 503, w.Code, "not the storage failed")
			}

			w = do(newMiddleware(t, policy, httplimit.WithFailureHandler(func(w http.ResponseWriter, _ *http.Request, got error) {
				require.ErrorIs(t, got, err)
				w.WriteHeader(http.StatusTeapot)
			}))(noContent))
			require.Equal(t, http.StatusTeapot, w.Code)
			require.Len(t, reported, 2)
			require.ErrorIs(t, reported[0], err)
		})
	}
}

// Whose key cannot be told is refused, also when storages may fail.
func TestNoKey(t *testing.T) {
	for name, key := range map[string]httplimit.KeyFunc{
		"a storage of its own": func(*http.Request) (string, error) { return "", ratelimit.ErrUnavailable },
		"an error":             func(*http.Request) (string, error) { return "", errors.New("who?") },
		"empty":                constant(""),
		"a header":             httplimit.Header("X-API-Key"),
	} {
		t.Run(name, func(t *testing.T) {
			w := do(perHour(t, 9, httplimit.WithKey(key), httplimit.WithFailOpen()))
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, "about:blank", problemOf(t, w).Type)
			require.Empty(t, w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			do(perHour(t, 9, httplimit.WithKey(key), httplimit.WithFailureHandler(func(_ http.ResponseWriter, _ *http.Request, err error) {
				require.ErrorIs(t, err, httplimit.ErrNoKey)
			})))
		})
	}
}

// A client that goes away is not a failure to report, and no way around a limit.
func TestCanceled(t *testing.T) {
	h := perHour(t, 9, httplimit.WithFailOpen(), httplimit.WithOnError(func(_ *http.Request, err error) { t.Errorf("reported: %v", err) }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := do(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "not served")
}

func TestExpired(t *testing.T) {
	reported := 0
	h := perHour(t, 9, httplimit.WithFailOpen(), httplimit.WithOnError(func(*http.Request, error) { reported++ }))
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Equal(t, http.StatusServiceUnavailable, do(h, func(r *http.Request) { *r = *r.WithContext(ctx) }).Code)
	require.Equal(t, 1, reported)
}
