package redistable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/limits"
	"github.com/granule-limits/ratelimit/limits/redistable"
)

// A model is a table as simple as it can be.
type model map[[2]string]owned

type owned struct {
	service string
	limit   int64
}

// sync does what a load of one resource should do, and tells it.
func (m model) sync(service, resource string, list []limits.Limit) (changes map[string]limits.Action, unchanged int) {
	changes = make(map[string]limits.Action)
	listed := make(map[string]bool)
	for _, l := range list {
		key := [2]string{resource, l.Account}
		old, there := m[key]
		want := owned{service, l.Quotas[0].Limit}
		listed[l.Account] = true
		switch {
		case old == want:
			unchanged++
			continue
		case !there:
			changes[l.Account] = limits.Added
		case old.service == service:
			changes[l.Account] = limits.Changed
		default:
			changes[l.Account] = limits.Conflicted
			continue
		}
		m[key] = want
	}
	for key, old := range m {
		if key[0] == resource && old.service == service && !listed[key[1]] {
			changes[key[1]] = limits.Removed
			delete(m, key)
		}
	}
	return changes, unchanged
}

// A crashing store dies before or after one of the steps of a load.
type crashing struct {
	limits.Store
	steps int // until it dies
	after bool
	done  int // steps
	asked map[string]bool
}

var errCrash = errors.New("the process has died")

func (c *crashing) Sync(ctx context.Context, service, resource string, list []limits.Limit, dryRun bool) (limits.Report, error) {
	c.asked[resource] = true
	dies := c.done == c.steps
	if dies && !c.after {
		return limits.Report{}, errCrash
	}
	report, err := c.Store.Sync(ctx, service, resource, list, dryRun)
	c.done++
	if dies {
		return limits.Report{}, errCrash
	}
	return report, err
}

var (
	resources = []string{"a", "b", "c"}
	accounts  = []string{"", "x", "y", "z"}
)

// After any loads by two services, of which some die halfway, the table is what
// the model says.
func TestModel(t *testing.T) {
	client := redistest.Start(t).Client(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		table, err := redistable.New(client, redistable.WithNamespace(fmt.Sprintf("run%d", run)))
		require.NoError(t, err)
		m := make(model)
		for range rapid.IntRange(1, 8).Draw(t, "loads") {
			service := rapid.SampledFrom([]string{"billing", "search"}).Draw(t, "service")
			list := drawLimits(t)
			steps := rapid.IntRange(0, 6).Draw(t, "steps")
			store := &crashing{Store: table, steps: steps, after: rapid.Bool().Draw(t, "dies after the step"), asked: make(map[string]bool)}

			plan, err := limits.Loader{Store: table, Service: service}.Plan(t.Context(), list)
			require.NoError(t, err)
			report, err := limits.Loader{Store: store, Service: service}.Load(t.Context(), list)
			if err == nil {
				require.Equal(t, plan, report)
			} else {
				require.ErrorIs(t, err, errCrash)
			}
			checkReport(t, m, service, list, plan, store)
			checkTable(t, m, table)
		}
	})
}

func drawLimits(t *rapid.T) (list []limits.Limit) {
	for _, resource := range resources {
		for _, account := range accounts {
			if n := rapid.Int64Range(-3, 3).Draw(t, resource+account); n >= 0 {
				list = append(list, limit(resource, account, n))
			}
		}
	}
	return list
}

// checkReport does a load in the model, as far as the store came.
func checkReport(t *rapid.T, m model, service string, list []limits.Limit, plan limits.Report, store *crashing) {
	byResource := make(map[string][]limits.Limit)
	for _, l := range list {
		byResource[l.Resource] = append(byResource[l.Resource], l)
	}
	planned := make(map[string]map[string]limits.Action)
	for _, resource := range resources {
		planned[resource] = make(map[string]limits.Action)
	}
	for _, c := range plan.Changes {
		planned[c.Resource][c.Account] = c.Action
	}
	steps, unchanged := store.done, 0
	for _, resource := range resources {
		on := m
		if steps == 0 { // not reached: what would be done, on a copy
			on = maps.Clone(m)
		}
		changes, n := on.sync(service, resource, byResource[resource])
		require.Equal(t, changes, planned[resource], resource)
		unchanged += n
		if steps > 0 && store.asked[resource] {
			steps--
		}
	}
	require.Equal(t, unchanged, plan.Unchanged)
}

func checkTable(t *rapid.T, m model, table *redistable.Table) {
	for _, resource := range resources {
		for _, account := range append([]string{"someone"}, accounts...) {
			want, there := m[[2]string{resource, account}]
			if !there {
				want, there = m[[2]string{resource, ""}]
			}
			quotas, err := table.Quotas(t.Context(), resource, account)
			if !there {
				require.ErrorIs(t, err, limits.ErrUnknownResource)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, []ratelimit.Quota{ratelimit.PerMinute(want.limit)}, quotas, "%s of %s", account, resource)
		}
	}
}
