package rules_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage"
)

// nothing is a storage that grants all, and keeps nothing.
type nothing struct{}

func (nothing) Run(_ context.Context, _ *storage.Script, c *storage.Call) error {
	for i := range c.Requests {
		c.Requests[i].Granted = c.Requests[i].Requested
	}
	return nil
}

func (nothing) Forget(context.Context, []storage.Key) error { return nil }

// descriptor is a file with a descriptor of these fields.
func descriptor(fields string) string {
	return "rules:\n- path: /a\n  descriptors:\n  - {key: k, " + fields + "}\n"
}

func path(pattern string) string {
	return "rules:\n- path: " + pattern + "\n  descriptors: [{key: k, unit: day, requests_per_unit: 1}]\n"
}

func rateLimit(fields string) string {
	return "domain: d\ndescriptors:\n- key: k\n  rate_limit: {" + fields + "}\n"
}

// What is wrong is refused with its file, line, column and field.
func TestRefused(t *testing.T) {
	const fine = "unit: day, requests_per_unit: 1"
	for text, want := range map[string]string{
		// numbers and windows
		descriptor("unit: day, requests_per_unit: -1"):                                                 "f.yaml:4:44: rules[0].descriptors[0].requests_per_unit: -1 is negative",
		descriptor("unit: day, requests_per_unit: 1.5"):                                                "requests_per_unit: 1.5 is not a whole number",
		descriptor("unit: day, requests_per_unit: 1e3"):                                                "is not a whole number",
		descriptor("unit: day, requests_per_unit: 9007199254740992"):                                   "Limit 9007199254740992 is above",
		descriptor("unit: day"):                                                                        "rules[0].descriptors[0].requests_per_unit: is missing",
		descriptor("requests_per_unit: 1"):                                                             "rules[0].descriptors[0].unit: is missing",
		descriptor("unit: fortnight, requests_per_unit: 1"):                                            `f.yaml:4:20: rules[0].descriptors[0].unit: "fortnight" is not one of second, minute`,
		descriptor("unit: 5, requests_per_unit: 1"):                                                    "unit: 5 is not text",
		descriptor("window: 30, requests_per_unit: 1"):                                                 "window: 30 is not text",
		descriptor("window: 1us, requests_per_unit: 1"):                                                "Window 1µs is under 1ms",
		descriptor("window: 900000h, requests_per_unit: 1"):                                            "Window 900000h0m0s is above",
		descriptor("window: -1s, requests_per_unit: 1"):                                                "-1s is not above zero",
		descriptor("window: 1s, " + fine):                                                              "window: stands beside unit",
		descriptor("strategy: leaky, " + fine):                                                         `strategy: "leaky" is not one of hash, list`,
		descriptor("strategy: '', " + fine):                                                            `f.yaml:4:24: rules[0].descriptors[0].strategy: "" is not one of hash, list`,
		descriptor("strategy: [], " + fine):                                                            "strategy: a list is not text",
		descriptor("unit: '', requests_per_unit: 1"):                                                   `unit: "" is not one of second`,
		descriptor("window: '', requests_per_unit: 1"):                                                 `window: "" is not a duration`,
		descriptor("burst: 5, " + fine):                                                                "burst: is for the strategy token-bucket, not sliding-window",
		descriptor("strategy: token-bucket, burst: -5, " + fine):                                       "burst: -5 is negative",
		descriptor("strategy: token-bucket, burst: 9007199254740991, unit: day, requests_per_unit: 3"): "ratelimit: invalid quota: Burst 9007199254740991 is too large",
		descriptor("strategy: token-bucket, burst: 5, unit: day, requests_per_unit: 0"):                "burst 5 with a limit of 0",
		descriptor("shadow: maybe, " + fine):                                                           `shadow: "maybe" is not true or false`,
		descriptor("unlimited: true, " + fine):                                                         "unit: stands beside unlimited",

		// fields
		descriptor("limit: 5, " + fine):                                         "f.yaml:4:14: rules[0].descriptors[0].limit: unknown field; there are key, value, unit",
		descriptor("rate_limit: {}, " + fine):                                   "rate_limit: unknown field",
		descriptor(fine + ", unit: day"):                                        `mapping key "unit" already defined`,
		descriptor("value: '', " + fine):                                        "leave it out",
		descriptor("value: 12, " + fine):                                        "value: 12 is not text: put it in quotes",
		descriptor("name: x"):                                                   "requests_per_unit: is missing",
		"rules: [{path: /, descriptors: [{key: k, descriptors: []}]}]":          "rules[0].descriptors[0].descriptors: is empty, and limits nothing: write some, or leave it out",
		"rules: [{path: /, descriptors: [{key: k, descriptors: }]}]":            "rules[0].descriptors[0].descriptors: null is not a list",
		"rules: [{path: /, descriptors: [{key: k}]}]":                           "rules[0].descriptors[0]: limits nothing",
		"rules: [{path: /, descriptors: [{" + fine + "}]}]":                     "key: is missing",
		"rules: [{path: /, descriptors: [{key: '', " + fine + "}]}]":            "key: is empty",
		"rules: [{path: /, descriptors: [{key: '*', value: x, " + fine + "}]}]": "leave it out",
		"rules: [{path: /, descriptors: []}]":                                   "descriptors: is empty",
		"rules: [{path: /}]":                                                    "descriptors: is missing",
		"rules: [{descriptors: []}]":                                            "rules[0].path: is missing",
		"rules: 5":                                                              "rules: 5 is not a list",
		"rules: [5]":                                                            "rules[0]: 5 is not a mapping",
		"rules: []\ndomain: d":                                                  "f.yaml:2:9: domain: stands beside rules",
		"rules: []\ndescriptors: []":                                            "descriptors: stands beside rules",
		"descriptors: []":                                                       "there are neither rules nor a domain",
		"limits: []":                                                            "limits: unknown field; there are rules",
		"":                                                                      "f.yaml:1:1: the text is empty",
		"rules: [":                                                              "f.yaml:1:",
		"rules: &a []":                                                          "an anchor (&) is not allowed",

		// paths
		path("a"):               `rules[0].path: parsing "a": at offset 0: host/path missing /`,
		path("''"):              "rules[0].path: http: invalid pattern",
		path("/a/{x}{y}"):       "bad wildcard name",
		path("/{x}/{x}"):        "duplicate wildcard name",
		path("'G(T /'"):         "invalid method",
		path("/a/../b"):         `"/a/../b" is not as the paths of requests are, which are cleaned first: write "/b"`,
		path("/a//b"):           `f.yaml:2:9: rules[0].path: "/a//b" is not as the paths of requests are, which are cleaned first: write "/a/b"`,
		path("/.."):             `"/.." is not as the paths of requests are, which are cleaned first: write "/"`,
		path("h.com:8080/x"):    `f.yaml:2:9: rules[0].path: the host "h.com:8080" has a port, and requests are matched without theirs: write "h.com"`,
		path("'GET [::1]:80/'"): `the host "[::1]:80" has a port, and requests are matched without theirs: write "::1"`,

		// twice
		path("/a") + strings.TrimPrefix(path("/a"), "rules:\n"):              `f.yaml:4:9: rules[1].path: path "/a" is there already, at `,
		path("GET /a") + strings.TrimPrefix(path("'GET  /a'"), "rules:\n"):   `path "GET /a" is there already`,
		descriptor(fine) + "  - {key: k, window: 24h, requests_per_unit: 5}": "f.yaml:5:5: rules[0].descriptors[1]: /a k is there already, at ",
		descriptor(fine) + "  - {key: k, unlimited: true}":                   "unlimited stands alone",

		// Envoy
		rateLimit("unit: day"):                                "f.yaml:4:15: descriptors[0].rate_limit.requests_per_unit: is missing",
		rateLimit("requests_per_unit: 1"):                     "rate_limit.unit: is missing",
		rateLimit("unit: day, requests_per_unit: 4294967296"): "4294967296 is above 4294967295",
		rateLimit("unlimited: true, unit: day"):               "unit: stands beside unlimited",
		rateLimit(fine + ", unit_multiplier: 0"):              "unit_multiplier: 0 is not between 1 and ",
		rateLimit(fine + ", unit_multiplier: -1"):             "unit_multiplier: -1 is negative",
		rateLimit(fine + ", unit_multiplier: 1000000000000"):  "unit_multiplier: 1000000000000 is not between 1 and ",
		rateLimit("unlimited: true, unit_multiplier: 2"):      "unit_multiplier: stands beside unlimited",
		rateLimit(fine + ", algorithm: x"):                    "algorithm: unknown field",
		rateLimit(fine + ", name: a, replaces: [{name: a}]"):  `"a" is empty, or the limit's own`,
		rateLimit(fine) + "  value_to_metric: true":           "f.yaml:5:20: descriptors[0].value_to_metric: value_to_metric is not supported",
		rateLimit(fine) + "  quota_mode: true":                "quota_mode is not supported",
		rateLimit(fine) + "  share_threshold: true":           `share_threshold: is for a value that ends in *, not ""`,
		rateLimit(fine) + "- key: k":                          "descriptors[1]: d k is there already, at ",
		"domain: d\ndescriptors: [{value: x}]":                "key: is missing",
		"domain: d\ndescriptors: [{key: ''}]":                 "descriptors[0].key: is empty",
		"domain: d\ndescriptors: [{key: a, value: 'b*c'}]":    `descriptors[0].value: "b*c": a * that is not at its end is not supported`,
		"domain: d\ndescriptors: [{key: a, value: '**'}]":     "is not supported",
		"domain: ''":                 "domain: is empty",
		"domain: d\ndescriptors: {}": "a mapping is not a list",
	} {
		dir := folder(t, "f.yaml", text)
		_, err := rules.Open(dir, nothing{})
		if err == nil {
			t.Errorf("not refused: %s", text)
			continue
		}
		assert.ErrorIs(t, err, rules.ErrInvalidRules, text)
		assert.ErrorContains(t, err, want, text)
		assert.ErrorContains(t, err, filepath.Join(dir, "f.yaml")+":", text)
	}
}

// Every fault is told, and of a great many some.
func TestEveryFaultIsTold(t *testing.T) {
	dir := folder(t,
		"a.yaml", "rules:\n- path: /a\n  descriptors:\n  - {key: k, unit: x, requests_per_unit: -1, what: 5}\n- path: b\n  descriptors: []\n",
		"b.json", `{"domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "day", "requests_per_unit": -5}}]}`,
		"c.yml", "{",
	)
	_, err := rules.Open(dir, nothing{})
	for _, want := range []string{"a.yaml:4:46", "a.yaml:4:20", "a.yaml:4:42", "a.yaml:5:9", "b.json:1:97", "c.yml:1:"} {
		require.ErrorContains(t, err, want)
	}
	_, err = rules.Open(folder(t, "a.yaml", "rules:\n"+strings.Repeat("- 5\n", 50)), nothing{})
	require.ErrorContains(t, err, "and 30 more")
}

func TestDuplicatesAcrossFiles(t *testing.T) {
	dir := folder(t, "a.yaml", path("/a"), "b.yml", path("/a"))
	_, err := rules.Open(dir, nothing{})
	require.ErrorContains(t, err, fmt.Sprintf("%s:2:9: rules[0].path: path \"/a\" is there already, at %s:2", filepath.Join(dir, "b.yml"), filepath.Join(dir, "a.yaml")))
	dir = folder(t, "a.yaml", "domain: d", "b.yaml", "domain: d")
	_, err = rules.Open(dir, nothing{})
	require.ErrorContains(t, err, fmt.Sprintf("domain \"d\" is there already, at %s:1", filepath.Join(dir, "a.yaml")))
}

// Only files of rules in the folder itself are read, and nothing outside of it.
func TestFolder(t *testing.T) {
	dir := folder(t, "a.yaml", path("/a"), "notes.txt", "{", ".hidden.yaml", "{", "b.yaml~", "{")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700))
	write(t, filepath.Join(dir, "sub.yaml"), "c.yaml", "{")
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "other.link")))
	_, err := rules.Open(dir, nothing{})
	require.NoError(t, err)

	outside := folder(t, "o.yaml", path("/o"))
	for name, target := range map[string]string{"abs.yaml": filepath.Join(outside, "o.yaml"), "rel.yaml": "../" + filepath.Base(outside) + "/o.yaml", "gone.yaml": "none"} {
		dir := folder(t, "a.yaml", path("/a"))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
		_, err = rules.Open(dir, nothing{})
		require.ErrorIs(t, err, rules.ErrInvalidRules)
		require.ErrorContains(t, err, name)
	}

	require.NoError(t, os.Symlink(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")))
	_, err = rules.Open(dir, nothing{})
	require.ErrorContains(t, err, "b.yaml", "an absolute link, also within the folder")

	_, err = rules.Open(filepath.Join(dir, "none"), nothing{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rules.Open(t.TempDir(), nothing{})
	require.ErrorContains(t, err, "for no rules write a file with rules: []")
	_, err = rules.Open(folder(t, "a.yaml", "rules: []"), nothing{})
	require.NoError(t, err)

	_, err = rules.Open(folder(t, "a.yaml", "rules: []\n#"+strings.Repeat("x", rules.MaxFileSize)), nothing{})
	require.ErrorContains(t, err, "a.yaml: more than 4194304 bytes")
	_, err = rules.Open(folder(t, "a.yaml", "rules: []\n#\xff"), nothing{})
	require.ErrorContains(t, err, "a.yaml:2:2: the text is not UTF-8")
	many := t.TempDir()
	for i := range rules.MaxFiles + 1 {
		require.NoError(t, os.WriteFile(filepath.Join(many, fmt.Sprintf("%d.yaml", i)), nil, 0o600))
	}
	_, err = rules.Open(many, nothing{})
	require.ErrorContains(t, err, "1001 files, at most 1000")
	large := t.TempDir()
	for i := range rules.MaxFolderSize/rules.MaxFileSize + 1 {
		require.NoError(t, os.WriteFile(filepath.Join(large, fmt.Sprintf("%d.yaml", i)), []byte("domain: d"+fmt.Sprint(i)+"\n#"+strings.Repeat("x", rules.MaxFileSize-20)), 0o600))
	}
	_, err = rules.Open(large, nothing{})
	require.ErrorContains(t, err, "more than 33554432 bytes in all files")
}

// Nested descriptors are read as deep as is said, and no deeper.
func TestDepth(t *testing.T) {
	nested := func(n int) string {
		return "domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", n-1) + "[{key: k}]" + strings.Repeat("}]", n-1)
	}
	_, err := rules.Open(folder(t, "a.yaml", nested(8)), nothing{})
	require.NoError(t, err)
	_, err = rules.Open(folder(t, "a.yaml", nested(9)), nothing{})
	require.ErrorContains(t, err, "is more than 8 deep")
}
