// Package teststore opens each of the storages for tests.
package teststore

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// Each runs a test on every storage, empty: in memory, on miniredis, and on a
// real Redis.
func Each(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.New()) })
	t.Run("miniredis", func(t *testing.T) { test(t, Miniredis(t)) })
	t.Run("redis", func(t *testing.T) { test(t, Redis(t)) })
}

// Miniredis is a storage on a miniredis of its own.
func Miniredis(t testing.TB) storage.Storage {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return open(t, client)
}

// Redis is a storage on a redis-server of its own, as a user who has no more
// permissions than it needs.
func Redis(t testing.TB) storage.Storage {
	return open(t, redistest.Start(t).LimitedClient(t, namespace))
}

const namespace = "test"

func open(t testing.TB, client redisstore.Client) storage.Storage {
	// A busy machine is no fault of the storage.
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second), redisstore.WithNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	return store
}
