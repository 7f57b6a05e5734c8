package dynamostore_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
	"github.com/granule-limits/ratelimit/wrap"
)

var (
	ctx = context.Background()
	cfg aws.Config // of config.LoadDefaultConfig(ctx)
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A limiter whose counters are in a table.
func Example() {
	client := dynamodb.NewFromConfig(cfg)
	store, err := dynamostore.New(client, "counters")
	check(err)
	limiter := ratelimit.NewSlidingWindow(store)
	perUser, err := ratelimit.NewPolicy("export", limiter, ratelimit.PerHour(20))
	check(err)

	d, err := perUser.Allow(ctx, "alice")
	check(err)
	log.Println(d.Allowed, d.Remaining, d.RetryAfter)
}

// A table, made once by a tool that may make tables.
func ExampleCreateTable() {
	client := dynamodb.NewFromConfig(cfg)
	err := dynamostore.CreateTable(ctx, client, "counters")
	check(err)
}

// A counter that many want at once: what is refused is refused here, and the
// others of a process go together.
func Example_hotKey() {
	store, err := dynamostore.New(dynamodb.NewFromConfig(cfg), "counters")
	check(err)
	limiter := wrap.DenyCache(wrap.Coalesce(ratelimit.NewSlidingWindow(store)))
	perTenant, err := ratelimit.NewPolicy("tenant", limiter, ratelimit.PerMinute(5000))
	check(err)

	_, err = perTenant.Allow(ctx, "acme")
	check(err)
}

// A store that gives up sooner, in a namespace of its own.
func ExampleNew() {
	store, err := dynamostore.New(dynamodb.NewFromConfig(cfg), "counters",
		dynamostore.WithTimeout(300*time.Millisecond),
		dynamostore.WithMaxAttempts(5),
		dynamostore.WithNamespace("billing"),
	)
	check(err)

	limiter := ratelimit.NewTokenBucket(store)
	requests := []ratelimit.RequestedQuota{{Prefix: "alice", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(60)}}}
	_, err = limiter.CheckAndUseQuotas(ctx, requests)
	switch {
	case errors.Is(err, dynamostore.ErrThrottled):
		log.Println("the table needs more throughput; nothing was charged")
	case errors.Is(err, ratelimit.ErrUnavailable):
		log.Println("nothing was charged:", err)
	case errors.Is(err, ratelimit.ErrIndeterminate):
		log.Println("it may have been charged, once:", err)
	}
}
