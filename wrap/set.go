package wrap

import (
	"hash/maphash"
	"slices"

	"github.com/granule-limits/ratelimit"
)

// maxUnits is the most that a request can ask for.
const maxUnits = 1<<53 - 1

// The set of a call is the counters that it asks, and the limits by which: all of
// its requests but how many units, and the names. Calls of one set differ in
// nothing that matters to each other.

// hashSet is equal for calls of one set.
func hashSet(seed maphash.Seed, requests []ratelimit.RequestedQuota) uint64 {
	h := uint64(len(requests))
	for i := range requests {
		r := &requests[i]
		h = mix(h, maphash.String(seed, r.Prefix))
		for j := range r.Quotas {
			q := &r.Quotas[j]
			h = mix(mix(mix(mix(h, uint64(q.Limit)), uint64(q.Window)), uint64(q.Granularity)), uint64(q.Burst))
			if q.PrefixOverride != "" {
				h = mix(h, maphash.String(seed, q.PrefixOverride))
			}
		}
	}
	return h
}

// mix is a step of a hash: the multiplier is that of splitmix64.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0xbf58476d1ce4e5b9
	return h ^ h>>31
}

// sameSet tells whether two calls are of one set.
func sameSet(a, b []ratelimit.RequestedQuota) bool {
	return slices.EqualFunc(a, b, sameRequest)
}

func sameRequest(a, b ratelimit.RequestedQuota) bool {
	return a.Prefix == b.Prefix && slices.EqualFunc(a.Quotas, b.Quotas, sameQuota)
}

func sameQuota(a, b ratelimit.Quota) bool {
	a.Name, b.Name = "", ""
	return a == b
}

// cloneSet is a copy that does not change when its caller's slices do.
func cloneSet(requests []ratelimit.RequestedQuota) []ratelimit.RequestedQuota {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Quotas = slices.Clone(requests[i].Quotas)
	}
	return requests
}

// An owner is whose units a quota counts.
type owner struct {
	prefix string
	shared bool
}

func ownerOf(r *ratelimit.RequestedQuota, q *ratelimit.Quota) owner {
	if q.PrefixOverride != "" {
		return owner{q.PrefixOverride, true}
	}
	return owner{r.Prefix, false}
}

// spreads tells whether a request counts for several prefixes.
func spreads(r *ratelimit.RequestedQuota) bool {
	for j := range r.Quotas {
		if ownerOf(r, &r.Quotas[j]).prefix != ownerOf(r, &r.Quotas[0]).prefix {
			return true
		}
	}
	return false
}

// shares tells whether the a-th request of a call has the counter of the j-th
// quota of the b-th.
func shares(requests []ratelimit.RequestedQuota, a, b, j int) bool {
	if a == b {
		return true
	}
	q := &requests[b].Quotas[j]
	mine := ownerOf(&requests[b], q)
	for i := range requests[a].Quotas {
		other := &requests[a].Quotas[i]
		if other.Window == q.Window && ownerOf(&requests[a], other) == mine {
			return true
		}
	}
	return false
}

// plain tells whether it can be seen from outside which requests of a call share
// counters, and that they do so under one limit. Whether quotas of different
// Granularity are one counter only the strategy knows.
func plain(requests []ratelimit.RequestedQuota) bool {
	for a := range requests {
		for b := range a {
			for i := range requests[a].Quotas {
				for j := range requests[b].Quotas {
					p, q := &requests[a].Quotas[i], &requests[b].Quotas[j]
					if p.Window == q.Window && ownerOf(&requests[a], p) == ownerOf(&requests[b], q) && !sameQuota(*p, *q) {
						return false
					}
				}
			}
		}
	}
	return true
}
