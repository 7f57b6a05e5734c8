package ratelimit

import "github.com/granule-limits/ratelimit/storage"

var hash = define(strategy{
	name:     "hash",
	lua:      []string{"granules.lua"},
	granular: true,
	Strategy: &granules{late: 1},
})

// NewHashLimiter counts in W/G + 1 buckets of width G: the current one and the
// W/G before it, so that the buckets always cover a whole window, wherever in its
// bucket now is. It never admits too much, with little memory, and in return
// frees what was used up to one bucket late.
//
// Promise: at most Limit units in every interval of length W.
//
// Source: the HashLimiter of rratelimit.
func NewHashLimiter(store storage.Storage) Limiter { return newLimiter(store, hash) }
