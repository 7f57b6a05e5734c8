// Outbound calls somebody else's API from several goroutines, and stays within
// the limits of that API by waiting: 25 calls in 5 seconds and 300 in 60. The API
// is a pretend one, which counts for itself and would refuse a call too many with
// 429.
//
//	go run ./examples/outbound
//	go run ./examples/outbound -calls 400 -workers 20   # over a minute
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// margin is added to the windows of the API. The limiter knows when a call sets
// out, the API when it arrives: a late arrival followed by quick ones is a window
// to the API that is shorter than ours. It is more than calls differ in how long
// they take to arrive.
const margin = 100 * time.Millisecond

// progressEvery is how many calls there are to a line of progress.
const progressEvery = 25

func main() {
	calls := flag.Int("calls", 75, "calls to make")
	workers := flag.Int("workers", 5, "goroutines that make them")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, newAPI(published...), *calls, *workers)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run makes the calls. The first error ends them all.
func run(ctx context.Context, stdout io.Writer, a *api, calls, workers int) error {
	if calls < 0 || workers < 1 {
		return errors.New("calls must not be negative, and there must be a worker")
	}
	client, err := newClient(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	start := time.Now()
	made := 0
	for callErr := range results(ctx, client, calls, workers) {
		if callErr != nil {
			if err == nil {
				err = callErr
			}
			cancel()
			continue // until the other workers have noticed
		}
		if made++; made%progressEvery == 0 {
			fmt.Fprintf(stdout, "%d calls after %v\n", made, elapsed(start))
		}
	}
	fmt.Fprintf(stdout, "\n%d calls made in %v by %d workers; as the API counted them,\n", made, elapsed(start), workers)
	for _, l := range a.limits {
		fmt.Fprintf(stdout, "at most %d in any %v, of %d allowed\n", l.most, l.window, l.calls)
	}
	return err
}

// newClient is a client that keeps to the API's limits, as they look from here,
// and to what the API says of them.
//
// The list limiter is exact: it holds in every window, wherever it begins, which
// is how the API counts. The sliding window can let a little more into a window
// that begins within a granule. The price is a log of up to 300 times, which is
// nothing for a single counter.
//
// The key is whom the API counts for, here the one account that all workers use.
func newClient(a *api) (*http.Client, error) {
	var quotas []ratelimit.Quota
	for _, l := range a.limits {
		quotas = append(quotas, ratelimit.Per(int64(l.calls), l.window+margin))
	}
	policy, err := ratelimit.NewPolicy("pretend-api", ratelimit.NewListLimiter(memory.New()), quotas...)
	if err != nil {
		return nil, err
	}
	account := func(*http.Request) (string, error) { return "our-account", nil }
	return &http.Client{Transport: &httplimit.Transport{Base: a, Policy: policy, Key: account}}, nil
}

// results has workers make the calls, and sends how each went.
func results(ctx context.Context, client *http.Client, calls, workers int) <-chan error {
	results := make(chan error)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for begun.Add(1) <= int64(calls) {
				err := call(ctx, client)
				results <- err
				if err != nil {
					return
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(results)
	}()
	return results
}

// call makes one call, when its turn has come.
func call(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example/", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the API refused: %s, retry after %s seconds", response.Status, response.Header.Get("Retry-After"))
	}
	return nil
}

func elapsed(since time.Time) time.Duration {
	return time.Since(since).Round(100 * time.Millisecond)
}
