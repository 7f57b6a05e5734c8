package dynamostore_test

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

// Transactions and the TTL are the front's in the other tests. Here they are
// those of moto (pip install 'moto[server]'), which has been written by others,
// but for tests that make one request at a time.
func TestMoto(t *testing.T) {
	path, err := exec.LookPath("moto_server")
	if err != nil {
		t.Skip("no moto_server on the PATH: transactions are tested on our own emulation alone")
	}
	addr, err := startProcess(t, path, "-H", "127.0.0.1", "-p")
	if err != nil {
		t.Skip(err)
	}
	client := newClient(t, addr)
	for range 2 {
		require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	}
	store := open(t, client)
	limitertest.RunScripts(t, func(t *testing.T, strategy string) ratelimit.Limiter {
		return limitertest.Strategies[strategy](store)
	})

	limiter := ratelimit.NewSlidingWindow(store)
	for i := range int64(3) {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a", "b", "a"), ratelimit.At(noon))
		require.NoError(t, err)
		require.Equal(t, []int64{998 - 2*i, 999 - i, 998 - 2*i}, []int64{grants[0].Remaining, grants[1].Remaining, grants[2].Remaining})
	}
	// A store that does not see others write is stale in its transaction and its put.
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		behind := ratelimit.NewSlidingWindow(open(t, &beforehand{Client: client, do: sync.OnceFunc(func() {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
			require.NoError(t, err)
		})}))
		before := 1000 - used(t, limiter, "a")
		grants, err := behind.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
		require.NoError(t, err)
		require.EqualValues(t, before-2, grants[0].Remaining)
		require.Equal(t, before-2, 1000-used(t, limiter, "a"))
	}
	require.NoError(t, limiter.Reset(t.Context(), ask(0, "a", "b")))
	require.Zero(t, used(t, limiter, "a", "b"))
}
