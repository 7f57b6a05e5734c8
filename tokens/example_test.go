package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

var ctx = context.Background()

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// createCluster stands for the cloud.
func createCluster(context.Context) (string, error) { return "j-1YONHTCP3YZKC", nil }

// A place is reserved before the cluster exists, bound to it, and comes back when it
// is gone.
func Example() {
	account := "acme"

	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
	check(err)
	err = clusters.Do(ctx, account, func(ctx context.Context, r *tokens.Reservation) error {
		id, err := createCluster(ctx)
		if err != nil {
			return err // and the place is back
		}
		return r.Bind(ctx, id)
	})
	check(err)

	n, err := clusters.InUse(ctx, account)
	check(err)
	fmt.Println(n, "in use")

	released, err := clusters.Release(ctx, "j-1YONHTCP3YZKC") // knowing nothing but the id
	check(err)
	fmt.Println("released:", released)
	// Output:
	// 1 in use
	// released: true
}

// Many processes share the places in a Redis.
func Example_redis() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()

	store, err := redistokens.New(client, redistokens.WithTimeout(200*time.Millisecond))
	check(err)
	clusters, err := tokens.New("clusters", store, tokens.Fixed(10),
		tokens.WithHold(10*time.Minute), // longer than it takes to create a cluster
		tokens.WithToken(24*time.Hour),  // longer than a cluster lives
	)
	check(err)

	fmt.Println(clusters.Name())
	// Output: clusters
}

// What is told when no place is free.
func ExampleExhaustedError() {
	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(2))
	check(err)
	for range 2 {
		_, err = clusters.Reserve(ctx, "acme")
		check(err)
	}

	_, err = clusters.Reserve(ctx, "acme")
	if full, ok := errors.AsType[*tokens.ExhaustedError](err); ok {
		fmt.Printf("%d of %d in use, ask again in %v\n", full.InUse, full.Limit, full.RetryAfter.Round(time.Minute))
	}
	// Output: 2 of 2 in use, ask again in 5m0s
}

// Asked again with the same id, after a crash or a lost answer, ReserveAs takes no
// second place.
func ExamplePool_ReserveAs() {
	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
	check(err)

	for range 3 {
		_, err := clusters.ReserveAs(ctx, "acme", "job 17")
		check(err)
	}

	n, err := clusters.InUse(ctx, "acme")
	check(err)
	fmt.Println(n)
	// Output: 1
}

// A function tells the limit of each account. This is how one is made of a table of
// package limits: the first quota's limit is the number of places.
func ExampleLimit() {
	var table interface { // limits.Table has this method
		Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error)
	} = ofThree{}

	limit := func(ctx context.Context, account string) (int64, error) {
		quotas, err := table.Quotas(ctx, "clusters", account)
		if err != nil {
			return 0, err
		}
		return quotas[0].Limit, nil
	}
	clusters, err := tokens.New("clusters", tokens.NewMemory(), limit)
	check(err)

	for range 4 {
		_, err = clusters.Reserve(ctx, "acme")
		fmt.Println(errors.Is(err, tokens.ErrExhausted))
	}
	// Output:
	// false
	// false
	// false
	// true
}

type ofThree struct{}

func (ofThree) Quotas(context.Context, string, string) ([]ratelimit.Quota, error) {
	return []ratelimit.Quota{ratelimit.PerHour(3)}, nil
}

// What is held and bound, for an operator.
func ExamplePool_List() {
	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
	check(err)
	r, err := clusters.ReserveAs(ctx, "acme", "job 17")
	check(err)
	check(r.Bind(ctx, "j-1"))
	_, err = clusters.ReserveAs(ctx, "acme", "job 18")
	check(err)

	places, err := clusters.List(ctx, "acme")
	check(err)
	for _, p := range places {
		fmt.Printf("%s %q for %v\n", p.Reservation, p.Resource, time.Until(p.Ends).Round(time.Minute))
	}
	check(clusters.Reservation("acme", "job 18").Cancel(ctx)) // by its id, from any process
	// Output:
	// job 18 "" for 5m0s
	// job 17 "j-1" for 8h0m0s
}
