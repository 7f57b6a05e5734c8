package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func allLines(l *log) (lines []string, err error) {
	for {
		line, err := l.next()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

func TestLogLines(t *testing.T) {
	longest := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", nil},
		{"one byte", "a", []string{"a"}},
		{"lines", "a\nb\n", []string{"a", "b"}},
		{"no end of the last line", "a\nb", []string{"a", "b"}},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}},
		{"CR is no end", "a\rb\n", []string{"a\rb"}},
		{"empty lines", "a\n\nb\n\n", []string{"a", "", "b", ""}},
		{"longest", longest + "\n" + longest + "\r\n" + longest, []string{longest, longest, longest}},
	} {
		for kind, text := range map[string][]byte{"plain": []byte(tt.text), "gzip": compressed(t, tt.text)} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				l, err := openLog(t.Context(), "-", bytes.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				got, err := allLines(l)
				if err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("got %.200q, %v, want %.200q", got, err, tt.want)
				}
			})
		}
	}
}

func TestLogLongLines(t *testing.T) {
	for _, n := range []int{maxLine + 1, maxLine + 2, maxLine + 3, 3*maxLine + 1} {
		text := strings.Repeat("x", n)
		for _, end := range []string{"\n", "\r\n", ""} {
			l, err := openLog(t.Context(), "-", strings.NewReader("a\n"+text+"\nb\n"+text+end))
			if err != nil {
				t.Fatal(err)
			}
			got, err := allLines(l)
			if err != nil || len(got) != 4 || got[0] != "a" || got[2] != "b" {
				t.Fatalf("%d bytes, end %q: got %d lines, %v", n, end, len(got), err)
			}
			for _, line := range []string{got[1], got[3]} {
				if _, err := parseLine(line); err != errTooLong {
					t.Errorf("%d bytes, end %q: %v", n, end, err)
				}
			}
		}
	}
}

// A line that never ends costs no more memory than one that is as long as a line
// may be.
func TestLogEndlessLine(t *testing.T) {
	const size = 1 << 26
	l, err := openLog(t.Context(), "-", io.LimitReader(endless{}, size))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	lines, err := allLines(l)
	runtime.ReadMemStats(&after)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*maxLine {
		t.Errorf("a line of %d bytes took %d bytes of memory", size, grown)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What is compressed is told by its bytes, whatever the file is called.
func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	two := append(compressed(t, "a\n"), compressed(t, "b\n")...) // as logs are concatenated
	for name, text := range map[string][]byte{"plain.gz": []byte("a\nb\n"), "gzip.log": two} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := openLog(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := allLines(l)
		if err != nil || !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if part, known := l.done(); part != 1 || !known {
			t.Errorf("%s: at the end %v, %v is done", name, part, known)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLogFailures(t *testing.T) {
	broken := errors.New("broken")
	whole := compressed(t, "a\nb\n")
	for _, tt := range []struct {
		name string
		r    io.Reader
		want string
	}{
		{"at once", iotest.ErrReader(broken), "line 1 of the log: broken"},
		{"in a line", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), "line 2 of the log: broken"},
		{"in a long line", io.MultiReader(strings.NewReader(strings.Repeat("x", 2*maxLine)), iotest.ErrReader(broken)), "line 1 of the log: broken"},
		{"no gzip after all", strings.NewReader("\x1f\x8babcdefghijkl"), "line 1 of the log: gzip: invalid header"},
		{"cut off", bytes.NewReader(whole[:len(whole)-9]), "line 3 of the log: unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := openLog(t.Context(), "-", tt.r)
			if err == nil {
				_, err = allLines(l)
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// An interrupt ends a read that would wait for ever.
func TestLogInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		_, _ = io.WriteString(w, "a\nb")
		cancel()
	}()
	l, err := openLog(ctx, "-", r)
	if err == nil {
		_, err = allLines(l)
	}
	if !errors.Is(err, errInterrupted) {
		t.Errorf("got %v", err)
	}
}

// It also ends the reading of lines that are in memory already.
func TestLogInterruptBetweenLines(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := openLog(ctx, "-", strings.NewReader("a\nb\nc\n"))
	if err != nil {
		t.Fatal(err)
	}
	if line, err := l.next(); string(line) != "a" || err != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	cancel()
	if line, err := l.next(); err == nil || err.Error() != "line 2 of the log: interrupted" {
		t.Errorf("got %q, %v", line, err)
	}
}
