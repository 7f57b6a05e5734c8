package main

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/granule-limits/ratelimit/storage/redisstore"
)

var (
	//go:embed fixed_window.lua
	fixedWindow string
	//go:embed empty.lua
	emptyScript string
)

// A goRedis is a go-redis client, or its AutoPipeline.
type goRedis interface {
	redis.Cmdable
	redisstore.Client
	Watch(ctx context.Context, run func(*redis.Tx) error, keys ...string) error
}

// A way is how a library reaches the server.
type way struct {
	name string
	open func(*redis.Client) (goRedis, error)
}

var (
	plainly   = way{"", func(c *redis.Client) (goRedis, error) { return c, nil }}
	pipelined = way{", AutoPipeline", func(c *redis.Client) (goRedis, error) { return c.AutoPipeline() }}
)

// contender is a library on an empty server, through a client of its own with go-redis's
// default options.
func (s *redisServer) contender(name string, l limit, w way, open func(goRedis) (bench[string], error)) contender[string] {
	return contender[string]{name + w.name, l == low, func() (bench[string], error) {
		if err := s.empty(); err != nil {
			return bench[string]{}, err
		}
		client := redis.NewClient(&redis.Options{Addr: s.addr})
		b := bench[string]{}
		c, err := w.open(client)
		if err == nil {
			b, err = open(c)
		}
		b.close = func() { _ = client.Close() } // the AutoPipeline too
		if err != nil {
			b.close()
		}
		return b, err
	}}
}

// ours is a strategy of this library. Of the keys that are given every granule of the
// first quota is in use.
func (s *redisServer) ours(st strategy, l limit, w way, quotas int, busy []string) contender[string] {
	name := thisLibrary + ", " + count(quotas, "quota")
	return s.contender(name, l, w, func(c goRedis) (bench[string], error) {
		store, err := redisstore.New(c, redisstore.WithTimeout(10*time.Second)) // a busy machine is no failure
		if err != nil {
			return bench[string]{}, err
		}
		policy, err := st.policy(store, l, quotas)
		b := bench[string]{call: allow(policy)}
		if st.granular {
			b.prime = func() error { return fill(policy, busy, time.Now(), l.window/time.Duration(st.granules), st.granules) }
		}
		return b, err
	})
}

func (s *redisServer) redisRate(l limit, w way) contender[string] {
	return s.contender("redis_rate", l, w, func(c goRedis) (bench[string], error) {
		limiter := redis_rate.NewLimiter(c)
		rate := redis_rate.Limit{Rate: l.units, Burst: l.units, Period: l.window}
		return bench[string]{call: func(key string) (bool, error) {
			r, err := limiter.Allow(ctx, key, rate)
			return err == nil && r.Allowed == 1, err
		}}, nil
	})
}

func (s *redisServer) ulule(l limit, w way) contender[string] {
	return s.contender("ulule/limiter", l, w, func(c goRedis) (bench[string], error) {
		store, err := ululeredis.NewStore(c)
		if err != nil {
			return bench[string]{}, err
		}
		return bench[string]{call: callUlule(newUlule(store, l))}, nil
	})
}

func (s *redisServer) throttled(l limit) contender[string] {
	return s.contender("throttled", l, plainly, func(c goRedis) (bench[string], error) {
		client, ok := c.(redis.UniversalClient)
		if !ok {
			return bench[string]{}, errors.New("throttled takes a whole client")
		}
		store, err := goredisstore.NewCtx(client, "throttled:")
		if err != nil {
			return bench[string]{}, err
		}
		g, err := newThrottled(store, l)
		return bench[string]{call: callThrottled(g)}, err
	})
}

// rueidisScript is a script through rueidis, which puts the calls of all goroutines into
// pipelines by itself.
func (s *redisServer) rueidisScript(l limit) contender[string] {
	return contender[string]{"rueidis, fixed window", l == low, func() (bench[string], error) {
		if err := s.empty(); err != nil {
			return bench[string]{}, err
		}
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}})
		if err != nil {
			return bench[string]{}, err
		}
		script := rueidis.NewLuaScript(fixedWindow)
		args := fixedWindowArgs(l)
		return bench[string]{
			call: func(key string) (bool, error) {
				granted, err := script.Exec(ctx, client, []string{key}, args).AsInt64()
				return granted == 1, err
			},
			close: client.Close,
		}, nil
	}}
}

func fixedWindowArgs(l limit) []string {
	return []string{strconv.Itoa(l.units), strconv.FormatInt(l.window.Milliseconds(), 10)}
}

// script is a script through go-redis, by its hash and without anything around it.
func (s *redisServer) script(name, text string, l limit, w way, args ...any) contender[string] {
	return s.contender(name, l, w, func(c goRedis) (bench[string], error) {
		hash, err := c.ScriptLoad(ctx, text).Result()
		return bench[string]{call: func(key string) (bool, error) {
			granted, err := c.EvalSha(ctx, hash, []string{key}, args...).Int64()
			return granted == 1, err
		}}, err
	})
}
