// Quickstart asks a limiter for units under two quotas at once, and prints each
// answer: granted in full, in part, or refused until a time that it names.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"text/tabwriter"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const intro = `An organisation may use 100 units in 30 seconds, and no more than 10 of them
in 3 seconds. Each line is one request. It is granted what fits both quotas, and
where that is less than it asked for, the line names the quota that was reached
and says when the same request would be granted in full.

`

// quotas hold together. The sliding window counts in granules: the units of a
// granule stop counting all at once, when it leaves the window.
var quotas = []ratelimit.Quota{
	{Name: "100 per 30s", Limit: 100, Window: 30 * time.Second, Granularity: 10 * time.Second},
	{Name: "10 per 3s", Limit: 10, Window: 3 * time.Second, Granularity: time.Second},
}

// steps are the requests, each at its time since the start.
var steps = []struct {
	at        time.Duration
	requested int64
}{
	{0, 4},
	{500 * time.Millisecond, 8}, // only 6 of the 10 are left
	{1 * time.Second, 10},       // refused: retry after 2s
	{3 * time.Second, 10},       // 2s later

	// A steady 10 every 3 seconds fits the short quota, and uses up the long one.
	{6 * time.Second, 10},
	{9 * time.Second, 10},
	{12 * time.Second, 10},
	{15 * time.Second, 10},
	{18 * time.Second, 10},
	{21 * time.Second, 10},
	{24 * time.Second, 10},
	{27 * time.Second, 6},
	{27500 * time.Millisecond, 8}, // only 4 of the 100 are left
	{28 * time.Second, 1},         // refused: retry after 2s
	{30 * time.Second, 1},         // the units of the first 10 seconds no longer count
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stdout io.Writer) error {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	// A service leaves out At, and the storage's clock tells the time. Here times
	// are given, so that half a minute takes no time. Granules lie at whole
	// multiples of their width: a round start keeps the numbers round.
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

	fmt.Fprint(stdout, intro)
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "time\trequested\tgranted\tremaining\treached\tretry after\t")
	for _, s := range steps {
		grants, err := limiter.CheckAndUseQuotas(ctx, []ratelimit.RequestedQuota{
			{Prefix: "org:123", Requested: s.requested, Quotas: quotas},
		}, ratelimit.At(start.Add(s.at)))
		if err != nil {
			return err
		}
		g := grants[0] // one for each request of the call
		fmt.Fprintf(table, "%.1fs\t%d\t%d\t%d\t%s\t%s\t\n",
			s.at.Seconds(), s.requested, g.Granted, g.Remaining, reached(g), retryAfter(g))
	}
	return table.Flush()
}

// reached is the quota that made the grant smaller than the request. There can
// be several; one at a time is enough for these requests.
func reached(g ratelimit.GrantedQuota) string {
	if len(g.ReachedQuotas) == 0 {
		return "-"
	}
	return g.ReachedQuotas[0].Name
}

func retryAfter(g ratelimit.GrantedQuota) string {
	if g.RetryAfter == 0 { // granted in full: there is nothing to retry
		return "-"
	}
	return fmt.Sprintf("%.1fs", g.RetryAfter.Seconds())
}
