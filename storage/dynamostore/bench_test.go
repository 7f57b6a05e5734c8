package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
	"github.com/granule-limits/ratelimit/wrap"
)

// BenchmarkContention has 32 goroutines ask for one key, of one process and of
// four; for one key through wrap.Coalesce; and for one key each: by the store's
// default options, of a dynalite as it is, and of one that is as far away as
// DynamoDB.
func BenchmarkContention(b *testing.B) {
	const goroutines = 32
	plain := func(l ratelimit.Limiter) ratelimit.Limiter { return l }
	for _, rtt := range []time.Duration{0, 5 * time.Millisecond} {
		for _, c := range []struct {
			name            string
			processes, keys int
			wrap            func(ratelimit.Limiter) ratelimit.Limiter
		}{
			{"one key", 1, 1, plain},
			{"one key, 4 processes", 4, 1, plain},
			{"one key, coalesced", 1, 1, wrap.Coalesce},
			{"one key, 4 processes, coalesced", 4, 1, wrap.Coalesce},
			{"32 keys", 1, goroutines, plain},
		} {
			b.Run(fmt.Sprintf("%s, %v away", c.name, rtt), func(b *testing.B) {
				_, direct := startFront(b)
				client := &distant{Client: direct, rtt: rtt}
				var limiters []ratelimit.Limiter
				for range c.processes {
					store, err := dynamostore.New(client, table)
					require.NoError(b, err)
					limiters = append(limiters, c.wrap(ratelimit.NewSlidingWindow(store)))
				}
				contend(b, limiters, goroutines, c.keys)
				b.ReportMetric(float64(client.writes.Load())/float64(b.N), "writes/op")
			})
		}
	}
}

func contend(b *testing.B, limiters []ratelimit.Limiter, goroutines, keys int) {
	var left, failed, slowest atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range goroutines {
		requests := []ratelimit.RequestedQuota{{Prefix: fmt.Sprint("user ", i%keys), Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(1 << 30)}}}
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				_, err := limiters[i%len(limiters)].CheckAndUseQuotas(context.Background(), requests)
				switch took := int64(time.Since(start)); {
				case errors.Is(err, ratelimit.ErrUnavailable), errors.Is(err, ratelimit.ErrIndeterminate):
					failed.Add(1)
				case err != nil:
					b.Error(err)
				case took > slowest.Load():
					slowest.Store(took)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(failed.Load())/float64(b.N)*100, "%failed")
	b.ReportMetric(float64(slowest.Load())/1e6, "ms-slowest")
}

// A distant client is some way off, and counts the writes.
type distant struct {
	dynamostore.Client
	rtt    time.Duration
	writes atomic.Int64
}

func (d *distant) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	time.Sleep(d.rtt)
	return d.Client.GetItem(ctx, in, opts...)
}

func (d *distant) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	d.writes.Add(1)
	time.Sleep(d.rtt)
	return d.Client.PutItem(ctx, in, opts...)
}
