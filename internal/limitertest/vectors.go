package limitertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
)

// readVectors reads answers recorded from the Python limiters that this library
// descends from. They lie beside the repository.
func readVectors[T any](t *testing.T, file string) []T {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("no recorded answers, nothing is compared with the ancestors: %v", err)
	}
	var vectors struct{ Cases []T }
	require.NoError(t, json.Unmarshal(data, &vectors))
	require.NotEmpty(t, vectors.Cases)
	return vectors.Cases
}

type windowCase struct {
	Quotas []struct {
		Window      int64  `json:"window_s"`
		Granularity int64  `json:"granularity_s"`
		Limit       int64  `json:"limit"`
		Override    string `json:"override"`
	} `json:"quotas"`
	Steps []struct {
		Op       string `json:"op"`
		T        int64  `json:"t"`
		Requests []struct {
			Prefix    string `json:"prefix"`
			Requested int64  `json:"requested"`
			Quotas    []int  `json:"quotas"`
		} `json:"requests"`
		Grants []struct {
			Prefix  string `json:"prefix"`
			Granted int64  `json:"granted"`
			Reached []int  `json:"reached"`
		} `json:"grants"`
	} `json:"steps"`
}

// SlidingWindowVectors replays the sliding-window limiter of Sentry's
// sentry-redis-tools through a limiter; dir has the recordings.
func SlidingWindowVectors(t *testing.T, dir string, limiter ratelimit.Limiter) {
	for i, c := range readVectors[windowCase](t, filepath.Join(dir, "sentry_sliding_window.json")) {
		replayWindow(t, limiter, i, c)
	}
}

func replayWindow(t *testing.T, limiter ratelimit.Limiter, i int, c windowCase) {
	pick := func(indexes []int) (picked []ratelimit.Quota) {
		for _, j := range indexes {
			q := c.Quotas[j]
			picked = append(picked, ratelimit.Quota{
				Limit: q.Limit, Window: time.Duration(q.Window) * time.Second,
				Granularity: time.Duration(q.Granularity) * time.Second, PrefixOverride: q.Override,
			})
		}
		return picked
	}
	var all []ratelimit.RequestedQuota // everything that the case touches
	for j, step := range c.Steps {
		var requests []ratelimit.RequestedQuota
		for _, r := range step.Requests {
			requests = append(requests, ratelimit.RequestedQuota{Prefix: r.Prefix, Requested: r.Requested, Quotas: pick(r.Quotas)})
		}
		all = append(all, requests...)
		grants := windowStep(t, limiter, step.Op, requests, time.Unix(step.T, 0))
		require.Len(t, grants, len(step.Grants))
		for k, want := range step.Grants {
			require.Equal(t, want.Prefix, grants[k].Prefix, "case %d step %d", i, j)
			require.Equal(t, want.Granted, grants[k].Granted, "case %d step %d %+v", i, j, step)
			require.Equal(t, pick(want.Reached), grants[k].ReachedQuotas, "case %d step %d", i, j)
		}
	}
	require.NoError(t, limiter.Reset(t.Context(), all))
}

func windowStep(t *testing.T, limiter ratelimit.Limiter, op string, requests []ratelimit.RequestedQuota, at time.Time) []ratelimit.GrantedQuota {
	t.Helper()
	if op == "check_and_use" {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(at))
		require.NoError(t, err)
		return grants
	}
	checked, grants, err := limiter.CheckWithinQuotas(t.Context(), requests, ratelimit.At(at))
	require.NoError(t, err)
	require.True(t, checked.Equal(at))
	if op == "two_step" {
		require.NoError(t, limiter.UseQuotas(t.Context(), requests, grants, checked))
	} else {
		require.Equal(t, "check", op)
	}
	return grants
}

type listCase struct {
	Limit  int64 `json:"limit"`
	Period int64 `json:"period_us"`
	Steps  []struct {
		Op       string `json:"op"`
		T        int64  `json:"t_ms"`
		Actor    string `json:"actor"`
		Limit    int64  `json:"limit"`
		Period   int64  `json:"period_us"`
		Limited  bool   `json:"limited"`
		Inserted bool   `json:"inserted"`
	} `json:"steps"`
}

// ListVectors replays the ListLimiter of rratelimit through a limiter.
func ListVectors(t *testing.T, dir string, limiter *ratelimit.ListLimiter) {
	for i, c := range readVectors[listCase](t, filepath.Join(dir, "rratelimit_list.json")) {
		replayList(t, limiter, i, c)
	}
}

func replayList(t *testing.T, limiter *ratelimit.ListLimiter, i int, c listCase) {
	quota := ratelimit.Per(c.Limit, time.Duration(c.Period)*time.Microsecond)
	var all []ratelimit.RequestedQuota
	for j, step := range c.Steps {
		at := time.UnixMilli(step.T)
		requests := []ratelimit.RequestedQuota{{Prefix: step.Actor, Requested: 1, Quotas: []ratelimit.Quota{quota}}}
		all = append(all, requests...)
		switch step.Op {
		case "insert":
			require.NoError(t, limiter.UseQuotas(t.Context(), requests, []ratelimit.GrantedQuota{{Prefix: step.Actor, Granted: 1}}, at))
		case "check":
			_, grants, err := limiter.CheckWithinQuotas(t.Context(), requests, ratelimit.At(at))
			require.NoError(t, err)
			require.Equal(t, step.Limited, grants[0].Granted == 0, "case %d step %d %+v", i, j, step)
		case "checked_insert":
			grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(at))
			require.NoError(t, err)
			require.Equal(t, step.Inserted, grants[0].Granted == 1, "case %d step %d %+v", i, j, step)
		case "check_ex":
			narrower := ratelimit.Per(step.Limit, time.Duration(step.Period)*time.Microsecond)
			grant, err := limiter.CheckNarrower(t.Context(), step.Actor, quota, narrower, ratelimit.At(at))
			require.NoError(t, err)
			require.Equal(t, step.Limited, grant.Granted == 0, "case %d step %d %+v", i, j, step)
		default:
			require.Fail(t, "unknown step", step.Op)
		}
	}
	require.NoError(t, limiter.Reset(t.Context(), all))
}
