package redistable

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

//go:embed sync.lua
var syncScript string

// Resources are those in which a service may have limits; see limits.Store.
func (t *Table) Resources(ctx context.Context, service string) ([]string, error) {
	resources, err := t.client.SMembers(ctx, t.index(service)).Result()
	if err != nil {
		return nil, failure(err, false)
	}
	return resources, nil
}

// Sync makes a service's limits of one resource these; see limits.Store. It is one
// script, which reads all of the resource's hash. Before it, the resource is entered
// in the service's index, so that a later load finds the limits whatever happens in
// between.
func (t *Table) Sync(ctx context.Context, service, resource string, list []limits.Limit, dryRun bool) (limits.Report, error) {
	args, wanted, err := t.arguments(service, resource, list, dryRun)
	if err != nil {
		return limits.Report{}, err
	}
	if len(list) > 0 && !dryRun {
		if err := t.client.SAdd(ctx, t.index(service), resource).Err(); err != nil {
			return limits.Report{}, failure(err, false) // the index may have an entry too many
		}
	}
	cmd := once{redis.NewSliceCmd(ctx, args...)}
	if err := t.client.Process(ctx, cmd); err != nil {
		return limits.Report{}, failure(err, !dryRun)
	}
	return report(resource, cmd.Val(), wanted)
}

// A once is a command that go-redis does not send again by itself. Nothing would go
// wrong, but the second answer would be that all is as it should be, and the report
// would not tell what was done.
type once struct{ *redis.SliceCmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// arguments are those of sync.lua, and the quotas by account.
func (t *Table) arguments(service, resource string, list []limits.Limit, dryRun bool) ([]any, map[string][]ratelimit.Quota, error) {
	if service == "" {
		return nil, nil, fmt.Errorf("%w: the service is empty", limits.ErrInvalidLimit)
	}
	args := []any{"eval", syncScript, 1, t.hash(resource), service, dryRun, t.channel(), resource}
	wanted := make(map[string][]ratelimit.Quota, len(list))
	for _, l := range list {
		if err := l.Validate(); err != nil {
			return nil, nil, err
		}
		if _, ok := wanted[l.Account]; ok || l.Resource != resource {
			return nil, nil, fmt.Errorf("%w: account %q of resource %q is there twice, or not of resource %q", limits.ErrInvalidLimit, l.Account, l.Resource, resource)
		}
		value, err := encode(service, l.Quotas)
		if err != nil {
			return nil, nil, err
		}
		wanted[l.Account] = l.Quotas
		args = append(args, l.Account, value)
	}
	return args, wanted, nil
}

// report reads the reply of sync.lua.
func report(resource string, reply []any, wanted map[string][]ratelimit.Quota) (r limits.Report, err error) {
	bad := fmt.Errorf("%w: the script answered %.100q", ratelimit.ErrMisconfigured, fmt.Sprint(reply...))
	if len(reply)%3 != 1 {
		return r, bad
	}
	unchanged, ok := reply[0].(int64)
	if !ok {
		return r, bad
	}
	r.Unchanged = int(unchanged)
	for i := 1; i < len(reply); i += 3 {
		action, ok1 := reply[i].(string)
		account, ok2 := reply[i+1].(string)
		before, ok3 := reply[i+2].(string)
		if !ok1 || !ok2 || !ok3 {
			return limits.Report{}, bad
		}
		c := limits.Change{Action: limits.Action(action), Resource: resource, Account: account, New: wanted[account]}
		owner, old, err := decode(before)
		if err == nil {
			c.Old = old
		}
		if c.Action == limits.Conflicted && err == nil {
			c.Owner = owner
		}
		r.Changes = append(r.Changes, c)
	}
	return r, nil
}
