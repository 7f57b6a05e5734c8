package httplimit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A namedQuota is a quota as headers tell it.
type namedQuota struct {
	name      string
	limit     int64
	limitText string
	// window is a quota's, rounded up: clients that spread their requests over it
	// are then a little slow rather than a little fast.
	window  int64 // seconds
	windows bool  // the window is a second or more, and worth telling
	item    string
	refused []byte // the body of a refusal by this quota alone; nil where it was not worth making
}

// namedQuotas gives every quota of the rules, each with the quotas that it has, the
// name that headers and problem documents use: its own, else its policy's. Several
// quotas of a policy that have none are told apart by their windows, "api-1m" and
// "api-1d", and, where these are equal too, by a number, "api-1m-2".
//
// Names that a program has chosen are refused if headers can't tell them, or not
// apart. Those of quotas from a source are data, which must not fail a request: one
// that can't be told counts as none, and gives way to the program's.
func namedQuotas(rules []rule, quotasOf func(i int) []ratelimit.Quota) ([]namedQuota, error) {
	taken := make(map[string]bool)
	for _, r := range rules {
		for _, name := range quotaNames(r.policy.Name(), r.policy.Quotas()) {
			if !printable(name) {
				return nil, fmt.Errorf("policy %q: the quota's name %q is not printable ASCII, and can't be in a header", r.policy.Name(), name)
			}
			if taken[name] {
				return nil, fmt.Errorf("two quotas would be told by the name %q: give them names of their own, Quota.Name", name)
			}
			taken[name] = true
		}
	}
	var named []namedQuota
	for i, r := range rules {
		quotas, names := quotasOf(i), []string(nil)
		if r.sourced() {
			names = freeNames(r.policy.Name(), quotas, taken)
		} else {
			names = quotaNames(r.policy.Name(), quotas)
		}
		for i, q := range quotas {
			limit := min(q.Limit, maxInteger)
			named = append(named, namedQuota{
				name:      names[i],
				limit:     limit,
				limitText: strconv.FormatInt(limit, 10),
				window:    atLeastOne(wholeSeconds(q.Window)),
				windows:   q.Window >= time.Second,
				item:      quote(names[i]) + ";r=",
			})
		}
	}
	return named, nil
}

func printable(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' })
}

// freeNames are names for the quotas of a source, whatever these are called, that
// are not taken yet. It takes them.
func freeNames(policy string, quotas []ratelimit.Quota, taken map[string]bool) []string {
	quotas = slices.Clone(quotas)
	for i := range quotas {
		switch q := &quotas[i]; {
		case taken[q.Name] || !printable(q.Name):
			q.Name = ""
		case q.Name != "":
			taken[q.Name] = true
		}
	}
	names := quotaNames(policy, quotas)
	for i, name := range names {
		if quotas[i].Name != "" {
			continue
		}
		for n := 2; taken[names[i]]; n++ {
			names[i] = fmt.Sprintf("%s-%d", name, n)
		}
		taken[names[i]] = true
	}
	return names
}

func quotaNames(policy string, quotas []ratelimit.Quota) []string {
	names := make([]string, len(quotas))
	unnamed := 0
	for _, q := range quotas {
		if q.Name == "" {
			unnamed++
		}
	}
	used := make(map[string]int)
	for i, q := range quotas {
		switch {
		case q.Name != "":
			names[i] = q.Name
			continue
		case unnamed == 1:
			names[i] = policy
			continue
		}
		names[i] = policy + "-" + windowName(q.Window)
		used[names[i]]++
		if n := used[names[i]]; n > 1 {
			names[i] = fmt.Sprintf("%s-%d", names[i], n)
		}
	}
	return names
}

// windowName is a window in the largest unit that it is a multiple of: 5s, 90s,
// 1m, 1d.
func windowName(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		symbol string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d%unit.length == 0 {
			return fmt.Sprintf("%d%s", d/unit.length, unit.symbol)
		}
	}
	return fmt.Sprintf("%dus", d.Microseconds())
}
