package main

import (
	"hash/maphash"
	"sync"
	"time"
)

// floorCases is what no limiter can do without: the clock, the hash, the lock, the map,
// the network.
func floorCases(o options) (report, error) {
	local := table{caption: "In this process, 1 goroutine, " + thousands(o.keys) + " keys. The ratio is to `Policy.Allow` of the sliding window.", columns: []string{"time", "ratio"}}
	parts := append([]contender[string]{sliding.inMemory(high, nil)}, localParts(o)...)
	parts[0].name = "Policy.Allow"
	err := local.addParts(o, parts, load[string]{name: "parts", items: userKeys(o.keys), goroutines: 1, batch: 64})
	if err != nil {
		return report{}, err
	}
	remote := table{caption: "On a redis-server on loopback. The ratio is to `Policy.Allow` there, of 1 goroutine.", columns: []string{"time", "ratio"}}
	return onRedis(func(s *redisServer) (report, error) {
		parts := s.remoteParts()
		err := remote.addParts(o, parts, load[string]{name: "parts", items: userKeys(o.keys), goroutines: 1, batch: 1})
		return report{tables: []table{local, remote}}, err
	})
}

// addParts adds a row for each contender, with the ratio to the first.
func (t *table) addParts(o options, cs []contender[string], l load[string]) error {
	results, err := compare(o, cs, l)
	if err != nil {
		return err
	}
	for _, r := range results {
		t.add(r.name, duration(r.time()), times(r.ratio(results[0])))
	}
	return nil
}

func localParts(o options) []contender[string] {
	seed := maphash.MakeSeed()
	var mu sync.Mutex
	pool := sync.Pool{New: func() any { return new([64]byte) }}
	numbers := make(map[string]*int64, o.keys)
	for _, key := range userKeys(o.keys) {
		numbers[key] = new(int64)
	}
	part := func(name string, do func(string) bool) contender[string] {
		return contender[string]{name: name, open: func() (bench[string], error) {
			return bench[string]{call: func(key string) (bool, error) { return do(key), nil }}, nil
		}}
	}
	base := time.Now()
	return []contender[string]{
		part("nothing: the loop around a call", func(string) bool { return true }),
		part("the clock: time.Since", func(string) bool { return time.Since(base) >= 0 }),
		part("the hash of a key: maphash.String", func(key string) bool { return maphash.String(seed, key)|1 > 0 }),
		part("a lock and its unlock, nobody else at it", func(string) bool {
			mu.Lock()
			defer mu.Unlock()
			return true
		}),
		part("an object of a pool and back", func(string) bool {
			pool.Put(pool.Get())
			return true
		}),
		part("a key looked up in a map", func(key string) bool { return numbers[key] != nil }),
	}
}

func (s *redisServer) remoteParts() []contender[string] {
	ours := s.ours(sliding, high, plainly, 1, nil)
	ours.name = "Policy.Allow"
	return []contender[string]{
		ours,
		s.contender("a round trip: PING", high, plainly, func(c goRedis) (bench[string], error) {
			return bench[string]{call: func(string) (bool, error) { return true, c.Ping(ctx).Err() }}, nil
		}),
		s.script("a script: an empty EVALSHA", emptyScript, high, plainly),
	}
}
