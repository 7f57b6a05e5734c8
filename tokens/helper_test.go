package tokens_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

const hold, token = time.Hour, 10 * time.Hour

// A world is a store and its time.
type world struct {
	store   tokens.Store
	advance func(time.Duration)
	inexact time.Duration // how far its times can be from what was advanced
}

// pool is one of its own, with long spans, so that a slow machine is nothing to it.
func (w world) pool(t testing.TB, limit tokens.Limit, opts ...tokens.Option) *tokens.Pool {
	return w.named(t, rand.Text(), limit, opts...)
}

func (w world) named(t testing.TB, name string, limit tokens.Limit, opts ...tokens.Option) *tokens.Pool {
	p, err := tokens.New(name, w.store, limit, append([]tokens.Option{tokens.WithHold(hold), tokens.WithToken(token)}, opts...)...)
	require.NoError(t, err)
	return p
}

// worlds runs each test on every store.
func worlds(t *testing.T, tests map[string]func(t *testing.T, w world)) {
	t.Run("memory", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, world{tokens.NewMemory(), time.Sleep, 0}) })
			})
		}
	})
	onRedis := func(t *testing.T, client redistokens.Client, servers ...*redis.Client) {
		store, err := redistokens.New(client, redistokens.WithTimeout(10*time.Second))
		require.NoError(t, err)
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				test(t, world{store, func(d time.Duration) { age(t, d, servers...) }, time.Minute})
			})
		}
	}
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		onRedis(t, limited(t, server), server.Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 0)
		var servers []*redis.Client
		for _, s := range cluster.Servers {
			servers = append(servers, s.Client(t))
		}
		onRedis(t, cluster.Client(t), servers...)
	})
}

const permissions = "~tokens:* +evalsha +eval +time +get +set +pttl +del +pexpire +hget +hset +hdel +zadd +zrem +zscore +zcard +zrange +zrangebyscore"

// limited is a client with no more permissions than docs/tokens.md has.
func limited(t testing.TB, server *redistest.Server) *redis.Client {
	set := []any{"acl", "setuser", "limited", "on", ">secret"}
	for rule := range strings.FieldsSeq(permissions) {
		set = append(set, rule)
	}
	require.NoError(t, server.Client(t).Do(context.Background(), set...).Err())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limited", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// age makes time pass for all accounts on the servers: what is stored becomes older.
func age(t testing.TB, d time.Duration, servers ...*redis.Client) {
	const script = `
for _, key in ipairs(redis.call('KEYS', '*:deadlines')) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, ARGV[1], id) end
end
for _, key in ipairs(redis.call('KEYS', '*:resources')) do redis.call('HINCRBY', key, '', ARGV[1]) end`
	for _, server := range servers {
		err := server.Eval(context.Background(), script, nil, -d.Microseconds()).Err()
		require.ErrorIs(t, err, redis.Nil)
	}
}
