package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/granule-limits/ratelimit"
)

// A Store is a table that the limits of several services are loaded into. Each
// limit belongs to the service that loaded it.
type Store interface {
	Table
	// Resources are those in which a service may have limits: no other has any.
	Resources(ctx context.Context, service string) ([]string, error)
	// Sync makes the limits of a service for one resource exactly these, in one step:
	// nobody ever sees a part of it, whatever fails. It leaves the limits of other services
	// alone; those that stand where this service wants to put one are Conflicts. With
	// dryRun it changes nothing, and tells the same.
	Sync(ctx context.Context, service, resource string, list []Limit, dryRun bool) (Report, error)
}

// An Action is what a load does to the limit of an account.
type Action string

// The actions.
const (
	Added      Action = "added"
	Changed    Action = "changed"
	Removed    Action = "removed"  // the service no longer lists it
	Conflicted Action = "conflict" // it is another service's, and was left alone
)

// A Change is one thing that a load did, or would do.
type Change struct {
	Action   Action
	Resource string
	Account  string            // "" is the resource's default
	Old, New []ratelimit.Quota // what was there and what is wanted, where there is any
	Owner    string            // whose limit a Conflicted one is; "" if what stands there is no limit
}

// String is the change in a line, such as
//
//	changed search acct-1: 10 per 1m0s -> 20 per 1m0s
func (c Change) String() string {
	account := c.Account
	if account == "" {
		account = "(default)"
	}
	what := describe(c.New)
	switch c.Action {
	case Changed:
		what = describe(c.Old) + " -> " + what
	case Removed:
		what = describe(c.Old)
	case Conflicted:
		what = fmt.Sprintf("%s of service %q stays", describe(c.Old), c.Owner)
		if c.Owner == "" {
			what = "what is there is no limit, and stays"
		}
	}
	return fmt.Sprintf("%s %s %s: %s", c.Action, c.Resource, account, what)
}

func describe(quotas []ratelimit.Quota) string {
	parts := make([]string, len(quotas))
	for i, q := range quotas {
		parts[i] = fmt.Sprintf("%d per %v", q.Limit, q.Window)
		if q.Granularity != 0 {
			parts[i] += fmt.Sprintf(" in %v", q.Granularity)
		}
		if q.Burst != 0 {
			parts[i] += fmt.Sprintf(" burst %d", q.Burst)
		}
		if q.Name != "" {
			parts[i] += fmt.Sprintf(" named %q", q.Name)
		}
		if q.PrefixOverride != "" {
			parts[i] += fmt.Sprintf(" shared as %q", q.PrefixOverride)
		}
	}
	return strings.Join(parts, ", ")
}

// A Report tells what a load did, or would do.
type Report struct {
	Changes   []Change // by resource and account
	Unchanged int      // limits that are there already
}

// String is a line for each change, and one for all that is unchanged.
func (r Report) String() string {
	var b strings.Builder
	for _, c := range r.Changes {
		fmt.Fprintln(&b, c)
	}
	fmt.Fprintf(&b, "unchanged: %d", r.Unchanged)
	return b.String()
}

// A Loader brings the limits of one service into a table that it may share with
// others. Loading the same again does nothing.
type Loader struct {
	Store   Store
	Service string // 1 to 256 bytes of UTF-8
}

// Load makes these the limits of the service: it adds, changes, and removes what is
// no longer listed. Bad input is refused before anything has changed.
//
// Each resource is a step of its own, in the order of their names. Where a step
// fails the ones before it stay done, and the Report tells them: load again. At any
// moment, and after a crash, every account has its old limit or its new one. If the
// error wraps ratelimit.ErrIndeterminate, the failed step may have been done.
func (l Loader) Load(ctx context.Context, list []Limit) (Report, error) {
	return l.sync(ctx, list, false)
}

// Plan tells what Load would do, and changes nothing.
func (l Loader) Plan(ctx context.Context, list []Limit) (Report, error) {
	return l.sync(ctx, list, true)
}

func (l Loader) sync(ctx context.Context, list []Limit, dryRun bool) (report Report, err error) {
	if err := l.check(list); err != nil {
		return report, err
	}
	byResource := make(map[string][]Limit)
	for _, limit := range list {
		byResource[limit.Resource] = append(byResource[limit.Resource], limit)
	}
	before, err := l.Store.Resources(ctx, l.Service)
	if err != nil {
		return report, fmt.Errorf("limits: the resources of service %q: %w", l.Service, err)
	}
	for _, limit := range list {
		before = append(before, limit.Resource)
	}
	slices.Sort(before)
	for _, resource := range slices.Compact(before) {
		step, err := l.Store.Sync(ctx, l.Service, resource, byResource[resource], dryRun)
		if err != nil {
			return report, fmt.Errorf("limits: resource %q of service %q: %w", resource, l.Service, err)
		}
		slices.SortFunc(step.Changes, func(a, b Change) int { return cmp.Compare(a.Account, b.Account) })
		report.Changes = append(report.Changes, step.Changes...)
		report.Unchanged += step.Unchanged
	}
	return report, nil
}

func (l Loader) check(list []Limit) error {
	if l.Store == nil {
		return fmt.Errorf("%w: the Store of the Loader is nil", ratelimit.ErrMisconfigured)
	}
	if l.Service == "" {
		return fmt.Errorf("%w: the Service of the Loader is empty", ErrInvalidLimit)
	}
	if err := checkName("service", l.Service); err != nil {
		return err
	}
	return checkAll(list)
}
