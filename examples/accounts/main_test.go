package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program under test: what it prints, and its file.
type program struct {
	t     *testing.T
	lines *bufio.Scanner
	path  string
}

func (p program) write(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path+".new", []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.path+".new", p.path); err != nil {
		p.t.Fatal(err)
	}
}

// until reads lines until one begins with the text.
func (p program) until(text string) {
	p.t.Helper()
	for p.lines.Scan() {
		if strings.HasPrefix(p.lines.Text(), text) {
			return
		}
	}
	p.t.Fatalf("it ended before it printed %q", text)
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, w := io.Pipe()
	p := program{t, bufio.NewScanner(stdout), filepath.Join(t.TempDir(), "limits.yaml")}
	example, err := os.ReadFile("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(example), "windowSec: 10", "windowSec: 86400")
	p.write(text)
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, w, p.path, 2*time.Millisecond)
		w.Close()
	}()
	p.until("acme     allowed, 19 left")
	p.until("spammer  refused")
	p.until("someone  allowed, 4 left")
	p.until("someone  refused")

	p.write(strings.ReplaceAll(text, "limit: 5,", "limit: 100000,"))
	p.until("new limits")
	p.until("someone  allowed, 999") // less what was used before
	p.write("limits: broken")
	p.until(`the limits stay as they are: ` + p.path + `: limits: invalid limit: line 1, column 9: limits: "broken" is not a list`)
	p.until("someone  allowed, 99")
	p.write(strings.ReplaceAll(text, "limit: 0,", "limit: 100000,"))
	p.until("new limits")
	p.until("spammer  allowed, 9999")
	p.until("someone  refused") // it has used more than the old limit, which is back

	cancel()
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), io.Discard, "nowhere", time.Second); err == nil {
		t.Error("a file that is none: nil, want an error")
	}
}
