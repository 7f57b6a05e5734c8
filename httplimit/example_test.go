package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// The five lines that limit each client address.
func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

	limiter := ratelimit.NewSlidingWindow(memory.New())
	perClient, err := ratelimit.NewPolicy("per-client", limiter, ratelimit.PerMinute(2))
	check(err)
	limit, err := httplimit.New(perClient)
	check(err)
	handler := limit(mux) // http.ListenAndServe(":8080", handler)

	ask(handler, from("192.0.2.1"))
	ask(handler, from("192.0.2.1"))
	ask(handler, from("192.0.2.1"))
	ask(handler, from("192.0.2.2"))
	// Output:
	// 200 "per-client" has 1 left
	// 200 "per-client" has 0 left
	// 429 "per-client" has 0 left
	// 200 "per-client" has 1 left
}

// Each API key has a limit, and all together have one; both are told.
func ExampleWithPolicy() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	perKey, err := ratelimit.NewPolicy("per-key", limiter, ratelimit.PerMinute(100))
	check(err)
	global, err := ratelimit.NewPolicy("global", limiter, ratelimit.PerSecond(2000))
	check(err)
	limit, err := httplimit.New(perKey, httplimit.WithKey(httplimit.Header("X-API-Key")),
		httplimit.WithPolicy(global, httplimit.Everyone))
	check(err)

	handler := limit(http.NotFoundHandler())
	ask(handler, with("X-API-Key", "k1"))
	ask(handler, with("X-API-Key", "k2"))
	ask(handler)
	// Output:
	// 404 "per-key" has 99 left, "global" has 1999 left
	// 404 "per-key" has 99 left, "global" has 1998 left
	// 400
}

type userKey struct{}

// Whoever authenticates requests knows who asks.
func ExampleWithKey() {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := context.WithValue(r.Context(), userKey{}, r.Header.Get("Authorization"))
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}

	perUser, err := ratelimit.NewPolicy("per-user", ratelimit.NewTokenBucket(memory.New()),
		ratelimit.Quota{Limit: 60, Window: time.Minute, Burst: 10})
	check(err)
	limit, err := httplimit.New(perUser, httplimit.WithKey(func(r *http.Request) (string, error) {
		user, _ := r.Context().Value(userKey{}).(string)
		if user == "" {
			return "", errors.New("nobody is logged in")
		}
		return user, nil
	}))
	check(err)
	handler := authenticate(limit(http.NotFoundHandler()))

	ask(handler, with("Authorization", "bob"))
	ask(handler, with("Authorization", "alice"))
	ask(handler)
	// Output:
	// 404 "per-user" has 9 left
	// 404 "per-user" has 9 left
	// 400
}

// Accounts with limits of their own, and a default for the others.
func ExampleNew_limitsPerAccount() {
	table, err := limits.NewMemory(
		limits.Limit{Resource: "api", Quotas: []ratelimit.Quota{ratelimit.PerMinute(1)}}, // the default
		limits.Limit{Resource: "api", Account: "acme", Quotas: []ratelimit.Quota{ratelimit.PerMinute(100)}},
	)
	check(err)
	perAccount, err := ratelimit.NewPolicyFrom("api", ratelimit.NewSlidingWindow(memory.New()), table.Source("api"))
	check(err)
	limit, err := httplimit.New(perAccount, httplimit.WithKey(httplimit.Header("X-Account")))
	check(err)
	handler := limit(http.NotFoundHandler())

	ask(handler, with("X-Account", "acme"))
	ask(handler, with("X-Account", "small"))
	ask(handler, with("X-Account", "small"))
	// Output:
	// 404 "api" has 99 left
	// 404 "api" has 0 left
	// 429 "api" has 0 left
}

// Only failed logins count, for the address and for the account.
func ExampleWithCountIf() {
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})

	limiter := ratelimit.NewSlidingWindow(memory.New())
	perAddress, err := ratelimit.NewPolicy("failures-per-address", limiter, ratelimit.PerHour(20))
	check(err)
	perAccount, err := ratelimit.NewPolicy("failures-per-account", limiter, ratelimit.PerHour(2))
	check(err)
	account := func(r *http.Request) (string, error) {
		return strings.ToLower(r.PostFormValue("account")), nil // an empty one is answered with 400
	}
	limit, err := httplimit.New(perAddress, httplimit.WithPolicy(perAccount, account),
		httplimit.WithCountIf(func(status int) bool { return status == http.StatusUnauthorized }))
	check(err)
	handler := limit(login)

	ask(handler, form("account=bob&password=correct horse"))
	ask(handler, form("account=bob&password=wrong"))
	ask(handler, form("account=Bob&password=wrong"))
	ask(handler, form("account=bob&password=correct horse"))
	ask(handler, form("account=alice&password=correct horse"))
	// Output:
	// 200 "failures-per-address" has 20 left, "failures-per-account" has 2 left
	// 401 "failures-per-address" has 20 left, "failures-per-account" has 2 left
	// 401 "failures-per-address" has 19 left, "failures-per-account" has 1 left
	// 429 "failures-per-address" has 18 left, "failures-per-account" has 0 left
	// 200 "failures-per-address" has 18 left, "failures-per-account" has 2 left
}

// Behind proxies in known networks.
func ExampleForwardedOutside() {
	perClient, err := ratelimit.NewPolicy("per-client", ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerMinute(2))
	check(err)

	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	limit, err := httplimit.New(perClient,
		httplimit.WithKey(httplimit.ForwardedOutside(proxies)),
		httplimit.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }))
	check(err)

	handler := limit(http.NotFoundHandler())
	ask(handler, from("10.0.0.1"), with("X-Forwarded-For", "192.0.2.1"))
	ask(handler, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.9, 192.0.2.1")) // made up
	ask(handler, from("10.0.0.1"), with("X-Forwarded-For", "203.0.113.8, 192.0.2.1"))
	ask(handler, from("10.0.0.1"), with("X-Forwarded-For", "unknown"))
	// Output:
	// 404 "per-client" has 1 left
	// 404 "per-client" has 0 left
	// 429 "per-client" has 0 left
	// 400
}

// Behind a known number of proxies, or a CDN with a header of its own.
func ExampleForwardedButN() {
	keys := map[string]httplimit.KeyFunc{
		"one proxy":  httplimit.ForwardedButN(0),
		"two":        httplimit.ForwardedButN(1),
		"Cloudflare": httplimit.TrustedHeader("CF-Connecting-IP"),
		"nginx":      httplimit.TrustedHeader("X-Real-IP", httplimit.IPv6Bits(56)),
	}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 192.0.2.1, 10.0.0.1")
	fmt.Println(keys["two"](r))
	r.Header.Set("X-Real-IP", "2001:db8:1:2ff::1")
	fmt.Println(keys["nginx"](r))
	// Output:
	// 192.0.2.1 <nil>
	// 2001:db8:1:200::/56 <nil>
}

// A limit is tried before it is put in force.
func ExampleWithDryRun() {
	perClient, err := ratelimit.NewPolicy("per-client", ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerMinute(1))
	check(err)

	limit, err := httplimit.New(perClient,
		httplimit.WithDryRun(func(r *http.Request, refusal httplimit.Refusal) {
			fmt.Printf("%s would have been refused by %q\n", r.URL.Path, refusal.Violated)
		}),
		httplimit.WithOnError(func(r *http.Request, err error) { fmt.Println(err) }))
	check(err)

	handler := limit(http.NotFoundHandler())
	ask(handler)
	ask(handler)
	// Output:
	// 404
	// / would have been refused by ["per-client"]
	// 404
}

// Each route has a limit for each client.
func ExampleRoute() {
	mux := http.NewServeMux()
	perRoute, err := ratelimit.NewPolicy("per-route", ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerMinute(5))
	check(err)

	limit, err := httplimit.New(perRoute, httplimit.WithKey(httplimit.Join(
		httplimit.Route(mux), httplimit.PeerAddr())))
	check(err)
	mux.HandleFunc("GET /items/{id}", http.NotFound)
	mux.HandleFunc("GET /users/{id}", http.NotFound)
	handler := limit(mux)

	ask(handler, path("/items/1"))
	ask(handler, path("/items/2"))
	ask(handler, path("/users/1"))
	// Output:
	// 404 "per-route" has 4 left
	// 404 "per-route" has 3 left
	// 404 "per-route" has 4 left
}

// Dear requests cost more.
func ExampleWithCost() {
	perClient, err := ratelimit.NewPolicy("per-client", ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerMinute(10))
	check(err)

	limit, err := httplimit.New(perClient, httplimit.WithCost(func(r *http.Request) int64 {
		if strings.HasPrefix(r.URL.Path, "/export") {
			return 5
		}
		return 1
	}))
	check(err)

	handler := limit(http.NotFoundHandler())
	ask(handler)
	ask(handler, path("/export"))
	// Output:
	// 404 "per-client" has 9 left
	// 404 "per-client" has 4 left
}

// A service that would rather serve than limit.
func ExampleWithFailOpen() {
	perClient, err := ratelimit.NewPolicy("per-client", ratelimit.NewSlidingWindow(nil), ratelimit.PerMinute(10))
	check(err)

	report := func(r *http.Request, err error) {
		fmt.Println("not limited:", errors.Is(err, ratelimit.ErrMisconfigured))
	}
	limit, err := httplimit.New(perClient, httplimit.WithFailOpen(), httplimit.WithOnError(report))
	check(err)

	ask(limit(http.NotFoundHandler()))
	// Output:
	// not limited: true
	// 404
}

// Webhooks go out within a limit for each receiver, and as each receiver asks.
func ExampleTransport() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer receiver.Close()
	ctx := context.Background()

	perReceiver, err := ratelimit.NewPolicy("webhooks", ratelimit.NewTokenBucket(memory.New()),
		ratelimit.Quota{Limit: 5, Window: time.Second, Burst: 20})
	check(err)
	client := &http.Client{
		Transport: &httplimit.Transport{Policy: perReceiver, Refuse: true}, // a worker has others to serve
		Timeout:   10 * time.Second,
	}
	deliver := func(ctx context.Context, url string) (again time.Duration, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"event": "paid"}`))
		if err != nil {
			return 0, err
		}
		response, err := client.Do(r)
		var limited *ratelimit.LimitedError
		var paused *httplimit.PausedError
		switch {
		case errors.As(err, &limited): // by us
			return limited.Decision.RetryAfter, nil
		case errors.As(err, &paused): // by the receiver
			return paused.RetryAfter, nil
		case err != nil:
			return 0, err
		}
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			return time.Minute, nil
		}
		return 0, nil
	}

	again, err := deliver(ctx, receiver.URL)
	fmt.Println(again, err)
	again, err = deliver(ctx, receiver.URL)
	fmt.Println(again.Round(time.Minute), err)
	// Output:
	// 1m0s <nil>
	// 2m0s <nil>
}

// A client that waits its turn, and sends again what it may.
func ExampleTransport_wait() {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()

	policy, err := ratelimit.NewPolicy("their-api", ratelimit.NewListLimiter(memory.New()),
		ratelimit.Per(25, 5*time.Second), ratelimit.Per(300, time.Minute))
	check(err)
	client := &http.Client{Transport: &httplimit.Transport{Policy: policy, Retries: 3}}

	response, err := client.Get(api.URL)
	check(err)
	fmt.Println(response.Status)
	// Output: 404 Not Found
}

// check stands for what a program does about an error when it starts.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// ask prints how a request was answered, and what was told of the quotas.
func ask(handler http.Handler, change ...func(*http.Request)) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	line := fmt.Sprint(w.Code)
	for i, item := range strings.Split(w.Header().Get("RateLimit"), ", ") {
		name, params, ok := strings.Cut(item, ";r=")
		left, _, _ := strings.Cut(params, ";")
		if ok {
			line += fmt.Sprintf("%s %s has %s left", []string{"", ","}[min(i, 1)], name, left)
		}
	}
	fmt.Println(line)
}

func from(addr string) func(*http.Request) { return peer(addr + ":1234") }

func with(name, value string) func(*http.Request) { return header(name, value) }

func path(path string) func(*http.Request) {
	return func(r *http.Request) { r.URL.Path = path }
}

func form(body string) func(*http.Request) {
	return func(r *http.Request) {
		post := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body))
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		*r = *post
	}
}
