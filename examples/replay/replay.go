package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

const (
	// redisTimeout is longer than a service would wait: nobody waits for a single
	// answer here, and a server that is slow for once should not end a long run.
	redisTimeout = 5 * time.Second
	// resetBatch is how many counters are deleted in one call.
	resetBatch = 500
)

// A replay asks the limiters about one request after the other, and keeps count.
type replay struct {
	*config
	limiters []ratelimit.Limiter // one for each of the strategies

	client    *redis.Client // nil if the counters are in memory
	namespace string        // of the counters in Redis

	requests, malformed int64
	keys                map[string]*tally
}

// A tally is the count for one key.
type tally struct {
	requests int64
	refused  []int64 // by each of the limiters
}

func newReplay(ctx context.Context, c *config) (*replay, error) {
	r := &replay{config: c, keys: make(map[string]*tally)}
	store, err := r.openStorage()
	if err != nil {
		return nil, err
	}
	for _, s := range c.strategies {
		r.limiters = append(r.limiters, s.open(store))
	}
	// A question that changes nothing: a server that can't answer is not the fault
	// of the first line.
	if _, _, err := r.limiters[0].CheckWithinQuotas(ctx, c.ask("any", 0)); err != nil {
		_ = r.close()
		return nil, err
	}
	return r, nil
}

func (r *replay) openStorage() (storage.Storage, error) {
	if r.storage == "memory" {
		// A live counter that is put out for want of room starts again at nothing,
		// and admits what should be refused. So the bound is one that no log
		// reaches: the report needs all of the keys in memory anyway.
		return memory.New(memory.WithMaxKeys(1 << 30)), nil
	}
	redis.SetLogger(silent{}) // the errors of the calls say it all
	// With one try to dial, a wrong address is told of at once.
	r.client = redis.NewClient(&redis.Options{Addr: r.redis, DialerRetries: 1})
	// No other run, earlier or at the same time, has these counters.
	r.namespace = "replay-" + strings.ToLower(rand.Text())
	return redisstore.New(r.client, redisstore.WithNamespace(r.namespace), redisstore.WithTimeout(redisTimeout))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// run replays the log to its end, or to the first failure.
func (r *replay) run(l *log, notes *notes) error {
	defer notes.clear()
	for {
		line, err := l.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case len(line) == 0:
			continue
		}
		e, err := parseLine(string(line))
		if err != nil {
			r.malformed++
			notes.malformed(l.line, line, err)
		} else if err := r.replay(e); err != nil {
			return fmt.Errorf("line %d of the log: %w", l.line, err)
		}
		notes.progress(l)
	}
}

// replay asks each of the limiters for 1 unit for a request.
//
// An interrupt ends what is between the calls, and not a call: one that was given
// up on may still be executed, after its counter has been deleted.
func (r *replay) replay(e entry) error {
	key := r.keyOf(e)
	t := r.tally(key)
	r.requests++
	t.requests++
	requests := r.ask(key, 1)
	for i, limiter := range r.limiters {
		grants, err := limiter.CheckAndUseQuotas(context.Background(), requests, ratelimit.At(e.at))
		if err != nil {
			return err
		}
		t.refused[i] += 1 - grants[0].Granted
	}
	return nil
}

func (r *replay) tally(key string) *tally {
	t := r.keys[key]
	if t == nil {
		t = &tally{refused: make([]int64, len(r.limiters))}
		r.keys[strings.Clone(key)] = t // the key is a part of its line, which can go
	}
	return t
}

// close leaves no counters behind in Redis.
func (r *replay) close() error {
	if r.client == nil {
		return nil
	}
	defer r.client.Close()
	for keys := range slices.Chunk(slices.Collect(maps.Keys(r.keys)), resetBatch) {
		var requests []ratelimit.RequestedQuota
		for _, key := range keys {
			requests = append(requests, r.ask(key, 0)...)
		}
		for _, limiter := range r.limiters {
			if err := limiter.Reset(context.Background(), requests); err != nil {
				return fmt.Errorf("counters %s:* are left to expire: %w", r.namespace, err)
			}
		}
	}
	return nil
}
