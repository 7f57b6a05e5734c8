package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// replayOf runs the command with a standard input, away from a terminal.
func replayOf(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(stdin), &out, newNotes(&err, false))
	return out.String(), err.String(), status
}

// must is the output of a run that has nothing to complain of.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	stdout, stderr, status := replayOf(t, stdin, args...)
	if status != 0 || stderr != "" {
		t.Fatalf("%q: status %d, %s", args, status, stderr)
	}
	return stdout
}

func parseJSON[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// logOf is a log of requests by a host at these seconds of a minute.
func logOf(host string, seconds ...int) string {
	var b strings.Builder
	for _, s := range seconds {
		fmt.Fprintf(&b, "%s - - [17/May/2015:12:00:%02d +0000] \"GET /a?%d HTTP/1.1\" 200 5 \"-\" \"x\"\n", host, s, s)
	}
	return b.String()
}

// Worked by hand, for 2 per 10s in granules of 5s. The request at :03 is stamped
// before the ones that were admitted earlier in the file, and refused by all: not
// one of them has room at the newest time that it knows.
//
//	                4  8 11 14 16 19 20 22 24  3 25
//	sliding-window  x  x  x  .  x  .  x  .  .  .  x   the granule of now and the one before it
//	list            x  x  .  x  .  x  .  .  x  .  .
//	hash            x  x  .  .  x  .  x  .  .  .  .   and the two before it
//	simple          x  x  x  x  .  .  x  x  .  .  .
//	token-bucket    x  x  x  x  .  x  .  .  x  .  .   levels 2 1.8 1.4 1 0.4 1 0.2 0.6 1 0 0.2
//	with burst 3    x  x  x  x  x  x  .  .  x  .  .   levels 3 2.8 2.4 2 1.4 1 0.2 0.6 1 0 0.2
func TestSmallLog(t *testing.T) {
	small := logOf("192.0.2.1", 4, 8, 11, 14, 16, 19, 20, 22, 24, 3, 25) + logOf("192.0.2.2", 25)
	for _, tt := range []struct {
		strategy, burst string
		admitted        int64 // of the first host
	}{
		{"sliding-window", "0", 6},
		{"list", "0", 5},
		{"hash", "0", 4},
		{"simple", "0", 6},
		{"token-bucket", "0", 6},
		{"token-bucket", "3", 7},
	} {
		out := must(t, small, "-strategy", tt.strategy, "-limit", "2", "-window", "10s", "-granularity", "5s", "-burst", tt.burst, "-json")
		got := parseJSON[result](t, out)
		refused := 11 - tt.admitted
		want := result{
			Requests:    12,
			Admitted:    tt.admitted + 1,
			Refused:     refused,
			Keys:        2,
			LimitedKeys: 1,
			Top:         []limited{{Key: "192.0.2.1", Refused: refused, Requests: 11}},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s, burst %s:\ngot  %v\nwant %v", tt.strategy, tt.burst, got, want)
		}
	}
}

// Times count as they are, whatever zone they are told in.
func TestZones(t *testing.T) {
	const log = `h - - [17/May/2015:12:00:00 +0000] "GET /a HTTP/1.1" 200 5
h - - [17/May/2015:14:00:09 +0200] "GET /a HTTP/1.1" 200 5
h - - [17/May/2015:04:00:10 -0800] "GET /a HTTP/1.1" 200 5
`
	got := parseJSON[result](t, must(t, log, "-strategy", "list", "-limit", "1", "-window", "10s", "-json"))
	if got.Admitted != 2 || got.Refused != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestKeys(t *testing.T) {
	const log = `a - - [17/May/2015:12:00:00 +0000] "GET /x?1 HTTP/1.1" 200 5
a - - [17/May/2015:12:00:00 +0000] "GET /x?2 HTTP/1.1" 200 5
a - - [17/May/2015:12:00:00 +0000] "GET /y HTTP/1.1" 200 5
b - - [17/May/2015:12:00:00 +0000] "POST /y HTTP/1.1" 200 5
b - - [17/May/2015:12:00:00 +0000] "-" 408 5
`
	for key, want := range map[string]result{
		"ip":      {Requests: 5, Admitted: 2, Refused: 3, Keys: 2, LimitedKeys: 2, Top: []limited{{"a", 2, 3}, {"b", 1, 2}}},
		"path":    {Requests: 5, Admitted: 3, Refused: 2, Keys: 3, LimitedKeys: 2, Top: []limited{{"/x", 1, 2}, {"/y", 1, 2}}},
		"ip+path": {Requests: 5, Admitted: 4, Refused: 1, Keys: 4, LimitedKeys: 1, Top: []limited{{"a /x", 1, 2}}},
	} {
		got := parseJSON[result](t, must(t, log, "-key", key, "-limit", "1", "-json"))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("-key %s:\ngot  %v\nwant %v", key, got, want)
		}
	}
}

// JSON has whole keys, as they are in the log.
func TestKeysInJSON(t *testing.T) {
	path := "/<b>&\"" + strings.Repeat("é", 2*shownRunes)
	line := `h - - [17/May/2015:12:00:00 +0000] "GET ` + strings.ReplaceAll(path, `"`, `\"`) + ` HTTP/1.1" 200 5` + "\n"
	out := must(t, line+line, "-key", "path", "-limit", "1", "-json")
	if want := strings.ReplaceAll(path, `"`, `\"`); parseJSON[result](t, out).Top[0].Key != want || !strings.Contains(out, "<b>&") {
		t.Errorf("got %s, want the key %s", out, want)
	}
}

func TestLimitOfNothing(t *testing.T) {
	for _, s := range strategies {
		got := parseJSON[result](t, must(t, logOf("h", 1, 2, 3), "-strategy", s.name, "-limit", "0", "-burst", "5", "-json"))
		if got.Admitted != 0 || got.Refused != 3 {
			t.Errorf("%s: got %+v", s.name, got)
		}
	}
}

// A file, compressed or not, and standard input give one report.
func TestInputs(t *testing.T) {
	text := logOf("h", 1, 2, 3)
	dir := t.TempDir()
	plain, gz := filepath.Join(dir, "access.log"), filepath.Join(dir, "access.log.gz")
	for path, text := range map[string][]byte{plain: []byte(text), gz: compressed(t, text)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := must(t, text, "-limit", "2")
	if !strings.Contains(want, "\nadmitted             2\n") {
		t.Errorf("got\n%s", want)
	}
	for name, got := range map[string]string{
		"-":                must(t, text, "-limit", "2", "-"),
		"gzip on stdin":    must(t, string(compressed(t, text)), "-limit", "2"),
		"file":             must(t, "not read", "-limit", "2", plain),
		"gzip file":        must(t, "not read", "-limit", "2", gz),
		"CRLF":             must(t, strings.ReplaceAll(text, "\n", "\r\n"), "-limit", "2"),
		"no last line end": must(t, strings.TrimSuffix(text, "\n"), "-limit", "2"),
		"blank lines":      must(t, "\n"+text+"\n\r\n\n", "-limit", "2"),
	} {
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestEmptyLog(t *testing.T) {
	got := must(t, "", "-limit", "2", "-json")
	const want = `{
  "requests": 0,
  "admitted": 0,
  "refused": 0,
  "malformed": 0,
  "keys": 0,
  "limited_keys": 0,
  "top": []
}
`
	if got != want {
		t.Errorf("got %s", got)
	}
	must(t, "", "-limit", "2", "-strategy", "all")
}

func TestMalformedLines(t *testing.T) {
	bad := []string{
		"bad",
		"\x1b]0;owned\a \x9b31m \u202e [",
		`h - - [17/May/2015] "GET / HTTP/1.1" 200 5`,
		strings.Repeat("x", 3*maxLine),
		`h - - [17/May/2015:12:00:00 +0000] "` + strings.Repeat("é", 100),
		"a sixth",
	}
	text := logOf("h", 1) + strings.Join(bad, "\n") + "\n" + logOf("h", 2)
	stdout, stderr, status := replayOf(t, text, "-limit", "1", "-json")
	got := parseJSON[result](t, stdout)
	if status != 0 || got.Requests != 2 || got.Malformed != 6 || got.Refused != 1 {
		t.Errorf("status %d, %+v", status, got)
	}
	want := `replay: line 2: does not begin with a host and a space: "bad"
replay: line 3: no time in brackets: "\x1b]0;owned\a \x9b31m \u202e ["
replay: line 4: the time is not like 17/May/2015:10:05:03 +0000: "h - - [17/May/2015] \"GET / HTTP/1.1\" 200 5"
replay: line 5: longer than 1 MB: "` + strings.Repeat("x", 100) + `"…
replay: line 6: no request in quotes after the time: "h - - [17/May/2015:12:00:00 +0000] \"` + strings.Repeat("é", 32) + `"…
`
	if stderr != want {
		t.Errorf("got\n%s\nwant\n%s", stderr, want)
	}
}

func TestJSONFields(t *testing.T) {
	one := []string{"admitted", "keys", "limited_keys", "malformed", "refused", "requests", "top"}
	text := logOf("h", 1, 2, 3)
	fields := func(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

	got := parseJSON[map[string]any](t, must(t, text, "-limit", "1", "-json"))
	if !slices.Equal(fields(got), one) {
		t.Errorf("fields %q", fields(got))
	}
	top := got["top"].([]any)[0].(map[string]any)
	if want := []string{"key", "refused", "requests"}; !slices.Equal(fields(top), want) {
		t.Errorf("fields of top %q", fields(top))
	}

	all := parseJSON[[]map[string]any](t, must(t, text, "-limit", "1", "-json", "-strategy", "all"))
	if len(all) != len(strategies) {
		t.Fatalf("%d objects", len(all))
	}
	for i, s := range strategies {
		if all[i]["strategy"] != s.name {
			t.Errorf("%d: strategy %q, want %q", i, all[i]["strategy"], s.name)
		}
		delete(all[i], "strategy")
		alone := parseJSON[map[string]any](t, must(t, text, "-limit", "1", "-json", "-strategy", s.name))
		if fmt.Sprint(all[i]) != fmt.Sprint(alone) {
			t.Errorf("%s: in all %v, alone %v", s.name, all[i], alone)
		}
	}
}

func TestRunErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.log")
	for _, args := range [][]string{{"-limit", "1", missing}, {"-limit", "1", t.TempDir()}, {"-limit", "1", ""}} {
		stdout, stderr, status := replayOf(t, logOf("h", 1), args...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "replay: ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, %q and %q", args, status, stderr, stdout)
		}
	}
}

// The report can't be written, as when a disk is full.
func TestOutputError(t *testing.T) {
	var stderr bytes.Buffer
	for _, more := range []string{"-strategy=all", "-strategy=hash", "-json"} {
		stderr.Reset()
		status := run(t.Context(), []string{"-limit", "1", more}, strings.NewReader(""), fullDisk{}, newNotes(&stderr, false))
		if status != 1 || stderr.String() != "replay: disk full\n" {
			t.Errorf("%s: status %d, %q", more, status, &stderr)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, fmt.Errorf("disk full") }

// Progress is for terminals, and leaves nothing on the screen.
func TestProgress(t *testing.T) {
	// Each line is ready when it is time for the next word of progress.
	n := newNotes(nil, true)
	slow := func() io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			n.next = time.Time{}
			return copy(p, logOf("h", 1)), nil
		})
	}
	var stderr bytes.Buffer
	for _, tt := range []struct {
		terminal bool
		want     string
	}{
		{true, "\r1 lines\x1b[K\r2 lines\x1b[K\r\x1b[K"},
		{false, ""},
	} {
		stderr.Reset()
		*n = *newNotes(&stderr, tt.terminal)
		length := int64(len(logOf("h", 1)))
		status := run(t.Context(), []string{"-limit", "1"}, io.LimitReader(slow(), 2*length), io.Discard, n)
		if status != 0 || stderr.String() != tt.want {
			t.Errorf("terminal %v: status %d, %q, want %q", tt.terminal, status, &stderr, tt.want)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
