package ratelimit

import (
	"context"
	"fmt"

	"github.com/granule-limits/ratelimit/storage"
)

var list = define(strategy{
	name:     "list",
	lua:      []string{"granules.lua"},
	Strategy: &granules{},
	// A log is a window whose granules are as fine as time itself.
	adapt: func(c *storage.Cell, _ Quota) { c.Granularity = 1 },
})

// A ListLimiter keeps a log of what was used and when: a unit counts while
// now - t < W. It is exact, and the log can be asked about narrower limits too;
// in return a counter may hold up to Limit entries, one for each distinct µs.
//
// Promise: at most Limit units in every half-open interval of length W.
//
// Source: the ListLimiter of rratelimit.
type ListLimiter struct{ core }

// NewListLimiter keeps its logs in the given storage.
func NewListLimiter(store storage.Storage) *ListLimiter {
	return &ListLimiter{core{store: store, strategy: list}}
}

// CheckNarrower asks the log kept for quota whether one more unit would fit a
// narrower limit: from one log of "10 an hour" also "5 in 15 minutes" and "2 a
// minute". The grant is of 1 unit or of none, and nothing changes. A narrower
// quota with a higher limit, a longer window or another PrefixOverride than the
// log's is ErrInvalidQuota.
func (l *ListLimiter) CheckNarrower(ctx context.Context, prefix string, quota, narrower Quota, opts ...CallOption) (GrantedQuota, error) {
	switch {
	case narrower.Limit > quota.Limit:
		return GrantedQuota{}, fmt.Errorf("%w: narrower Limit %d is above the log's %d", ErrInvalidQuota, narrower.Limit, quota.Limit)
	case narrower.Window > quota.Window:
		return GrantedQuota{}, fmt.Errorf("%w: narrower Window %v is longer than the log's %v", ErrInvalidQuota, narrower.Window, quota.Window)
	case narrower.PrefixOverride != quota.PrefixOverride:
		return GrantedQuota{}, fmt.Errorf("%w: narrower PrefixOverride %q is not the log's %q", ErrInvalidQuota, narrower.PrefixOverride, quota.PrefixOverride)
	}
	// The first request asks for nothing, by the log's own numbers, so that the
	// log is judged whole before it is read through the narrower ones.
	requests := []RequestedQuota{
		{Prefix: prefix, Quotas: []Quota{quota}},
		{Prefix: prefix, Quotas: []Quota{narrower}, Requested: 1},
	}
	c := newCall(storage.Check)
	defer c.free()
	if err := c.fill(l.strategy, requests, opts); err != nil {
		return GrantedQuota{}, err
	}
	c.Requests[1].Cells[0].Key = c.Requests[0].Cells[0].Key
	if err := l.run(ctx, &c.Call); err != nil {
		return GrantedQuota{}, err
	}
	return c.grants(requests)[1], nil
}
