// Package dynamostore keeps counters in a DynamoDB table, through
// aws-sdk-go-v2, so that a fleet of processes shares them without a Redis.
//
// DynamoDB runs no scripts: a call loads its counters, takes the step here, and
// saves them if nobody else has meanwhile; otherwise it starts again. That is
// exact, and slower the more callers want the same counter: docs/dynamodb.md has
// the measurements, the costs, and what to do about a counter in demand.
package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/granule-limits/ratelimit/storage"
)

// ErrThrottled is in the error of a call that DynamoDB would not serve because
// the table, one of its partitions or the account is over its throughput. It
// comes with storage.ErrUnavailable: nothing was charged.
var ErrThrottled = errors.New("dynamostore: throttled by DynamoDB")

const (
	defaultNamespace = "ratelimit"
	defaultTimeout   = time.Second
	defaultAttempts  = 20

	maxNamespace = 255 // bytes; keys of DynamoDB have room for 2,048
	maxCounters  = 100 // in a transaction of DynamoDB
)

// A Client is what the store needs of a *dynamodb.Client. The store does not
// close it, and has its retries switched off for its own calls.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	TransactGetItems(context.Context, *dynamodb.TransactGetItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

var _ Client = (*dynamodb.Client)(nil)

// A Store keeps counters in a table. All of its methods may be called from any
// number of goroutines.
type Store struct {
	client    Client
	table     string
	namespace string
	timeout   time.Duration
	attempts  int
	timedOut  error
	turns     *turns
}

var _ storage.Storage = (*Store)(nil)

// An Option changes a Store.
type Option func(*Store)

// WithNamespace is what all keys begin with, before a colon; "ratelimit" if not
// given, at most 255 bytes of UTF-8 without braces. Programs that share a table and must not share
// counters need different ones.
func WithNamespace(namespace string) Option {
	return func(s *Store) { s.namespace = namespace }
}

// WithTimeout bounds every call with all of its attempts; a second if not given.
// A context that ends earlier bounds it sooner. A single request that is not
// answered within a third of it counts as lost and is sent again: at most one of
// them takes effect.
func WithTimeout(d time.Duration) Option {
	return func(s *Store) { s.timeout = d }
}

// WithMaxAttempts bounds how often a call tries: again after another caller was
// faster, DynamoDB throttled it, or an answer was lost; 20 times if not given.
// Between attempts there is a random pause, of at most 5 ms after the first,
// twice as much after each further one, and never more than 100 ms.
func WithMaxAttempts(n int) Option {
	return func(s *Store) { s.attempts = n }
}

// New makes a store of a client and the name of a table, which CreateTable makes
// as it should be. New sends nothing.
func New(client Client, table string, opts ...Option) (*Store, error) {
	s := &Store{client: client, table: table, namespace: defaultNamespace, timeout: defaultTimeout, attempts: defaultAttempts, turns: newTurns()}
	for _, o := range opts {
		o(s)
	}
	switch v := reflect.ValueOf(client); {
	case client == nil, v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: dynamostore.New: the client is nil", storage.ErrMisconfigured)
	case table == "":
		return nil, fmt.Errorf("%w: dynamostore.New: the table has no name", storage.ErrMisconfigured)
	case s.namespace == "" || len(s.namespace) > maxNamespace || strings.ContainsAny(s.namespace, "{}") || !utf8.ValidString(s.namespace):
		return nil, fmt.Errorf("%w: dynamostore.WithNamespace: %.300q is empty, has a brace, is no UTF-8 or is longer than %d bytes", storage.ErrMisconfigured, s.namespace, maxNamespace)
	case s.timeout <= 0:
		return nil, fmt.Errorf("%w: dynamostore.WithTimeout: %v is not above zero", storage.ErrMisconfigured, s.timeout)
	case s.attempts <= 0:
		return nil, fmt.Errorf("%w: dynamostore.WithMaxAttempts: %d is not above zero", storage.ErrMisconfigured, s.attempts)
	}
	s.timedOut = fmt.Errorf("not done within dynamostore.WithTimeout(%v): %w", s.timeout, context.DeadlineExceeded)
	return s, nil
}

// Run executes a call; see storage.Storage. The clock of the storage is this
// process's wall clock: DynamoDB has none to offer.
func (s *Store) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	r, err := s.newRun(script, c)
	if err != nil {
		return err
	}
	defer r.end()
	return s.retry(ctx, r.round, &r.lost)
}

// Forget empties counters; see storage.Storage. All of them become unused, or none.
func (s *Store) Forget(ctx context.Context, keys []storage.Key) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if len(keys) == 0 {
		return nil
	}
	w, err := s.newForgetting(keys)
	if err != nil {
		return err
	}
	lost := false
	return s.retry(ctx, func(ctx context.Context) *failure {
		f := s.send(ctx, w)
		lost = f != nil && (lost || f.outcome == unknown)
		return f
	}, &lost)
}

func (s *Store) check(ctx context.Context) error {
	if s == nil {
		return fmt.Errorf("%w: dynamostore.Store is nil: make one with dynamostore.New", storage.ErrMisconfigured)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ratelimit: nothing done: %w", err)
	}
	return nil
}

func tooMany(n int) error {
	return fmt.Errorf("%w: a call over %d counters: a transaction of DynamoDB has room for %d: divide the call", storage.ErrMisconfigured, n, maxCounters)
}
