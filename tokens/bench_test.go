package tokens_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

func BenchmarkMemory(b *testing.B) { benchmark(b, tokens.NewMemory()) }

func BenchmarkRedis(b *testing.B) {
	store, err := redistokens.New(redistest.Start(b).Client(b))
	require.NoError(b, err)
	benchmark(b, store)
}

// benchmark is the life of a token, and a refusal, at accounts with 10 and with 1,000
// places.
func benchmark(b *testing.B, store tokens.Store) {
	for _, limit := range []int64{10, 1000} {
		p, err := tokens.New(fmt.Sprint(limit), store, tokens.Fixed(limit))
		require.NoError(b, err)
		for range limit {
			_, err := p.Reserve(b.Context(), "full")
			require.NoError(b, err)
		}
		for range limit - 1 {
			_, err := p.Reserve(b.Context(), "busy")
			require.NoError(b, err)
		}
		var n atomic.Int64
		b.Run(fmt.Sprintf("ReserveBindRelease/%d", limit), func(b *testing.B) {
			for b.Loop() {
				r, err := p.Reserve(b.Context(), "busy")
				require.NoError(b, err)
				resource := fmt.Sprint("i-", n.Add(1))
				require.NoError(b, r.Bind(b.Context(), resource))
				_, err = p.Release(b.Context(), resource)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("ReserveCancel/%d", limit), func(b *testing.B) {
			for b.Loop() {
				r, err := p.Reserve(b.Context(), "busy")
				require.NoError(b, err)
				require.NoError(b, r.Cancel(b.Context()))
			}
		})
		b.Run(fmt.Sprintf("Exhausted/%d", limit), func(b *testing.B) {
			for b.Loop() {
				_, err := p.Reserve(b.Context(), "full")
				require.ErrorIs(b, err, tokens.ErrExhausted)
			}
		})
	}
}
