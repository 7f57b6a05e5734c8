package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
)

//go:embed probe.lua
var probe string

// minVersion is the first Redis whose scripts may ask for the time and then
// write.
const minVersion = 5

// Check tells what of the set-up would break promises or fail calls later: a
// server that is too old, an eviction policy that throws counters away and so
// hands out fresh budgets, a missing permission. Call it at start-up. On a
// cluster it asks every primary.
//
// The error wraps ErrMisconfigured for each thing found, and ErrUnavailable if a
// server could not be asked. Check needs the permission for INFO and EVAL; it
// writes, and deletes, a key of its own.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.checkServer(ctx, s.client)
	}
	b := rediscall.Bind(ctx, s.timeout, s.timedOut)
	defer b.End()
	done := make(chan error, 1)
	go func() { // to ask where the primaries are can take as long as the client lets it
		done <- cluster.ForEachMaster(b, func(ctx context.Context, node *redis.Client) error {
			if err := s.checkServer(ctx, node); err != nil {
				return fmt.Errorf("%s: %w", node.Options().Addr, err)
			}
			return nil
		})
	}()
	err, _ := b.Wait(done)
	if err == nil || errors.Is(err, storage.ErrMisconfigured) || errors.Is(err, storage.ErrUnavailable) {
		return err
	}
	return unanswered(outcomeOf(err, nil), err)
}

// unanswered is the error of a question, which charges nothing.
func unanswered(o outcome, err error) error {
	if o == unknown {
		o = unsent
	}
	return failure(o, err)
}

func (s *Store) checkServer(ctx context.Context, client Client) error {
	b := rediscall.Bind(ctx, s.timeout, s.timedOut)
	defer b.End()
	on := &Store{client: client} // not the cluster's, which would choose a server
	info := redis.NewStringCmd(b, "info")
	if o, err := on.send(b, info, nil); err != nil {
		return unanswered(o, fmt.Errorf("INFO: %w", err))
	}
	return errors.Join(checkVersion(info.Val()), checkEviction(info.Val()), s.checkPermissions(b, on))
}

func checkVersion(info string) error {
	version := field(info, "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < minVersion {
		return fmt.Errorf("%w: the server is Redis %s, and scripts that ask for the time and then write need %d", storage.ErrMisconfigured, version, minVersion)
	}
	return nil
}

func checkEviction(info string) error {
	policy := field(info, "maxmemory_policy")
	if limit := field(info, "maxmemory"); limit == "" || limit == "0" || policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("%w: maxmemory-policy is %s: a server short of memory throws counters away, and what they count starts again at nothing; set it to noeviction", storage.ErrMisconfigured, policy)
}

// checkPermissions runs the probe, by its text and by its digest. On a cluster the key may be another server's:
// then this one has said nothing about permissions, nor has it refused.
func (s *Store) checkPermissions(b *rediscall.Bound, on *Store) error {
	for _, how := range [][2]string{{"eval", probe}, {"evalsha", digestOf(probe)}} {
		cmd := &command{IntSliceCmd: redis.NewIntSliceCmd(b, how[0], how[1], 1, s.namespace+":{probe}")}
		o, err := on.send(b, cmd, nil)
		if err != nil && !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK") {
			return unanswered(o, fmt.Errorf("running a script by %s: %w", strings.ToUpper(how[0]), err))
		}
	}
	return nil
}

// field is a field of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
