package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
)

// A decision of which some rules match: they count by the same request, and the others
// are of other paths.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct{ rules, matches int }{
		{10, 1}, {10, 10}, {100, 10}, {1000, 1}, {1000, 10}, {1000, 100}, {10_000, 10}, {10_000, 100},
	} {
		b.Run(fmt.Sprintf("%d rules/%d match", size.rules, size.matches), func(b *testing.B) {
			e := memoryEngine(b, rulesOf(size.rules, size.matches))
			r := rules.Request{Path: "/" + strings.Repeat("a/", size.matches), Method: "GET", Host: "example.org", Values: values("ip", "192.0.2.1", "account", "acme")}
			bench(b, e, r, size.matches)
		})
	}
}

// rulesOf has patterns that match by each beginning of the path, and others.
func rulesOf(n, matches int) string {
	var t strings.Builder
	t.WriteString("rules:\n")
	for i := range n {
		path := "/" + strings.Repeat("a/", i)
		if i >= matches {
			path = fmt.Sprintf("/a/{id}/other%d", i)
		}
		fmt.Fprintf(&t, "- path: '%s'\n  descriptors:\n  - {key: account, unit: minute, requests_per_unit: 1000000000000}\n", path)
	}
	return t.String()
}

// One rule with many descriptors, of which ten apply.
func BenchmarkDescriptors(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d descriptors/10 match", n), func(b *testing.B) {
			text := "rules:\n- path: /\n  descriptors:\n"
			r := rules.Request{Path: "/", Values: values()}
			for i := range n {
				text += fmt.Sprintf("  - {key: key%d, unit: minute, requests_per_unit: 1000000000000}\n", i)
				if i < 10 {
					r.Values[fmt.Sprintf("key%d", i)] = "v"
				}
			}
			bench(b, memoryEngine(b, text), r, 10)
		})
	}
}

func BenchmarkEnvoy(b *testing.B) {
	e := memoryEngine(b, "domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 4000000000}}]}\n")
	bench(b, e, rules.Request{Domain: "d", Descriptors: []rules.Descriptor{{{"a", "1"}, {"b", "2"}}}}, 1)
}

func bench(b *testing.B, e *rules.Engine, r rules.Request, matches int) {
	b.ReportAllocs()
	ctx := context.Background()
	for b.Loop() {
		d, err := e.Decide(ctx, r)
		if err != nil || !d.Allowed || d.Matched != matches {
			require.NoError(b, err)
			require.Equal(b, matches, d.Matched)
			b.Fatal(d)
		}
	}
}
