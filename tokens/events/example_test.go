package events_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/events"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A cluster has ended: its account gets the place back.
func Example() {
	ctx := context.Background()
	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
	check(err)
	err = clusters.Do(ctx, "acme", func(ctx context.Context, r *tokens.Reservation) error {
		return r.Bind(ctx, "j-1YONHTCP3YZKC")
	})
	check(err)

	manager, err := events.NewManager([]events.Processor{{
		Source:     "aws.emr",
		DetailType: "EMR Cluster State Change",
		Match:      events.Is("detail.state", "TERMINATED", "TERMINATED_WITH_ERRORS"),
		IDPath:     "detail.clusterId",
		Pool:       clusters,
	}})
	check(err)
	result, err := manager.Process(ctx, []byte(`{
		"id": "999cccaa-eaaa-0000-1111-123456789012",
		"source": "aws.emr",
		"detail-type": "EMR Cluster State Change",
		"detail": {"clusterId": "j-1YONHTCP3YZKC", "state": "TERMINATED"}
	}`))
	check(err)
	fmt.Println(result.Released)
	// Output: [j-1YONHTCP3YZKC]
}

// Events come by HTTP, for two kinds of resources.
func ExampleManager() {
	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
	check(err)
	machines, err := tokens.New("machines", tokens.NewMemory(), tokens.Fixed(100))
	check(err)

	ended := events.Or(
		events.Is("detail.state", "terminated", "shutting-down"),
		events.And(
			events.Is("detail.state", "stopped"),
			events.Where("detail.name", func(v any) bool {
				name, _ := v.(string)
				return !strings.HasPrefix(name, "debugging")
			}),
		),
	)
	manager, err := events.NewManager([]events.Processor{
		{Source: "aws.emr", Match: events.Is("detail.state", "TERMINATED"), IDPath: "detail.clusterId", Pool: clusters},
		{Source: "aws.ec2", Match: ended, IDPath: "detail.instance-id", Pool: machines},
	}, events.WithOnError(func(err error) { log.Println(err) }))
	check(err)

	mux := http.NewServeMux()
	mux.Handle("POST /events", manager) // behind what checks who sends
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second}

	fmt.Println(server.ReadTimeout)
	// Output: 5s
}
