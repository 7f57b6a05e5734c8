package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever has the turn at an item has it alone, however many items each wants and
// in whatever order, and nobody waits for ever.
func TestTurns(t *testing.T) {
	turns := newTurns()
	var at [8]int // a race, if two have the turn at one
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			g := rand.New(rand.NewPCG(uint64(i), 0))
			for range 200 {
				var items []*item
				for _, n := range g.Perm(len(at))[:1+g.IntN(3)] {
					items = append(items, &item{key: fmt.Sprint(n)})
				}
				done, _, err := turns.wait(context.Background(), items)
				if err != nil {
					t.Error(err)
					return
				}
				for _, it := range items {
					at[it.key[0]-'0']++
				}
				done()
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range at {
		total += n
	}
	require.GreaterOrEqual(t, total, 16*200)
}

// Who gives up while he waits leaves nothing taken behind.
func TestTurnsGivenUp(t *testing.T) {
	turns := newTurns()
	var all []*item
	for i := range 50 {
		all = append(all, &item{key: fmt.Sprint(i)})
	}
	for _, it := range all {
		done, waited, err := turns.wait(t.Context(), []*item{it})
		require.NoError(t, err)
		require.False(t, waited)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		_, waited, err = turns.wait(ctx, all)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, gone)
		require.True(t, waited)
		done()
	}
	done, waited, err := turns.wait(t.Context(), all)
	require.NoError(t, err)
	require.False(t, waited)
	done()
}
