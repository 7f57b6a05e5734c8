package redistable

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
)

// passing are the answers of a server that did not do it, and may soon.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "NOREPLICAS", "MISCONF",
	"max number of clients",
}

// failure is the error that a caller gets for one of go-redis. Of what changes
// something and was sent, and whose answer did not come, nobody knows what became.
func failure(err error, changes bool) error {
	var dial *net.OpError
	var answer redis.Error
	kind := ratelimit.ErrUnavailable
	switch {
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
	case errors.As(err, &answer):
		if !slices.ContainsFunc(passing, func(code string) bool { return redis.HasErrorPrefix(answer, code) }) {
			kind = ratelimit.ErrMisconfigured
		}
	case changes:
		kind = ratelimit.ErrIndeterminate
	}
	return fmt.Errorf("%w: %w", kind, err)
}
