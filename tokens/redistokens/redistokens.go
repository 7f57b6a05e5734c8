package redistokens

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
)

const (
	defaultNamespace = "tokens"
	defaultTimeout   = 100 * time.Millisecond
)

// A Client is what the store needs of a go-redis client: *redis.Client,
// *redis.ClusterClient and the Sentinel failover clients have it. The store does
// not close it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A Store keeps places in Redis. All of its methods may be called from any number
// of goroutines.
type Store struct {
	client    Client
	namespace string
	timeout   time.Duration
	timedOut  error
}

var _ tokens.Store = (*Store)(nil)

// An Option changes a Store.
type Option func(*Store)

// WithNamespace is what all keys begin with, before a colon; "tokens" if not given.
func WithNamespace(namespace string) Option {
	return func(s *Store) { s.namespace = namespace }
}

// WithTimeout bounds every operation, with all of its round trips, whatever the
// options of the client are; 100 ms if not given. A context that ends earlier
// bounds it sooner.
func WithTimeout(d time.Duration) Option {
	return func(s *Store) { s.timeout = d }
}

// New makes a store of a client. It sends nothing. A redis.Ring is refused: when one
// of its servers goes down others take over its keys, and give its places again.
func New(client Client, opts ...Option) (*Store, error) {
	s := &Store{client: client, namespace: defaultNamespace, timeout: defaultTimeout}
	for _, o := range opts {
		o(s)
	}
	if err := rediscall.Check("redistokens", client, s.namespace, "their places are given again"); err != nil {
		return nil, err
	}
	var err error
	if s.timedOut, err = rediscall.TimedOut("redistokens", s.timeout); err != nil {
		return nil, err
	}
	return s, nil
}

// begin refuses a context that has ended, and bounds an operation.
func (s *Store) begin(ctx context.Context) (*rediscall.Bound, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: redistokens.Store is nil: make one with redistokens.New", storage.ErrMisconfigured)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("tokens: nothing done: %w", err)
	}
	return rediscall.Bind(ctx, s.timeout, s.timedOut), nil
}
