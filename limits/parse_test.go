package limits_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

func TestParse(t *testing.T) {
	want := []limits.Limit{
		{Resource: "search", Quotas: []ratelimit.Quota{{Limit: 100, Window: time.Minute}}},
		{Resource: "search", Account: "acct-1", Quotas: []ratelimit.Quota{{Limit: 0, Window: time.Minute}}},
		{Resource: "search", Account: "12", Quotas: []ratelimit.Quota{
			{Limit: 1000, Window: time.Minute, Granularity: 5 * time.Second, Burst: 20, Name: "per minute"},
			{Limit: 9000, Window: time.Hour, PrefixOverride: "all"},
		}},
	}
	for name, text := range map[string]string{
		"yaml": `# of the search service
limits:
- resourceName: search
  limit: 100 # the default
  windowSec: 60
- {resourceName: search, accountId: acct-1, limit: 0, windowSec: 60}
- resourceName: 'search'
  accountId: "12"
  quotas:
  - {limit: 1000, window: 1m, granularity: 5s, burst: 20, name: per minute}
  - limit: 9000
    window: 1h
    prefixOverride: all
`,
		"json": `{"limits":[{"resourceName":"search","limit":100,"windowSec":60},{"resourceName":"search","accountId":"acct-1","limit":0,"windowSec":60},
			{"resourceName":"search","accountId":"\u0031\u0032","quotas":[{"limit":1000,"window":"60s","granularity":"5s","burst":20,"name":"per minute"},
			{"limit":9000,"window":"1h","prefixOverride":"all"}]}]}`,
		"json in tabs": "\ufeff{\n\t\"limits\": [\n\t\t{\"resourceName\": \"search\", \"limit\": 100, \"windowSec\": 60},\n\t\t{\n\t\t\t\"resourceName\": \"search\",\n\t\t\t\"accountId\": \"acct-1\",\n\t\t\t\"limit\": 0,\n\t\t\t\"windowSec\": 60\n\t\t},\n" +
			"\t\t{\"resourceName\": \"search\", \"accountId\": \"12\", \"quotas\": [{\"limit\": 1000, \"window\": \"1m\", \"granularity\": \"5s\", \"burst\": 20, \"name\": \"per minute\"}, {\"limit\": 9000, \"window\": \"1h\", \"prefixOverride\": \"all\"}]}\n\t]\n}\n",
		"crlf and a header": "---\r\nlimits:\r\n  - resourceName: search\r\n    limit: 100\r\n    windowSec: 60\r\n  - {resourceName: search, accountId: acct-1, limit: 0, windowSec: 60}\r\n" +
			"  - {resourceName: search, accountId: '12', quotas: [{limit: 1000, window: 1m, granularity: 5s, burst: 20, name: per minute}, {limit: 9000, window: 1h, prefixOverride: all}]}\r\n",
	} {
		got, err := limits.Parse([]byte(text))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	none, err := limits.Parse([]byte("limits: []"))
	require.NoError(t, err)
	require.Empty(t, none)
}

// entry is a file with one limit, whose last field is given.
func entry(last string) string {
	return "limits:\n- resourceName: r\n  accountId: a\n  " + last
}

func quota(last string) string { return entry("quotas:\n  - limit: 1\n    " + last) }

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		// numbers
		entry("limit: -1\n  windowSec: 60"):                     "line 4, column 10: limits[0].limit: -1 is negative",
		entry("limit: 10.5\n  windowSec: 60"):                   "line 4, column 10: limits[0].limit: 10.5 is not a whole number",
		entry("limit: 1e3\n  windowSec: 60"):                    `line 4, column 10: limits[0].limit: "1e3" is not a whole number`,
		entry("limit: 1.0\n  windowSec: 60"):                    "limits[0].limit: 1.0 is not a whole number",
		entry("limit: 010\n  windowSec: 60"):                    "limits[0].limit: 010 is not a whole number in plain digits",
		entry("limit: 0x10\n  windowSec: 60"):                   "limits[0].limit: 0x10 is not a whole number",
		entry("limit: 0o17\n  windowSec: 60"):                   "limits[0].limit: 0o17 is not",
		entry("limit: 0b11\n  windowSec: 60"):                   "limits[0].limit: 0b11 is not",
		entry("limit: 1_000\n  windowSec: 60"):                  "limits[0].limit: 1_000 is not",
		entry("limit: +5\n  windowSec: 60"):                     "limits[0].limit: +5 is not",
		entry("limit: -0\n  windowSec: 60"):                     "limits[0].limit: -0 is not",
		entry("limit: \"10\"\n  windowSec: 60"):                 `limits[0].limit: "10" is not a whole number`,
		entry("limit: ten\n  windowSec: 60"):                    `limits[0].limit: "ten" is not`,
		entry("limit:\n  windowSec: 60"):                        "limits[0].limit: null is not",
		entry("limit: .inf\n  windowSec: 60"):                   "limits[0].limit: .inf is not",
		entry("limit: .nan\n  windowSec: 60"):                   "limits[0].limit: .nan is not",
		entry("limit: true\n  windowSec: 60"):                   "limits[0].limit: true is not",
		entry("limit: [1]\n  windowSec: 60"):                    "limits[0].limit: a list is not",
		entry("limit: {a: 1}\n  windowSec: 60"):                 "limits[0].limit: a mapping is not",
		entry("limit: 99999999999999999999\n  windowSec: 60"):   "limits[0].limit: 99999999999999999999 is out of range",
		entry("limit: 9007199254740992\n  windowSec: 60"):       "line 4, column 10: limits[0].limit: ratelimit: invalid quota: Limit 9007199254740992 is above 9007199254740991",
		entry("limit: 5\n  windowSec: 0"):                       "line 5, column 14: limits[0].windowSec: ratelimit: invalid quota: Window 0s is under 1ms",
		entry("limit: 5\n  windowSec: -60"):                     "limits[0].windowSec: -60 is negative",
		entry("limit: 5\n  windowSec: 0.5"):                     "limits[0].windowSec: 0.5 is not a whole number",
		entry("limit: 5\n  windowSec: 9223372036854775807"):     "limits[0].windowSec: 9223372036854775807 is more than 71 years",
		entry("limit: 5\n  windowSec: 3000000000"):              "limits[0].windowSec: ratelimit: invalid quota: Window",
		`{"limits":[{"resourceName":"r","limit":1e3}]}`:         `line 1, column 40: limits[0].limit: "1e3" is not`,
		`{"limits":[{"resourceName":"r","limit":NaN}]}`:         `limits[0].limit: "NaN" is not`,
		`{"limits":[{"resourceName":"r","limit":1,"limit":2}]}`: `line 1, column 42: mapping key "limit" already defined`,

		// fields
		entry("limit: 5"):     "line 2, column 3: limits[0].windowSec: is missing",
		entry("windowSec: 5"): "limits[0].limit: is missing",
		entry("limit: 5\n  windowSec: 60\n  windowMs: 5"):         "line 6, column 3: limits[0].windowMs: unknown field; there are resourceName",
		entry("limit: 5\n  Limit: 60"):                            "limits[0].Limit: unknown field",
		entry("limit: 5\n  limit: 6"):                             `line 5, column 3: mapping key "limit" already defined`,
		entry("limit: 5\n  windowSec: 5\n  quotas: []"):           "line 4, column 10: limits[0].limit: stands beside quotas",
		entry("windowSec: 5\n  quotas: []"):                       "limits[0].windowSec: stands beside quotas",
		entry("quotas: []"):                                       `line 2, column 3: limits[0]: resource "r", account "a": there are no quotas`,
		entry("quotas: 5"):                                        "limits[0].quotas: 5 is not a list",
		entry("quotas: [5]"):                                      "limits[0].quotas[0]: 5 is not a mapping with the fields limit, window",
		"limits:\n- limit: 5\n  windowSec: 5":                     "line 2, column 3: limits[0].resourceName: is missing",
		"limits:\n- resourceName: ''\n  limit: 5\n  windowSec: 5": "the resource is empty",
		"limits:\n- resourceName: 5":                              "line 2, column 17: limits[0].resourceName: 5 is not text: put it in quotes",
		"limits:\n- resourceName: [a]":                            "limits[0].resourceName: a list is not text",
		"limits:\n- resourceName: r\n  accountId: 0123":           "limits[0].accountId: 0123 is not text: put it in quotes",
		"limits:\n- resourceName: r\n  accountId: null":           "limits[0].accountId: null is not text",
		"limits:\n- resourceName: r\n  accountId: ''":             "line 3, column 14: limits[0].accountId: is empty: leave it out",
		"limits:\n- resourceName: r\n  accountId: " + strings.Repeat("x", 257) + "\n  limit: 1\n  windowSec: 1":                      "has 257 bytes, at most 256",
		"limits:\n- resourceName: r\n  limit: 1\n  windowSec: 1\n- resourceName: r\n  limit: 1\n  windowSec: 1":                      `line 5, column 3: limits[1]: the default of resource "r" is there already, in line 2`,
		"limits: [{resourceName: r, accountId: a, limit: 1, windowSec: 1}, {resourceName: r, accountId: a, limit: 2, windowSec: 1}]": `limits[1]: resource "r", account "a" is there already, in line 1`,
		"limits:\n- 5":           "line 2, column 3: limits[0]: 5 is not a mapping",
		"limits:\n-":             "limits[0]: null is not a mapping",
		"limits:":                "limits: null is not a list",
		"limits: {a: b}":         "limits: a mapping is not a list",
		"limit: []":              "line 1, column 1: limit: unknown field; there are limits",
		"limits: []\nservice: x": "line 2, column 1: service: unknown field",
		"{}":                     "line 1, column 1: limits: is missing",
		"5":                      "5 is not a mapping",
		"- limits: []":           "a list is not a mapping",

		// quotas
		quota("window: 30"):                                           "line 6, column 13: limits[0].quotas[0].window: 30 is not text",
		quota("window: 30 s"):                                         `limits[0].quotas[0].window: "30 s" is not a duration such as 30s`,
		quota("window: 1d"):                                           `"1d" is not a duration`,
		quota("window: -5s"):                                          "limits[0].quotas[0].window: -5s is not above zero",
		quota("window: 0s"):                                           "0s is not above zero",
		quota("window: 1us"):                                          "line 5, column 5: limits[0].quotas[0]: ratelimit: invalid quota: Window 1µs is under 1ms",
		quota("window: 1m\n    granularity: 7s"):                      "limits[0].quotas[0]: ratelimit: invalid quota: Granularity 7s does not divide Window 1m0s",
		quota("window: 1m\n    burst: -1"):                            "limits[0].quotas[0].burst: -1 is negative",
		quota("window: 1m\n    name: 5"):                              "limits[0].quotas[0].name: 5 is not text",
		quota("window: 1m\n    windowSec: 5"):                         "line 7, column 5: limits[0].quotas[0].windowSec: unknown field; there are limit, window",
		quota("granularity: 5s"):                                      "line 5, column 5: limits[0].quotas[0].window: is missing",
		quota("window: 1m\n  - limit: 5\n    window: 60s"):            "two quotas have the Window 1m0s",
		entry("quotas: [{limit: 0, window: 1m, burst: 5}]"):           "Burst 5 with Limit 0",
		entry("quotas: [{limit: 1, window: 1m, burst: 1e3}]"):         `limits[0].quotas[0].burst: "1e3" is not a whole number`,
		entry("quotas: [{limit: 1, window: 1m, window: 2m}]"):         `mapping key "window" already defined`,
		entry("quotas: [{limit: 1, window: \"\\xZZ\"}]"):              "line 4, column",
		entry("quotas: [{limit: 1, window: &x 1m, granularity: *x}]"): "an anchor (&) is not allowed",

		// text that is no such file
		"":                                    "the text is empty",
		"# nothing\n":                         "the text is empty",
		"limits: []\n---\nlimits: []":         "line 2, column 1: a second document begins",
		"limits: []\n---\n":                   "line 2, column 1: a second document begins",
		"limits: [":                           "line 1, column 9: sequence end token ']' not found",
		`{"limits":[]`:                        "line 1, column 1: could not find flow mapping end token '}'",
		`{"limits":[]}}`:                      "line 1, column 14: ",
		"limits: []\n bad":                    "line ",
		"\tlimits: []":                        "tab character",
		"limits: *x":                          "an alias (*) is not allowed",
		"limits: !!seq []":                    "a tag (!!seq) is not allowed",
		"<<: {limits: []}":                    "a merge key (<<) is not allowed",
		"? limits\n: []":                      "a complex key (?) is not allowed",
		"%YAML 1.2\n---\nlimits: []":          "a directive (%) is not allowed",
		"limits:\n- resourceName: |\n    r\n": "a block of text (|) is not allowed",
		"limits: []\n# \xff":                  "line 2, column 3: the text is not UTF-8",
		"limits:\n- {resourceName: r, accountId: 0128}": "line 2, column 32: limits[0].accountId: 0128 is not text: put it in quotes",
		"limits:\n- {resourceName: r, accountId: 1e3}":  "limits[0].accountId: 1e3 is not text: put it in quotes",
		strings.Repeat(" ", limits.MaxFileSize+1):       "4194305 bytes, at most 4194304",
	} {
		list, err := limits.Parse([]byte(text))
		require.ErrorIs(t, err, limits.ErrInvalidLimit, "%.200q", text)
		require.Nil(t, list)
		require.ErrorContains(t, err, want, "%.200q", text)
		require.NotContains(t, err.Error(), "\n")
	}
}

// What would take the parser minutes, or the stack, is refused before it.
func TestParseHostile(t *testing.T) {
	const size = 1 << 16
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, text := range map[string]string{
		"flow":          fill("["),
		"flow mappings": fill("{a: "),
		"entries":       fill("- "),
		"commas":        "[" + fill(","),
		"keys":          fill("k: 1\n"),
		"flow keys":     "{" + fill("a,") + "}",
		"tags":          "limits: " + fill("!a "),
		"questions":     fill("? "),
	} {
		_, err := limits.Parse([]byte(text))
		require.ErrorIs(t, err, limits.ErrInvalidLimit, name)
		require.Regexp(t, "nested more than 32 deep|more than 64 fields|not allowed|expected sequence element|no colon", err.Error(), name)
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	_, err := limits.ReadFile(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, path, "limits:\n- {resourceName: r, limit: x}\n")
	_, err = limits.ReadFile(path)
	require.EqualError(t, err, path+`: limits: invalid limit: line 2, column 28: limits[0].limit: "x" is not a whole number in plain digits`)
	write(t, path, strings.Repeat("#", limits.MaxFileSize+1))
	_, err = limits.ReadFile(path)
	require.ErrorContains(t, err, path+": limits: invalid limit: more than 4194304 bytes")
	_, err = limits.ReadFile(t.TempDir())
	require.Error(t, err)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// What is read can be written in the same form and read again.
func FuzzParse(f *testing.F) {
	f.Add("limits:\n- resourceName: r\n  limit: 1\n  windowSec: 1\n- {resourceName: r, accountId: a, quotas: [{limit: 0, window: 1m}]}")
	f.Add(`{"limits":[{"resourceName":"r","limit":1,"windowSec":60}]}`)
	f.Add("? a\n: [&x {}, *x, !!int 3, <<: |\n x")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := limits.Parse([]byte(text))
		if err != nil {
			require.ErrorIs(t, err, limits.ErrInvalidLimit)
			return
		}
		for _, l := range list {
			require.NoError(t, l.Validate())
		}
		again, err := limits.Parse([]byte(written(list)))
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}

// written is a file of limits, as JSON but for the letter that needs \x.
func written(list []limits.Limit) string {
	var b strings.Builder
	b.WriteString("limits: [")
	for _, l := range list {
		fmt.Fprintf(&b, "{resourceName: %s", quotedYAML(l.Resource))
		if l.Account != "" {
			fmt.Fprintf(&b, ", accountId: %s", quotedYAML(l.Account))
		}
		b.WriteString(", quotas: [")
		for _, q := range l.Quotas {
			fmt.Fprintf(&b, "{limit: %d, window: %v, burst: %d, name: %s, prefixOverride: %s", q.Limit, q.Window, q.Burst, quotedYAML(q.Name), quotedYAML(q.PrefixOverride))
			if q.Granularity != 0 {
				fmt.Fprintf(&b, ", granularity: %v", q.Granularity)
			}
			b.WriteString("},")
		}
		b.WriteString("]},")
	}
	return b.String() + "]"
}

// quotedYAML writes everything but plain letters as \u.
func quotedYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r > ' ' && r < 127 && r != '"' && r != '\\' {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\U%08x", r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
