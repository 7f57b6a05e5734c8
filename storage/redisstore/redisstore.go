// Package redisstore keeps counters in Redis, through go-redis v9, so that a
// fleet of processes shares them.
//
// A call is one script, run atomically in one round trip, and stamped by the
// server's clock; on a cluster one for each prefix. Every key has an expiry, at most an
// eighth of a window and a second after its counter is back to full.
package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
)

const (
	defaultNamespace = "ratelimit"
	defaultTimeout   = 100 * time.Millisecond

	// What was certainly not executed is tried again, after a pause that grows by
	// itself each time.
	maxAttempts = 4
	retryPause  = 4 * time.Millisecond
)

// A Client is what the store needs of a go-redis client: *redis.Client,
// *redis.ClusterClient and the Sentinel failover clients have it. The store does
// not close it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A Store keeps counters in Redis. All of its methods may be called from any
// number of goroutines.
type Store struct {
	client    Client
	namespace string
	digest    bool
	timeout   time.Duration
	timedOut  error
	hashes    sync.Map    // *storage.Script to the SHA-1 of its Lua
	clustered atomic.Bool // prefixes lie in different slots
	refusals  refusals
}

var _ storage.Storage = (*Store)(nil)

// An Option changes a Store.
type Option func(*Store)

// WithNamespace is what all keys begin with, before a colon; "ratelimit" if not
// given. Programs that share a Redis and must not share counters need different
// ones.
func WithNamespace(namespace string) Option {
	return func(s *Store) { s.namespace = namespace }
}

// WithTimeout bounds every call, whatever the options of the client are; 100 ms
// if not given. A context that ends earlier bounds it sooner.
func WithTimeout(d time.Duration) Option {
	return func(s *Store) { s.timeout = d }
}

// WithKeyDigest writes the SHA-256 of a prefix into its keys instead of the
// prefix, so that Redis, its logs and its monitors see no text of users. Who can
// guess a prefix, such as an address, can still tell that it is there.
func WithKeyDigest() Option {
	return func(s *Store) { s.digest = true }
}

// New makes a store of a client. It sends nothing; Check tells whether the
// server is as it should be. A redis.Ring is refused: when one of its servers goes
// down others take over its keys, which count from nothing, and count from there
// again when it comes back.
func New(client Client, opts ...Option) (*Store, error) {
	s := &Store{client: client, namespace: defaultNamespace, timeout: defaultTimeout}
	for _, o := range opts {
		o(s)
	}
	if err := rediscall.Check("redisstore", client, s.namespace, "their counters start again"); err != nil {
		return nil, err
	}
	var err error
	if s.timedOut, err = rediscall.TimedOut("redisstore", s.timeout); err != nil {
		return nil, err
	}
	if _, ok := client.(*redis.ClusterClient); ok {
		s.clustered.Store(true) // of others the first CROSSSLOT tells
	}
	return s, nil
}

// Run executes a call; see storage.Storage.
func (s *Store) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	b := rediscall.Bind(ctx, s.timeout, s.timedOut)
	defer b.End()
	if !s.clustered.Load() {
		err := s.runOne(b, script, c, s.keys(c))
		if err == nil || !redis.HasErrorPrefix(err, "CROSSSLOT") {
			return err
		}
		s.clustered.Store(true) // and nothing was executed
	}
	if parts := s.split(c); len(parts) > 1 {
		return s.runParts(b, script, c, parts)
	}
	return s.runOne(b, script, c, s.keys(c))
}

// runOne executes a call whose keys lie in one slot. What was certainly not
// executed is sent again, a few times.
func (s *Store) runOne(b *rediscall.Bound, script *storage.Script, c *storage.Call, keys []string) error {
	verb, text := evalsha, s.hash(script)
	for attempt := 1; ; attempt++ {
		cmd := newCommand(b, verb, text, keys, c)
		o, err := s.send(b, cmd, &cmd.ticket)
		o = o.of(c.Op)
		if err == nil {
			return decode(cmd.Val(), c)
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") && verb == evalsha {
			verb, text = eval, &script.Lua // which also loads it, for the calls that follow
			continue
		}
		if o != unsent || attempt >= maxAttempts || !b.Sleep(time.Duration(attempt)*retryPause) {
			return failure(o, err)
		}
	}
}

// Forget deletes counters; see storage.Storage.
func (s *Store) Forget(ctx context.Context, keys []storage.Key) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if len(keys) == 0 {
		return nil
	}
	b := rediscall.Bind(ctx, s.timeout, s.timedOut)
	defer b.End()
	names := make([]any, len(keys))
	for i := range keys {
		names[i] = s.Key(keys[i])
	}
	if !s.clustered.Load() {
		err := s.del(b, names)
		if !redis.HasErrorPrefix(err, "CROSSSLOT") {
			return err
		}
		s.clustered.Store(true)
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() { errs[i] = s.del(b, names[i:i+1]) })
	}
	wg.Wait()
	return join(errs...)
}

func (s *Store) del(b *rediscall.Bound, names []any) error {
	o, err := s.send(b, redis.NewIntCmd(b, append([]any{"del"}, names...)...), nil)
	if err != nil {
		return failure(o, err)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	if s == nil {
		return fmt.Errorf("%w: redisstore.Store is nil: make one with redisstore.New", storage.ErrMisconfigured)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ratelimit: nothing done: %w", err)
	}
	return nil
}

// hash is the name by which Redis knows a script that it has run before.
func (s *Store) hash(script *storage.Script) *string {
	if h, ok := s.hashes.Load(script); ok {
		return h.(*string)
	}
	digest := digestOf(script.Lua)
	h, _ := s.hashes.LoadOrStore(script, &digest)
	return h.(*string)
}

func digestOf(lua string) string {
	sum := sha1.Sum([]byte(lua))
	return hex.EncodeToString(sum[:])
}

// send sends a command, and tells of one that failed what became of it.
func (s *Store) send(b *rediscall.Bound, cmd redis.Cmder, t *ticket) (outcome, error) {
	err := rediscall.Do(b, s.client, cmd)
	if err == nil {
		return 0, nil
	}
	o := outcomeOf(err, t)
	if s.clustered.Load() && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		o = unsent // more often than the client follows: its nodes do not agree yet
	}
	return o, err
}
