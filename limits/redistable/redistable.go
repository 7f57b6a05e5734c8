// Package redistable keeps a table of limits in Redis, which a fleet of processes
// shares. A limits.Loader fills it; a limits.Cache goes before it, and Listen tells
// the cache of changes at once.
//
//	table, err := redistable.New(client)
//	cache, err := limits.NewCache(table)
//	go table.Listen(ctx, cache)
//	perAccount, err := ratelimit.NewPolicyFrom("search", limiter, cache.Source("search"))
//
// # Keys
//
// <namespace>:limits:{<resource>} is a hash: from an account, or "" for the default,
// to its quotas and the service that they belong to, as JSON. Names are escaped as
// in a URL. <namespace>:limits-of:{<service>} is the set of the resources in which a
// service may have limits; it only grows. <namespace>:limits-changed is the channel
// on which changes are told. No key has an expiry.
package redistable

import (
	"context"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/limits"
)

const defaultNamespace = "ratelimit"

// A Table is a table of limits in Redis. A lookup is one HMGET: put a limits.Cache
// before it.
//
// Errors wrap ratelimit.ErrUnavailable if Redis could not be reached or would not
// serve the call, and ratelimit.ErrMisconfigured if somebody has to mend something:
// a permission, a key of another type, an entry that is no limit.
//
// Tables are safe for concurrent use. They do not close their client.
type Table struct {
	client    redis.UniversalClient
	namespace string
	onError   func(error)
}

var _ limits.Store = (*Table)(nil)

// An Option changes a Table.
type Option func(*Table)

// WithNamespace is what all keys begin with, before a colon; "ratelimit" if not
// given.
func WithNamespace(namespace string) Option {
	return func(t *Table) { t.namespace = namespace }
}

// WithOnError is told what keeps Listen from listening, each time that it tries.
func WithOnError(f func(error)) Option {
	return func(t *Table) { t.onError = f }
}

// New makes a table of a client: a *redis.Client, of one server or of Sentinel, or
// a *redis.ClusterClient. It sends nothing. The client should read from primaries: a
// replica may not know of a change yet when it is told. A redis.Ring is refused, as
// its keys move when a server goes down.
func New(client redis.UniversalClient, opts ...Option) (*Table, error) {
	t := &Table{client: client, namespace: defaultNamespace, onError: func(error) {}}
	for _, o := range opts {
		o(t)
	}
	if err := rediscall.Check("redistable", client, t.namespace, "their limits are not there"); err != nil {
		return nil, err
	}
	if t.onError == nil {
		return nil, fmt.Errorf("%w: redistable.WithOnError: the function is nil", ratelimit.ErrMisconfigured)
	}
	return t, nil
}

// hash is the key of a resource's limits. The name is the hash tag: nothing in it
// can end the tag early.
func (t *Table) hash(resource string) string {
	return t.namespace + ":limits:{" + url.QueryEscape(resource) + "}"
}

// index is the key of the resources of a service.
func (t *Table) index(service string) string {
	return t.namespace + ":limits-of:{" + url.QueryEscape(service) + "}"
}

func (t *Table) channel() string { return t.namespace + ":limits-changed" }

// Quotas are those of an account; see limits.Table.
func (t *Table) Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error) {
	fields := []string{account, ""}
	values, err := t.client.HMGet(ctx, t.hash(resource), fields...).Result()
	if err != nil {
		return nil, failure(err, false)
	}
	for i, v := range values {
		if text, ok := v.(string); ok {
			return quotasOf(resource, fields[i], text)
		}
	}
	return nil, fmt.Errorf("%w: %q has no default, and account %q no limit of its own", limits.ErrUnknownResource, resource, account)
}

func quotasOf(resource, account, text string) ([]ratelimit.Quota, error) {
	_, quotas, err := decode(text)
	if err == nil {
		err = limits.Limit{Resource: resource, Account: account, Quotas: quotas}.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: resource %q: the entry of account %q is no limit: %w", ratelimit.ErrMisconfigured, resource, account, err)
	}
	return quotas, nil
}
