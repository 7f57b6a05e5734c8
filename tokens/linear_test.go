package tokens_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

func sortBy[T any, K cmp.Ordered](s []T, key func(T) K) {
	slices.SortStableFunc(s, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}

// An operation on an account, and what came of it: a number, an error or a bool, as text.
type operation struct{ what, id, resource string }

// The history of one account, with many goroutines at once, is one that a pool
// would have where one operation happens after the other.
func TestLinearizable(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testLinearizable(t, tokens.NewMemory()) })
	t.Run("redis", func(t *testing.T) { testLinearizable(t, redisStore(t, redistest.Start(t).Client(t))) })
	t.Run("cluster", func(t *testing.T) {
		testLinearizable(t, redisStore(t, redistest.StartCluster(t, 0).Client(t)))
	})
}

func redisStore(t *testing.T, client redistokens.Client) tokens.Store {
	store, err := redistokens.New(client, redistokens.WithTimeout(time.Minute))
	require.NoError(t, err)
	return store
}

func testLinearizable(t *testing.T, store tokens.Store) {
	const limit, goroutines, each = 2, 6, 12
	p, err := tokens.New("linear", store, tokens.Fixed(limit))
	require.NoError(t, err)
	for round := range 20 {
		account := fmt.Sprint("account ", round)
		var mu sync.Mutex
		var history []porcupine.Operation
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for range each {
					o := randomOperation(round)
					call := time.Now().UnixNano()
					answer := do(p, account, o)
					back := time.Now().UnixNano()
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: g, Input: o, Call: call, Output: answer, Return: back})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.True(t, porcupine.CheckOperations(linearModel(limit), history), "%v", history)
	}
}

// randomOperation is over few reservations, each with a resource of its own that any
// goroutine can release.
func randomOperation(round int) operation {
	n := rand.IntN(4)
	o := operation{id: fmt.Sprint(n), resource: fmt.Sprint(round, " ", n)}
	o.what = []string{"reserve", "reserve", "bind", "bind", "cancel", "release", "release", "in use"}[rand.IntN(8)]
	return o
}

func do(p *tokens.Pool, account string, o operation) string {
	ctx := context.Background()
	var err error
	switch o.what {
	case "reserve":
		_, err = p.ReserveAs(ctx, account, o.id)
	case "bind":
		err = p.Reservation(account, o.id).Bind(ctx, o.resource)
	case "cancel":
		err = p.Reservation(account, o.id).Cancel(ctx)
	case "release":
		released, err := p.Release(ctx, o.resource)
		return fmt.Sprint(released, err)
	case "in use":
		n, err := p.InUse(ctx, account)
		return fmt.Sprint(n, err)
	}
	return meaning(err)
}

// meaning is an error without what differs between stores.
func meaning(err error) string {
	for _, is := range []error{tokens.ErrExhausted, tokens.ErrReservationExpired, tokens.ErrAlreadyBound} {
		if errors.Is(err, is) {
			return is.Error()
		}
	}
	return fmt.Sprint(err)
}

// linearModel is the account as a map: reservation to resource, or to nothing.
func linearModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return map[string]string{} },
		Equal: func(a, b any) bool { return maps.Equal(a.(map[string]string), b.(map[string]string)) },
		Step: func(state, input, output any) (bool, any) {
			s, o := maps.Clone(state.(map[string]string)), input.(operation)
			return output == step(s, o, limit), s
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " ", output) },
	}
}

func step(s map[string]string, o operation, limit int) string {
	resource, taken := s[o.id]
	switch o.what {
	case "reserve":
		if !taken && len(s) >= limit {
			return meaning(tokens.ErrExhausted)
		}
		s[o.id] = resource
	case "bind":
		if !taken {
			return meaning(tokens.ErrReservationExpired)
		}
		s[o.id] = o.resource
	case "cancel":
		if resource != "" {
			return meaning(tokens.ErrAlreadyBound)
		}
		delete(s, o.id)
	case "release":
		if resource != "" {
			delete(s, o.id)
		}
		return fmt.Sprint(resource != "", error(nil))
	case "in use":
		return fmt.Sprint(len(s), error(nil))
	}
	return meaning(nil)
}
