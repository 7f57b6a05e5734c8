package wrap_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/wrap"
)

var ctx = context.Background()

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// All three, in the order in which they belong.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()

	store, err := redisstore.New(client)
	check(err)
	limiter := wrap.DenyCache(
		wrap.Fallback(
			wrap.Coalesce(ratelimit.NewSlidingWindow(store)),
			wrap.WithMode(wrap.Local(4, ratelimit.NewSlidingWindow)),
		),
	)
	perUser, err := ratelimit.NewPolicy("api", limiter, ratelimit.PerMinute(100))
	check(err)

	fmt.Println(perUser.Name())
	// Output: api
}

// While Redis is down each of three instances grants a third of the limit.
func ExampleFallback() {
	primary := ratelimit.NewSlidingWindow(down{})

	limiter := wrap.Fallback(primary,
		wrap.WithMode(wrap.Local(3, ratelimit.NewSlidingWindow)),
		wrap.WithOnChange(func(down bool, cause error) { log.Println("rate limiter down:", down, cause) }),
	)
	perUser, err := ratelimit.NewPolicy("api", limiter, ratelimit.PerMinute(7))
	check(err)
	for range 3 {
		d, err := perUser.Allow(ctx, "bob")
		check(err)
		fmt.Println(d.Allowed, d.Degraded)
	}
	fmt.Printf("%+v\n", limiter.Stats())
	// Output:
	// true true
	// true true
	// false true
	// {Down:true Outages:1 Probes:0 Degraded:3}
}

// With one wrapped limiter logins are refused while Redis is down, and everything
// else is allowed.
func ExampleWithModeOf() {
	primary := ratelimit.NewSlidingWindow(down{})

	limiter := wrap.Fallback(primary, wrap.WithModeOf(func(r ratelimit.RequestedQuota) wrap.Mode {
		if strings.HasPrefix(r.Prefix, "login:") { // the keys of policy login
			return wrap.Deny()
		}
		return wrap.Allow()
	}))
	login, err := ratelimit.NewPolicy("login", limiter, ratelimit.PerMinute(5))
	check(err)
	search, err := ratelimit.NewPolicy("search", limiter, ratelimit.PerMinute(100))
	check(err)

	for _, policy := range []*ratelimit.Policy{login, search} {
		d, err := policy.Allow(ctx, "bob")
		check(err)
		fmt.Println(policy.Name(), d.Allowed)
	}
	// Output:
	// login false
	// search true
}

// A tenant whose thousand workers ask at the same time.
func ExampleCoalesce() {
	store := memory.New() // a redisstore.Store: in memory there is no round trip to share

	limiter := wrap.Coalesce(ratelimit.NewSlidingWindow(store))
	perTenant, err := ratelimit.NewPolicy("tenant", limiter, ratelimit.PerSecond(5000))
	check(err)
	d, err := perTenant.Allow(ctx, "acme")
	check(err)
	fmt.Println(d.Allowed, d.Remaining)
	// Output: true 4999
}

// Who was refused and goes on asking is answered without the storage.
func ExampleDenyCache() {
	store := memory.New()

	limiter := wrap.DenyCache(ratelimit.NewSlidingWindow(store),
		wrap.WithMaxHold(10*time.Second), // a Reset by another process is seen after 10 s at the latest
		wrap.WithMaxEntries(100_000),
	)
	perUser, err := ratelimit.NewPolicy("api", limiter, ratelimit.PerHour(1))
	check(err)
	for range 3 {
		d, err := perUser.Allow(ctx, "bob")
		check(err)
		fmt.Println(d.Allowed)
	}
	check(perUser.Reset(ctx, "bob")) // through the cache: seen at once
	d, err := perUser.Allow(ctx, "bob")
	check(err)
	fmt.Println(d.Allowed)
	// Output:
	// true
	// false
	// false
	// true
}

// down is a storage that is.
type down struct{}

func (down) Run(context.Context, *storage.Script, *storage.Call) error {
	return storage.ErrUnavailable
}

func (down) Forget(context.Context, []storage.Key) error { return storage.ErrUnavailable }
