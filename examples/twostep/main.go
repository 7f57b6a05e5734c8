// Twostep charges a quota for work that was done, and not for work that failed:
// it asks how many rows may be inserted, inserts them, and records how many
// really were.
//
//	go run ./examples/twostep
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"text/tabwriter"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const (
	prefix    = "org:123"
	batchSize = 10
)

var quotas = []ratelimit.Quota{ratelimit.PerHour(25)}

// A row is its number.
type row int

// A rowStore is a pretend database. It refuses every fifth row, as a real one
// refuses duplicates.
type rowStore struct{ rows []row }

// insert stores the rows that it can, and returns how many those were.
func (s *rowStore) insert(rows []row) (inserted int64) {
	for _, r := range rows {
		if r%5 != 0 {
			s.rows = append(s.rows, r)
			inserted++
		}
	}
	return inserted
}

func main() {
	limiter := ratelimit.NewSlidingWindow(memory.New())
	if err := run(context.Background(), os.Stdout, limiter, new(rowStore), numbered(30)); err != nil {
		log.Fatal(err)
	}
}

// numbered is the rows from 1 to n.
func numbered(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row(i + 1)
	}
	return rows
}

func run(ctx context.Context, stdout io.Writer, limiter ratelimit.Limiter, store *rowStore, rows []row) error {
	fmt.Fprintf(stdout, "There are %d rows to insert, and %d an hour are allowed. A row that fails is not\n"+
		"charged, and leaves its place to another.\n\n", len(rows), quotas[0].Limit)
	if err := insertAll(ctx, stdout, limiter, store, rows); err != nil {
		return err
	}
	left, err := remaining(ctx, limiter)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nremaining: %d of %d\n", left, quotas[0].Limit)
	return nil
}

// insertAll inserts rows in batches, until there are no more or none is allowed.
//
// Between the check and the use somebody else may be allowed the same units, and
// the two pass the limit together. Where it must hold, charge before the work,
// with CheckAndUseQuotas.
func insertAll(ctx context.Context, stdout io.Writer, limiter ratelimit.Limiter, store *rowStore, rows []row) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "asked\tallowed\tinserted\tcharged\t")
	for len(rows) > 0 {
		batch := rows[:min(batchSize, len(rows))]
		requests := []ratelimit.RequestedQuota{
			{Prefix: prefix, Requested: int64(len(batch)), Quotas: quotas},
		}
		at, grants, err := limiter.CheckWithinQuotas(ctx, requests)
		if err != nil {
			return err
		}
		allowed := grants[0].Granted
		inserted := store.insert(batch[:allowed])

		grants[0].Granted = inserted
		// What was inserted is charged whether or not the caller still waits, and as
		// of the check, however long the work took.
		if err := limiter.UseQuotas(context.WithoutCancel(ctx), requests, grants, at); err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t\n", len(batch), allowed, inserted, grants[0].Granted)
		if allowed == 0 {
			break // a service would go on after grants[0].RetryAfter
		}
		rows = rows[allowed:]
	}
	return table.Flush()
}

// remaining asks for no units, which tells how the quotas stand.
func remaining(ctx context.Context, limiter ratelimit.Limiter) (int64, error) {
	_, grants, err := limiter.CheckWithinQuotas(ctx, []ratelimit.RequestedQuota{
		{Prefix: prefix, Quotas: quotas},
	})
	if err != nil {
		return 0, err
	}
	return grants[0].Remaining, nil
}
