package redisstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/redisstore"
	"github.com/granule-limits/ratelimit/storage/storagetest"
)

func TestStorage(t *testing.T) {
	storagetest.Run(t, namespaces(redistest.Start(t).Client(t)))
}

func TestStorageOnMiniredis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	storagetest.Run(t, namespaces(client))
}

// namespaces opens stores that have one server and no counter in common. What is
// tested is no matter of speed: they wait long for the server.
func namespaces(client redisstore.Client) func(t *testing.T) storage.Storage {
	var opened atomic.Int64
	return func(t *testing.T) storage.Storage {
		namespace := "storagetest-" + strconv.FormatInt(opened.Add(1), 10)
		store, err := redisstore.New(client, redisstore.WithNamespace(namespace), redisstore.WithTimeout(10*time.Second))
		require.NoError(t, err)
		return store
	}
}
