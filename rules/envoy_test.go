package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
)

// A configuration of the kind that Envoy's service is given.
const envoy = `---
domain: rl
descriptors:
  - key: cluster
    value: proxy
    descriptors:
      - key: to
        value: mock
        rate_limit:
          unit: minute
          requests_per_unit: 1
  - key: foo
    rate_limit: {unit: MINUTE, requests_per_unit: 2}
    descriptors:
      - key: bar
        rate_limit: {unit: minute, requests_per_unit: 3}
      - key: bar
        value: banned
        rate_limit: {unit: minute, requests_per_unit: 0}
      - key: baz
        rate_limit: {unit: second, requests_per_unit: 1}
      - key: bay
        rate_limit: {unlimited: true}
      - key: baz
        value: shady
        rate_limit: {unit: minute, requests_per_unit: 1}
        shadow_mode: true
  - key: code
    value: 404
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: ip
    rate_limit: {unit: hour, requests_per_unit: 1}
    detailed_metric: true
  - key: ip
    value: 10.*
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: ip
    value: 10.1.*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: ip
    value: 127.0.0.1
  - key: one
    descriptors:
      - {key: user, rate_limit: {name: specific, unit: second, requests_per_unit: 1}}
  - key: two
    descriptors:
      - {key: user, rate_limit: {replaces: [{name: specific}], unit: second, requests_per_unit: 2}}
  - key: three
    rate_limit: {unlimited: true, replaces: [{name: specific}]}
  - key: report
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 1}
    descriptors:
`

func entries(pairs ...string) (d rules.Descriptor) {
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, rules.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// Each descriptor is let through as often as the file says.
func TestEnvoy(t *testing.T) {
	const all = 1000
	for name, tt := range map[string]struct {
		limit       int
		descriptors []rules.Descriptor
	}{
		"nested":                        {1, []rules.Descriptor{entries("cluster", "proxy", "to", "mock")}},
		"other value":                   {all, []rules.Descriptor{entries("cluster", "proxy", "to", "else")}},
		"too shallow":                   {all, []rules.Descriptor{entries("cluster", "proxy")}},
		"too deep":                      {all, []rules.Descriptor{entries("code", "404", "x", "y")}},
		"own limit of an outer":         {2, []rules.Descriptor{entries("foo", "1")}},
		"the inner only":                {3, []rules.Descriptor{entries("foo", "1", "bar", "2")}},
		"blocked":                       {0, []rules.Descriptor{entries("foo", "1", "bar", "banned")}},
		"unlimited":                     {all, []rules.Descriptor{entries("foo", "1", "bay", "2")}},
		"shadow":                        {all, []rules.Descriptor{entries("foo", "1", "baz", "shady")}},
		"number as value":               {1, []rules.Descriptor{entries("code", "404")}},
		"longest prefix":                {2, []rules.Descriptor{entries("ip", "10.1.2.3")}},
		"prefix":                        {2, []rules.Descriptor{entries("ip", "10.2.2.3")}},
		"whitelisted":                   {all, []rules.Descriptor{entries("ip", "127.0.0.1")}},
		"tightest of several":           {1, []rules.Descriptor{entries("foo", "1", "bar", "2"), entries("ip", "9.9.9.9")}},
		"one blocked blocks all":        {0, []rules.Descriptor{entries("ip", "9.9.9.9"), entries("foo", "1", "bar", "banned")}},
		"the same twice":                {1, []rules.Descriptor{entries("foo", "1"), entries("foo", "1")}},
		"named":                         {1, []rules.Descriptor{entries("one", "1", "user", "u")}},
		"replaced":                      {2, []rules.Descriptor{entries("one", "1", "user", "u"), entries("two", "1", "user", "u")}},
		"replaced by unlimited":         {all, []rules.Descriptor{entries("one", "1", "user", "u"), entries("three", "1")}},
		"no such key":                   {all, []rules.Descriptor{entries("none", "1")}},
		"no entries":                    {all, []rules.Descriptor{nil}},
		"without value, value is empty": {2, []rules.Descriptor{entries("foo", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			e := memoryEngine(t, envoy)
			for i := range 10 {
				d := decide(t, e, start, rules.Request{Domain: "rl", Descriptors: tt.descriptors})
				require.Equal(t, i < tt.limit, d.Allowed, "%d", i)
			}
		})
	}
	e := memoryEngine(t, envoy)
	require.Zero(t, decide(t, e, start, rules.Request{Domain: "other", Descriptors: []rules.Descriptor{entries("foo", "1", "bar", "banned")}}).Matched)
}

func TestEnvoyCounters(t *testing.T) {
	e := memoryEngine(t, envoy)
	ask := func(d rules.Descriptor, at time.Time) rules.Decision {
		return decide(t, e, at, rules.Request{Domain: "rl", Descriptors: []rules.Descriptor{d}})
	}
	// Each value for itself, but those that share.
	for _, ip := range []string{"10.2.0.1", "10.2.0.2"} {
		require.EqualValues(t, 1, ask(entries("ip", ip), start).Remaining)
	}
	require.EqualValues(t, 1, ask(entries("ip", "10.1.0.1"), start).Remaining)
	require.EqualValues(t, 0, ask(entries("ip", "10.1.0.2"), start).Remaining)
	d := ask(entries("ip", "10.1.0.3"), start)
	require.Equal(t, []string{"rl ip=10.1.*"}, names(d.Refused))
	require.Equal(t, "simple", d.Refused[0].Strategy)
	// In fixed windows, as Envoy counts.
	require.Equal(t, time.Hour, d.RetryAfter)
	require.True(t, ask(entries("ip", "10.1.0.3"), start.Add(time.Hour)).Allowed)
	// detailed_metric tells the value.
	ask(entries("ip", "8.8.8.8"), start)
	require.Equal(t, []string{"rl ip=8.8.8.8"}, names(ask(entries("ip", "8.8.8.8"), start).Refused))
	// unit_multiplier makes windows of several units.
	ask(entries("report", "1"), start)
	require.Equal(t, 5*time.Minute, ask(entries("report", "1"), start).Refused[0].Quota.Window)
	// A replaced limit is not charged.
	both := rules.Request{Domain: "rl", Descriptors: []rules.Descriptor{entries("one", "1", "user", "u"), entries("two", "1", "user", "u")}}
	require.Equal(t, 1, decide(t, e, start, both).Matched)
	require.True(t, ask(entries("one", "1", "user", "u"), start).Allowed)
	// A domain without descriptors limits nothing.
	require.Zero(t, decide(t, memoryEngine(t, "domain: idle\ndescriptors:\n"), start, rules.Request{Domain: "idle", Descriptors: []rules.Descriptor{entries("a", "b")}}).Matched)
	// Both kinds of rules in one request.
	dir := folder(t, "own.yml", api, "envoy.json", `{"domain": "rl", "descriptors": [{"key": "foo", "rate_limit": {"unit": "day", "requests_per_unit": 1}}]}`)
	e, err := rules.Open(dir, nothing{})
	require.NoError(t, err)
	r := rules.Request{Path: "/", Values: values("ip", "1"), Domain: "rl", Descriptors: []rules.Descriptor{entries("foo", "x")}}
	require.Equal(t, 2, decide(t, e, start, r).Matched)
}
