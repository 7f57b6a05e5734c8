package rediscall

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/storage"
)

// Check refuses what New of a package must not be given. moved is what becomes of
// keys that a redis.Ring moves.
func Check(pkg string, client Client, namespace, moved string) error {
	_, isRing := client.(*redis.Ring)
	_, isPipeline := client.(*redis.Pipeline)
	switch v := reflect.ValueOf(client); {
	case client == nil, v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Errorf("%w: %s.New: the client is nil", storage.ErrMisconfigured, pkg)
	case isRing:
		return fmt.Errorf("%w: %s.New: a redis.Ring moves keys when a server goes down, and %s: use a cluster, or Sentinel", storage.ErrMisconfigured, pkg, moved)
	case isPipeline:
		return fmt.Errorf("%w: %s.New: a pipeline sends nothing before Exec: give the client itself, or its AutoPipeline", storage.ErrMisconfigured, pkg)
	case namespace == "" || strings.ContainsAny(namespace, "{}"):
		return fmt.Errorf("%w: %s.WithNamespace: %q is empty or has a brace", storage.ErrMisconfigured, pkg, namespace)
	}
	return nil
}

// TimedOut is why a call ended whose time was up. It refuses a time limit that is
// none.
func TimedOut(pkg string, timeout time.Duration) (expired, err error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("%w: %s.WithTimeout: %v is not above zero", storage.ErrMisconfigured, pkg, timeout)
	}
	return fmt.Errorf("no answer within %s.WithTimeout(%v): %w", pkg, timeout, context.DeadlineExceeded), nil
}
