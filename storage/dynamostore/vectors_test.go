package dynamostore_test

import (
	"testing"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
)

// The recorded answers of the ancestors, through DynamoDB.
func TestVectors(t *testing.T) {
	_, client := startFront(t)
	const dir = "../../../shared/vectors"
	limitertest.SlidingWindowVectors(t, dir, ratelimit.NewSlidingWindow(open(t, client)))
	limitertest.ListVectors(t, dir, ratelimit.NewListLimiter(open(t, client)))
}
