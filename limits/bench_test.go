package limits_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

// A lookup of what is there: of one account, and of 10,000 in turn.
func BenchmarkSource(b *testing.B) {
	m, err := limits.NewMemory(limits.Limit{Resource: "search", Quotas: perMinute(1)})
	require.NoError(b, err)
	cache := newCache(b, m, limits.WithAge(24*time.Hour))
	accounts := make([]string, 10_000)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("acct-%d", i)
	}
	type source = interface {
		Quotas(ctx context.Context, key string) ([]ratelimit.Quota, error)
	}
	for _, s := range []struct {
		name   string
		source source
	}{{"memory", m.Source("search")}, {"cache", cache.Source("search")}} {
		for _, n := range []int{1, len(accounts)} {
			b.Run(fmt.Sprintf("%s/%d accounts", s.name, n), func(b *testing.B) {
				b.ReportAllocs()
				ctx := context.Background()
				i := 0
				for b.Loop() {
					if i++; i >= n {
						i = 0
					}
					if _, err := s.source.Quotas(ctx, accounts[i]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(s.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.source.Quotas(context.Background(), "acct-1"); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
