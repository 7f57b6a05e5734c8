package dynamostore_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
	"github.com/granule-limits/ratelimit/storage/storagetest"
)

func TestStorage(t *testing.T) {
	_, client := startFront(t)
	var opened atomic.Int64
	storagetest.Run(t, func(t *testing.T) storage.Storage {
		return open(t, client, dynamostore.WithNamespace("storagetest-"+strconv.FormatInt(opened.Add(1), 10)))
	})
}

func TestScripts(t *testing.T) {
	_, client := startFront(t)
	limitertest.RunScripts(t, func(t *testing.T, strategy string) ratelimit.Limiter {
		return limitertest.Strategies[strategy](open(t, client))
	})
}
