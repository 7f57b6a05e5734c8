package ratelimit_test

import (
	"testing"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
)

// The recorded answers of the ancestors, through every storage.
func TestVectors(t *testing.T) {
	const dir = "../shared/vectors"
	teststore.Each(t, func(t *testing.T, store storage.Storage) {
		t.Run("sliding window", func(t *testing.T) {
			limitertest.SlidingWindowVectors(t, dir, ratelimit.NewSlidingWindow(store))
		})
		t.Run("list", func(t *testing.T) {
			limitertest.ListVectors(t, dir, ratelimit.NewListLimiter(store))
		})
	})
}
