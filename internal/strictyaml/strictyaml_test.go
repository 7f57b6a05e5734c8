package strictyaml_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/strictyaml"
)

func TestRead(t *testing.T) {
	for name, text := range map[string]string{
		"yaml": "---\nname: a b\nn: 12\nok: true\nwindow: 90s\ncode: 0404\nlist:\n- x\n- y\n",
		"json": "\ufeff{\n\t\"name\": \"a b\", \"n\": 12, \"ok\": true, \"window\": \"90s\",\r\n \"code\": 0404, \"list\": [\"x\", \"y\"]}",
	} {
		t.Run(name, func(t *testing.T) {
			root, err := strictyaml.Parse(text)
			require.NoError(t, err)
			f, _, err := root.Fields("name", "n", "ok", "window", "code", "list", "other")
			require.NoError(t, err)
			s, err := f.Need("name").Text()
			require.NoError(t, err)
			require.Equal(t, "a b", s)
			n, err := f.Need("n").Whole()
			require.NoError(t, err)
			require.EqualValues(t, 12, n)
			ok, err := f.Need("ok").Bool()
			require.NoError(t, err)
			require.True(t, ok)
			d, err := f.Need("window").Duration()
			require.NoError(t, err)
			require.Equal(t, 90*time.Second, d)
			code, err := f.Need("code").Scalar()
			require.NoError(t, err)
			require.Equal(t, "0404", code)
			list, err := f.Need("list").List()
			require.NoError(t, err)
			require.Len(t, list, 2)
			_, there := f.Get("other")
			require.False(t, there)
			_, err = f.Need("other").Text()
			require.ErrorContains(t, err, "other: is missing")
		})
	}
}

// A fault has its place, also of what would take the parser too long.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "line 1, column 1: the text is empty",
		"a: 1\n---\nb: 2":             "line 3, column 1: a second document begins",
		"a: &x 1":                     "line 1, column 4: an anchor (&) is not allowed",
		"a: |\n  text":                "a block of text",
		"a: 1\na: 2":                  `line 2, column 1: mapping key "a" already defined`,
		"a: [1":                       "line 1, column",
		strings.Repeat("[", 1000):     "nested more than 32 deep",
		strings.Repeat("- ", 1000):    "nested more than 32 deep",
		strings.Repeat("a: 1\n", 100): "more than 64 fields",
		"{" + strings.Repeat(`"a": {}, `, 1) + "\"\x00": "line 1",
	} {
		_, err := strictyaml.Parse(text)
		require.ErrorContains(t, err, want, "%.20q", text)
		var fault *strictyaml.Fault
		require.True(t, errors.As(err, &fault), text)
		require.Positive(t, fault.Line)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"n: -1":                   "line 1, column 4: n: -1 is negative",
		"n: 1.5":                  "n: 1.5 is not a whole number in plain digits",
		"n: 010":                  "n: 010 is not",
		"n: 1e3":                  `n: "1e3" is not`,
		"n: \"1\"":                `n: "1" is not`,
		"n:":                      "n: null is not",
		"n: 99999999999999999999": "out of range",
		"m: 1\nx: 2":              "line 1, column 1: m: unknown field; there are n\nline 2, column 1: x: unknown field",
		"[]":                      "a list is not a mapping with the fields n",
		"{}":                      "n: is missing",
	} {
		root, err := strictyaml.Parse(text)
		require.NoError(t, err)
		f, _, err := root.Fields("n")
		if err == nil {
			_, err = f.Need("n").Whole()
		}
		require.ErrorContains(t, err, want, text)
	}
}

// Nothing that is read brings the reader down.
func FuzzParse(f *testing.F) {
	f.Add("a: [1, {b: c}]\n")
	f.Add("{\"a\": {\"b\": null}}")
	f.Fuzz(func(t *testing.T, text string) {
		root, err := strictyaml.Parse(text)
		if err != nil {
			var fault *strictyaml.Fault
			require.True(t, errors.As(err, &fault))
			return
		}
		fields, _, _ := root.Fields("a")
		_, _ = fields.Need("a").Whole()
	})
}
