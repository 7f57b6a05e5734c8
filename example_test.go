package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

var ctx = context.Background()

// The README shows these examples; TestREADME compares.

func Example() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	quotas := []ratelimit.Quota{
		{Limit: 100, Window: 30 * time.Second, Granularity: 10 * time.Second},
		{Limit: 10, Window: 3 * time.Second, Granularity: time.Second},
	}

	grants, err := limiter.CheckAndUseQuotas(ctx, []ratelimit.RequestedQuota{
		{Prefix: "org:123", Requested: 12, Quotas: quotas},
	})
	if err != nil {
		log.Fatal(err) // bad input, or a storage that failed
	}
	g := grants[0]
	fmt.Println(g.Granted, "granted,", g.Remaining, "left, reached:", g.ReachedQuotas[0].Limit, "per", g.ReachedQuotas[0].Window)
	// Output: 10 granted, 0 left, reached: 10 per 3s
}

func ExamplePolicy() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	perUser, err := ratelimit.NewPolicy("new-thread", limiter, ratelimit.PerMinute(1))
	if err != nil {
		log.Fatal(err)
	}

	for _, user := range []string{"bob", "bob", "alice"} {
		d, err := perUser.Allow(ctx, user)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Allowed)
	}
	// Output:
	// bob true
	// bob false
	// alice true
}

func ExampleLimiter_twoSteps() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	requests := []ratelimit.RequestedQuota{
		{Prefix: "org:123", Requested: int64(len(rows)), Quotas: []ratelimit.Quota{ratelimit.PerHour(3)}},
	}

	at, grants, err := limiter.CheckWithinQuotas(ctx, requests)
	if err != nil {
		log.Fatal(err)
	}
	inserted := insert(rows[:grants[0].Granted])
	grants[0].Granted = inserted // what failed is not charged
	if err := limiter.UseQuotas(ctx, requests, grants, at); err != nil {
		log.Fatal(err)
	}
	fmt.Println(inserted, "inserted and charged")
	// Output: 2 inserted and charged
}

var rows = []string{"a", "b", "", "d", "e"}

// insert is guarded work that sometimes fails.
func insert(rows []string) (inserted int64) {
	for _, r := range rows {
		if r != "" {
			inserted++
		}
	}
	return inserted
}

func ExampleNewSlidingWindow_redis() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", DialerRetries: 1})
	store, err := redisstore.New(client, redisstore.WithTimeout(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	limiter := ratelimit.NewSlidingWindow(store)
	_ = limiter // and from here on nothing is different
}

func ExamplePolicy_Wait() {
	limiter := ratelimit.NewListLimiter(memory.New())
	api, err := ratelimit.NewPolicy("their-api", limiter, ratelimit.Per(25, 5*time.Second), ratelimit.PerMinute(300))
	if err != nil {
		log.Fatal(err)
	}

	if err := api.Wait(ctx, "our-account"); err != nil {
		log.Fatal(err) // the context ended, or will too soon
	}
	fmt.Println("calling")
	// Output: calling
}

func ExamplePolicy_Do() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	logins, err := ratelimit.NewPolicy("reports", limiter, ratelimit.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	failed := errors.New("out of paper")

	for _, result := range []error{failed, nil, nil} {
		err := logins.Do(ctx, "bob", func(context.Context) error { return result })
		switch {
		case errors.Is(err, ratelimit.ErrLimited):
			fmt.Println("limited")
		case err != nil:
			fmt.Println("failed, not charged:", err)
		default:
			fmt.Println("done")
		}
	}
	// Output:
	// failed, not charged: out of paper
	// done
	// limited
}

func ExampleTogether() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	perUser, err := ratelimit.NewPolicy("user", limiter, ratelimit.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	perAddress, err := ratelimit.NewPolicy("address", limiter, ratelimit.PerMinute(1))
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		user, err := perUser.Request(ctx, "bob", 1)
		if err != nil {
			log.Fatal(err)
		}
		address, err := perAddress.Request(ctx, "192.0.2.7", 1)
		if err != nil {
			log.Fatal(err)
		}
		grants, err := limiter.CheckAndUseQuotas(ctx, []ratelimit.RequestedQuota{user, address}, ratelimit.Together())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(grants[0].Granted, grants[1].Granted, "remaining for bob:", grants[0].Remaining)
	}
	// Output:
	// 1 1 remaining for bob: 9
	// 0 0 remaining for bob: 9
}

// What was granted and not needed is given back.
func ExamplePolicy_Use() {
	ctx := context.Background()
	perAccount, err := ratelimit.NewPolicy("rows", ratelimit.NewSlidingWindow(memory.New()), ratelimit.PerHour(15))
	if err != nil {
		log.Fatal(err)
	}
	rows := make([]string, 10)
	insert := func(rows []string) int64 { return int64(len(rows)) - 3 } // of which three are refused

	d, err := perAccount.Take(ctx, "bob", 10)
	if err != nil {
		log.Fatal(err)
	}
	inserted := insert(rows[:d.Granted])
	err = perAccount.Use(ctx, "bob", inserted-d.Granted, ratelimit.At(d.At()))
	if err != nil {
		log.Fatal(err)
	}
	d, err = perAccount.Check(ctx, "bob", 10)
	fmt.Println("inserted", inserted, "remaining", d.Remaining, err)
	// Output: inserted 7 remaining 8 <nil>
}

func ExampleListLimiter_CheckNarrower() {
	limiter := ratelimit.NewListLimiter(memory.New())
	hourly := ratelimit.PerHour(10)
	request := []ratelimit.RequestedQuota{{Prefix: "bob", Requested: 2, Quotas: []ratelimit.Quota{hourly}}}
	if _, err := limiter.CheckAndUseQuotas(ctx, request); err != nil {
		log.Fatal(err)
	}

	for _, narrower := range []ratelimit.Quota{ratelimit.Per(5, 15*time.Minute), ratelimit.PerMinute(2)} {
		g, err := limiter.CheckNarrower(ctx, "bob", hourly, narrower)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(narrower.Limit, "per", narrower.Window, "has room:", g.Granted == 1)
	}
	// Output:
	// 5 per 15m0s has room: true
	// 2 per 1m0s has room: false
}

func ExampleQuota_Granules() {
	q := ratelimit.Quota{Limit: 100, Window: 30 * time.Second, Granularity: 10 * time.Second}
	for number := range q.Granules(time.Unix(129, 0)) {
		fmt.Println(number)
	}
	// Output:
	// 12
	// 11
	// 10
}
