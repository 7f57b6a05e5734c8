package memory_test

import (
	"testing"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/storagetest"
)

func TestStorage(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Storage { return memory.New() })
}
