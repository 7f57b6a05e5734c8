package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// until reads lines until one has the text, and returns it.
func until(t *testing.T, lines *bufio.Scanner, text string) string {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return lines.Text()
		}
	}
	t.Fatalf("it ended before it printed %q", text)
	return ""
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func TestRun(t *testing.T) {
	example, err := os.ReadFile("rules/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, path, string(example))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, w := io.Pipe()
	lines := bufio.NewScanner(stdout)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, w, filepath.Dir(path), "localhost:0", time.Millisecond)
		w.Close()
	}()
	url := until(t, lines, "http://")

	for i, want := range []int{200, 200, 429} {
		got := make(chan int, 1)
		go func() { got <- status(t, url+"/hello/you") }()
		if want == 429 {
			until(t, lines, "refused by /hello/{name} name ")
		}
		if status := <-got; status != want {
			t.Fatalf("request %d: status %d, want %d", i, status, want)
		}
	}
	write(t, path, strings.ReplaceAll(string(example), "burst: 2", "burst: 1000"))
	until(t, lines, "new rules")
	if status := status(t, url+"/hello/you"); status != 200 {
		t.Errorf("with new rules: status %d", status)
	}
	write(t, path, strings.ReplaceAll(string(example), "requests_per_unit: 60", "requests_per_unit: -60"))
	line := until(t, lines, "the rules stay as they are")
	if !strings.Contains(line, "gateway.yaml:5:57: rules[0].descriptors[0].requests_per_unit: -60 is negative") {
		t.Error(line)
	}
	if status := status(t, url+"/hello/you"); status != 200 {
		t.Errorf("with broken rules: status %d", status)
	}
	cancel()
	http.DefaultClient.CloseIdleConnections()
	for lines.Scan() {
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
