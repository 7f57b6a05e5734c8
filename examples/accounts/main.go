// Accounts limits three accounts by a file: one has a limit of its own, one is
// blocked, and one has the default. Edit the file while the program runs, and the
// limits change; break it, and they stay.
//
//	go run ./examples/accounts
//	$EDITOR examples/accounts/limits.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// accounts ask for a search each in every round.
var accounts = []string{"acme", "spammer", "someone"}

func main() {
	path := flag.String("limits", "examples/accounts/limits.yaml", "`file` of the limits")
	every := flag.Duration("every", time.Second, "`interval` between rounds")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *path, *every)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run searches until the context ends.
func run(ctx context.Context, stdout io.Writer, path string, every time.Duration) error {
	table, err := limits.OpenFile(path)
	if err != nil {
		return err
	}
	search, err := ratelimit.NewPolicyFrom("search", ratelimit.NewSlidingWindow(memory.New()), table.Source("search"))
	if err != nil {
		return err
	}
	read := make(chan error)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = table.Watch(ctx, every, func(err error) {
			select {
			case read <- err:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { <-watched }()

	rounds := time.NewTicker(every)
	defer rounds.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-read:
			told(stdout, err)
		case <-rounds.C:
			if err := round(ctx, stdout, search); err != nil {
				return err
			}
		}
	}
}

func told(stdout io.Writer, err error) {
	if err != nil {
		fmt.Fprintln(stdout, "the limits stay as they are:", err)
		return
	}
	fmt.Fprintln(stdout, "new limits")
}

// round lets each account search once. What it has used stays used when its limit
// changes.
func round(ctx context.Context, stdout io.Writer, search *ratelimit.Policy) error {
	for _, account := range accounts {
		d, err := search.Allow(ctx, account)
		if err != nil {
			return err
		}
		answer := "refused"
		if d.Allowed {
			answer = fmt.Sprintf("allowed, %d left", d.Remaining)
		}
		fmt.Fprintf(stdout, "%-8s %s\n", account, answer)
	}
	return nil
}
