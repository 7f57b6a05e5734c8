package strictyaml_test

import (
	"errors"
	"fmt"
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
		"a: 1\n---\nb: 2":             "line 2, column 1: a second document begins",
		"a: 1\n---\n":                 "line 2, column 1: a second document begins",
		"---\n---\na: 1":              "line 2, column 1: a second document begins",
		"a: 1\n...\n# c\nb: 2":        "line 4, column 1: a second document begins",
		"a: &x 1":                     "line 1, column 4: an anchor (&) is not allowed",
		"a: |\n  text":                "a block of text",
		"a: 1\na: 2":                  `line 2, column 1: mapping key "a" already defined`,
		"a: [1":                       "line 1, column",
		strings.Repeat("[", 1000):     "nested more than 32 deep",
		strings.Repeat("- ", 1000):    "nested more than 32 deep",
		strings.Repeat("a: 1\n", 100): "more than 64 fields",

		// a tab that the lexer would drop
		"n: 1\t0":                  `line 1, column 4: "1\t0" has a tab in it: use a space, or put it in quotes`,
		"a: 1\npath: POST\t/login": `line 2, column 7: "POST\t/login" has a tab in it`,
		"{a: x, pa\tth: y}":        `line 1, column 8: "pa\tth" has a tab in it`,
		"- a\tb":                   `line 1, column 3: "a\tb" has a tab in it`,

		// JSON that is none
		`{"a":: "b"}`:                  `line 1, column 6: : "b" has a colon that could be a field's: put it in quotes if it is meant`,
		`{"a": "b" "c": "d"}`:          `line 1, column 11: c: a field is not expected here: write fields in { }, with commas between them`,
		`{"a"::"b"}`:                   `line 1, column 6: :"b" has a colon that`,
		`{"a"::5}`:                     `line 1, column 6: :5 has a colon that`,
		`{"a": :"b"}`:                  `line 1, column 7: :"b" has a colon that`,
		"{a: b c: d}":                  "line 1, column 5: b c: d has a colon that",
		"{a: b:}":                      "line 1, column 5: b: has a colon that",
		`{"a": "b", "c"}`:              `line 1, column 12: c: there is no colon, and no value`,
		`{a: {b, }}`:                   "line 1, column 6: b: there is no colon, and no value",
		`{"a": b: c}`:                  "line 1, column 7: b: c has a colon that",
		`["a": "b"]`:                   "line 1, column 2: a: a field is not expected here",
		"[\n- a]":                      "line 2, column 1: a dash for a list within brackets: write [ ]",
		`{"a": []}]`:                   "line 1, column 10: ] closes nothing that is open here",
		`{"a": [}]`:                    "line 1, column 8: } closes nothing that is open here",
		"# é\n" + `{"a": "b\u00zz"}`:   "line 2, column 9: the escape in the quoted text is no character: write",
		`{a: C:\users, "b": "\users"}`: "line 1, column 21: the escape in the quoted text is no character",
		`a: "\xz0"`:                    "line 1, column 5: the escape",
		`a: "\\\x"`:                    "line 1, column 7: the escape",
		`a: "\udc00"`:                  "line 1, column 5: the escape",
		`a: "\ud83d\u0041"`:            "line 1, column 5: the escape",
		`a: "\U00110000"`:              "line 1, column 5: the escape",
		`a: "\q"`:                      "found unknown escape character 'q'",

		"a: é\n# é\xff":      "line 2, column 4: the text is not UTF-8",
		"\xff":               "line 1, column 1: the text is not UTF-8",
		"\ufeffa: b\r\n\xc3": "line 2, column 1: the text is not UTF-8",

		// names and values that are too long to be told
		strings.Repeat("k", 65) + ": 1":                 "line 1, column 1: " + strings.Repeat("k", 65) + ": a field's name has 65 bytes, at most 64",
		"a: &" + strings.Repeat("x", 1<<20):             "an anchor (&) is not allowed",
		"{a: é: " + strings.Repeat("é", 1<<20):          "é…é",
		"{" + strings.Repeat(`"a": {}, `, 1) + "\"\x00": "line 1",
	} {
		_, err := strictyaml.Parse(text)
		require.ErrorContains(t, err, want, "%.20q", text)
		var fault *strictyaml.Fault
		require.True(t, errors.As(err, &fault), text)
		require.Positive(t, fault.Line)
		require.Less(t, len(fault.Message), 600)
	}
}

// What is in quotes, or between the parts of a text, is no fault.
func TestParseTakes(t *testing.T) {
	for text, want := range map[string]string{
		"a:\tx\t# c":                            "x",
		"a: \"x\ty\"":                           "x\ty",
		`a: ":b"`:                               ":b",
		"a: ::1":                                "::1",
		"a:\n  ::1":                             "::1",
		"{a:\n:path}":                           ":path",
		"{a: :path}":                            ":path",
		"a: b:c":                                "b:c",
		`a: C:\users\xyz`:                       `C:\users\xyz`,
		`a: 'C:\users'`:                         `C:\users`,
		"# \\u\na: \"x\\\\user\"":               `x\user`,
		`a: "\x41\u00e9\U0001f600\ud83d\ude00"`: "Aé😀😀",
		"{\n\t\"a\": \"x\", # c\n}":             "x",
		"---\na: x\n...\n# c\n":                 "x",
	} {
		root, err := strictyaml.Parse(text)
		require.NoError(t, err, text)
		f, _, err := root.Fields("a")
		require.NoError(t, err, text)
		got, err := f.Need("a").Text()
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// A fault of a text from Windows is in the line where it is in others.
func TestLinesOfCRLF(t *testing.T) {
	for _, text := range []string{
		"# c\n# d\n\nn: x # e\n",
		"m: 'a\n  b'\nn: x\n",
		"m: \"a\n\n  b\"\n# c\nn: x\n",
		"m: a\n  b\nn: x\n",
		"{\n  # c\n  \"m\": \"a\",\n\n  \"n\": \"x\"\n}\n",
	} {
		fault := func(text string) string {
			root, err := strictyaml.Parse(text)
			require.NoError(t, err)
			f, _, err := root.Fields("m", "n")
			require.NoError(t, err)
			_, err = f.Need("n").Whole()
			require.Error(t, err)
			return err.Error()
		}
		require.Equal(t, fault(text), fault(strings.ReplaceAll(text, "\n", "\r\n")))
	}
}

// No text takes the parser minutes, and none that is merely large is refused.
func TestSize(t *testing.T) {
	const size = 1 << 18
	fill := func(form string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.ReplaceAll(form, "@", fmt.Sprint(i)))
		}
		return b.String()
	}
	for text, want := range map[string]string{
		fill("k@: []\n"):                      "more than 64 fields",
		fill("k@:\n- x\n"):                    "more than 64 fields",
		"{" + fill("k@: {}, ") + "}":          "more than 64 fields",
		"a:\n- " + fill("k@: 1\n  "):          "more than 64 fields",
		fill("-\n"):                           "values before this one are left empty, which are too many",
		fill("- a:\n"):                        "are left empty",
		"[" + fill("{a: }, ") + "]":           "are left empty",
		strings.Repeat("]", size) + "[":       "] closes nothing",
		"a: \"" + fill("x\t") + "\"":          "line 1, column 1: more than 100 tabs in a line",
		"a: " + fill("<"):                     "line 1, column 1: more than 100 < in a row",
		"a: |\n" + fill("\n"):                 "line 102, column 1: more than 100 empty lines in a row",
		"a: |\n" + fill("\r "):                "empty lines in a row",
		fill("---\na\n"):                      "a second document",
		fill("k") + ": [" + fill("x, ") + "]": "a field's name has",
		strings.Repeat("- ", 33):              "nested more than 32 deep",
		indented(40, "- a:\n"):                "nested more than 32 deep",
	} {
		begun := time.Now()
		_, err := strictyaml.Parse(text)
		require.ErrorContains(t, err, want, "%.20q", text)
		require.Less(t, time.Since(begun), 10*time.Second, "%.20q", text)
	}
	for _, text := range []string{
		fill("- {resource: r, account: a@, limit: 1, quotas: [{limit: 1}, {limit: 2}]}\n"),
		fill("- resource: r\n  # c\n  account: a@\n  quotas:\n  - limit: 1\n    window: 1s\n  - limit: 2\n"),
		"[" + fill("{\"resource\": \"r\", \"account\": \"a@\"},\n") + "]",
		indented(16, "- a:\n"),
		strings.Repeat("- a:\n", 1000),
	} {
		_, err := strictyaml.Parse(text)
		require.NoError(t, err, "%.20q", text)
	}
}

// indented is a line again and again, each time one further to the right.
func indented(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("  ", i) + line)
	}
	return b.String()
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

// A number in the place of text is none, whoever would read it as one.
func TestTextRefuses(t *testing.T) {
	for _, number := range []string{"0123", "0128", "1e3", "1E400", "-1.5e3", "1_000", "0x1p-2", ".5", "true", "null", "[]"} {
		root, err := strictyaml.Parse("- " + number)
		require.NoError(t, err)
		list, err := root.List()
		require.NoError(t, err)
		_, err = list[0].Text()
		require.ErrorContains(t, err, "is not text: put it in quotes", number)
	}
	for _, text := range []string{"inf", "NaN", "10.0.0.1", "2001-01-01", "12:30", "e3", "1e", "'0128'", `"1e3"`} {
		root, err := strictyaml.Parse("- " + text)
		require.NoError(t, err)
		list, err := root.List()
		require.NoError(t, err)
		got, err := list[0].Text()
		require.NoError(t, err)
		require.Equal(t, strings.Trim(text, `'"`), got)
	}
}

// Of a great many unknown fields some are told, of a long value its ends.
func TestErrorsAreShort(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	root, err := strictyaml.Parse(b.String())
	require.NoError(t, err)
	_, _, err = root.Fields("a")
	require.ErrorContains(t, err, "k19: unknown field; there are a\n")
	require.ErrorContains(t, err, "and 40 more unknown fields")
	require.NotContains(t, err.Error(), "k20")

	root, err = strictyaml.Parse(strings.Repeat("x", 1<<20))
	require.NoError(t, err)
	_, err = root.Duration()
	require.ErrorContains(t, err, "xx…xx")
	require.ErrorContains(t, err, "is not a duration such as")
	require.Less(t, len(err.Error()), 600)
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
