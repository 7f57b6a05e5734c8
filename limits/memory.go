package limits

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/granule-limits/ratelimit"
)

// A Memory is a table in this process. A lookup takes no lock and allocates
// nothing.
type Memory struct {
	resources atomic.Pointer[map[string]*resourceLimits]
}

// resourceLimits are the limits of one resource. They are never changed.
type resourceLimits struct {
	byDefault []ratelimit.Quota // nil: there is no default
	own       map[string][]ratelimit.Quota
}

var _ Table = (*Memory)(nil)

// NewMemory makes a table of limits. Those that Limit.Validate refuses, and two of
// the same resource and account, are refused.
func NewMemory(list ...Limit) (*Memory, error) {
	m := new(Memory)
	if err := m.Replace(list); err != nil {
		return nil, err
	}
	return m, nil
}

// Replace makes the table hold these limits and no others, in one step. If one is
// refused, as by NewMemory, nothing has changed.
func (m *Memory) Replace(list []Limit) error {
	if err := checkAll(list); err != nil {
		return err
	}
	resources := make(map[string]*resourceLimits)
	for _, l := range list {
		r := resources[l.Resource]
		if r == nil {
			r = &resourceLimits{own: make(map[string][]ratelimit.Quota)}
			resources[l.Resource] = r
		}
		if l.Account == "" {
			r.byDefault = slices.Clone(l.Quotas)
		} else {
			r.own[l.Account] = slices.Clone(l.Quotas)
		}
	}
	m.resources.Store(&resources)
	return nil
}

// Quotas are those of an account; see Table.
func (m *Memory) Quotas(_ context.Context, resource, account string) ([]ratelimit.Quota, error) {
	r := (*m.resources.Load())[resource]
	if r == nil {
		return nil, unknown(resource, account)
	}
	if quotas, ok := r.own[account]; ok {
		return quotas, nil
	}
	if r.byDefault == nil {
		return nil, unknown(resource, account)
	}
	return r.byDefault, nil
}

// Source is the quotas of a resource, for ratelimit.NewPolicyFrom. The policy's
// keys are the accounts.
func (m *Memory) Source(resource string) ratelimit.QuotaSource {
	return source{m, resource}
}

// A source is one resource of a table.
type source struct {
	table    Table
	resource string
}

func (s source) Quotas(ctx context.Context, key string) ([]ratelimit.Quota, error) {
	return s.table.Quotas(ctx, s.resource, key)
}

func unknown(resource, account string) error {
	return fmt.Errorf("%w: %q has no default, and account %q no limit of its own", ErrUnknownResource, resource, account)
}
