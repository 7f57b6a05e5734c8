package rules_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
)

// All patterns that match apply, and paths are cleaned first.
func TestAllPatternsThatMatch(t *testing.T) {
	e := memoryEngine(t, `
rules:
  - {path: /, descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: /a/, descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: "/a/{x}/c", descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: "/{y}/b/c", descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: "GET /a/b/c", descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: "example.org/a/b/c", descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
  - {path: "/a/b/c/{$}", descriptors: [{key: "*", unit: day, requests_per_unit: 0, shadow: true}]}
`)
	for raw, want := range map[string][]string{
		"/a/b/c":           {"/ *", "/a/ *", "/a/{x}/c *", "/{y}/b/c *", "GET /a/b/c *", "example.org/a/b/c *"},
		"//a/../a/./b/c":   {"/ *", "/a/ *", "/a/{x}/c *", "/{y}/b/c *", "GET /a/b/c *", "example.org/a/b/c *"},
		"/%61/b/c":         {"/ *", "/a/ *", "/a/{x}/c *", "/{y}/b/c *", "GET /a/b/c *", "example.org/a/b/c *"},
		"/a/b/c/":          {"/ *", "/a/ *", "/a/b/c/{$} *"},
		"/a/":              {"/ *", "/a/ *"},
		"/a":               {"/ *"},
		"*":                {"/ *"},
		"/a/x%2Fy/c":       {"/ *", "/a/ *", "/a/{x}/c *"},
		"/A/b/c":           {"/ *", "/{y}/b/c *"},
		"/a/b/../../../..": {"/ *"},
	} {
		d := decide(t, e, start, rules.Request{Path: raw, Method: "HEAD", Host: "example.org:443"})
		require.Equal(t, want, names(d.Shadow), raw)
	}
}

// A wildcard goes before a value that the caller gives under its name, also where the
// rules have more keys than the request.
func TestWildcardsAreValues(t *testing.T) {
	for _, more := range []int{0, 20} {
		text := "rules:\n- path: /users/{user}/{rest...}\n  descriptors:\n  - {key: user, value: ann, unit: day, requests_per_unit: 0, shadow: true}\n" +
			"  - {key: rest, value: b/c d, unit: day, requests_per_unit: 0, shadow: true}\n  - {key: ip, unit: day, requests_per_unit: 0, shadow: true}\n"
		for i := range more {
			text += fmt.Sprintf("  - {key: more%d, unit: day, requests_per_unit: 0}\n", i)
		}
		e := memoryEngine(t, text)
		d := decide(t, e, start, rules.Request{Path: "/users/ann/b/c%20d", Values: values("user", "bob", "ip", "1", "*", "none")})
		require.Equal(t, []string{"/users/{user}/{rest...} user=ann", "/users/{user}/{rest...} rest=b/c d", "/users/{user}/{rest...} ip"}, names(d.Shadow))
		d = decide(t, e, start, rules.Request{Path: "/users/bob/", Values: values("user", "ann")})
		require.Empty(t, d.Shadow)
	}
}
