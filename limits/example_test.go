package limits_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/limits/redistable"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

var ctx = context.Background()

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	table, err := limits.NewMemory(
		limits.Limit{Resource: "search", Quotas: []ratelimit.Quota{ratelimit.PerMinute(2)}}, // the default
		limits.Limit{Resource: "search", Account: "acme", Quotas: []ratelimit.Quota{ratelimit.PerMinute(100), ratelimit.PerDay(5000)}},
		limits.Limit{Resource: "search", Account: "spammer", Quotas: []ratelimit.Quota{ratelimit.PerMinute(0)}}, // blocked
	)
	check(err)
	limiter := ratelimit.NewSlidingWindow(memory.New())
	search, err := ratelimit.NewPolicyFrom("search", limiter, table.Source("search"))
	check(err)

	for _, account := range []string{"acme", "spammer", "someone"} {
		d, err := search.Allow(ctx, account)
		check(err)
		fmt.Println(account, d.Allowed, d.Remaining)
	}
	// Output:
	// acme true 99
	// spammer false 0
	// someone true 1
}

func ExampleOpenFile() {
	path := filepath.Join(os.TempDir(), "limits-example.yaml")
	check(os.WriteFile(path, []byte("limits:\n- {resourceName: search, limit: 5, windowSec: 10}\n"), 0o600))
	defer os.Remove(path)

	table, err := limits.OpenFile(path)
	check(err)
	go func() {
		_ = table.Watch(ctx, time.Second, func(err error) { log.Println("limits read again:", err) })
	}()
	limiter := ratelimit.NewSlidingWindow(memory.New())
	search, err := ratelimit.NewPolicyFrom("search", limiter, table.Source("search"))
	check(err)

	fmt.Println(search.Name())
}

func ExampleNewCache() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store, err := redisstore.New(client)
	check(err)

	table, err := redistable.New(client)
	check(err)
	cache, err := limits.NewCache(table,
		limits.WithAge(30*time.Second),
		limits.WithMaxEntries(100_000),
		limits.WithFetchTimeout(250*time.Millisecond),
		limits.WithOnError(func(err error) { log.Println(err) }),
	)
	check(err)
	defer cache.Close()
	go func() { _ = table.Listen(ctx, cache) }()

	limiter := ratelimit.NewSlidingWindow(store)
	search, err := ratelimit.NewPolicyFrom("search", limiter, cache.Source("search"))
	check(err)

	fmt.Println(search.Name())
}

func ExampleLoader() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	table, err := redistable.New(client)
	check(err)

	list, err := limits.ReadFile("limits.yaml")
	check(err)
	loader := limits.Loader{Store: table, Service: "search-service"}
	plan, err := loader.Plan(ctx, list) // changes nothing
	check(err)
	fmt.Println(plan)
	report, err := loader.Load(ctx, list)
	check(err)
	fmt.Println(report)
}
