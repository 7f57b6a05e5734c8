package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/granule-limits/ratelimit/internal/redistest"
)

// manyHosts is a log of more keys than are deleted in one call.
func manyHosts() string {
	var b strings.Builder
	for i := range resetBatch + 1 {
		b.WriteString(logOf(fmt.Sprintf("host-%d", i), 1))
	}
	return b.String()
}

// A script is a reader that hands out one text, then does something, and goes on
// with a reader.
func script(text string, then func() io.Reader) io.Reader {
	var rest io.Reader
	return io.MultiReader(strings.NewReader(text), readerFunc(func(p []byte) (int, error) {
		if rest == nil {
			rest = then()
		}
		return rest.Read(p)
	}))
}

// Counters are in Redis while a run lasts. When it ends, however it ends, they
// are gone, and what else is there is as it was.
func TestRedisCleanUp(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	if err := client.Set(t.Context(), "ratelimit:{host-1}:simple:60000000:0", "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	keys := func() []string { return client.Keys(t.Context(), "*").Val() }

	for _, tt := range []struct {
		name   string
		then   func(cancel func()) io.Reader
		status int
		stderr string
	}{
		{"to its end", func(func()) io.Reader { return strings.NewReader("") }, 0, ""},
		{"failed", func(func()) io.Reader {
			return readerFunc(func([]byte) (int, error) { return 0, errors.New("broken") })
		}, 1, "replay: line 502 of the log: broken\n"},
		{"interrupted", func(cancel func()) io.Reader {
			cancel()
			r, _ := io.Pipe() // no byte will come
			return r
		}, 1, "replay: line 502 of the log: interrupted\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			during := 0
			stdin := script(manyHosts(), func() io.Reader {
				during = len(keys())
				return tt.then(cancel)
			})
			var stderr bytes.Buffer
			args := []string{"-strategy", "all", "-limit", "1", "-storage", "redis", "-redis", server.Addr}
			status := run(ctx, args, stdin, io.Discard, newNotes(&stderr, false))
			if status != tt.status || stderr.String() != tt.stderr {
				t.Errorf("status %d, %q, want %d, %q", status, &stderr, tt.status, tt.stderr)
			}
			if want := 1 + (resetBatch+1)*len(strategies); during != want {
				t.Errorf("%d keys at the end of the log, want %d", during, want)
			}
			if left := keys(); len(left) != 1 {
				t.Errorf("%d keys left, such as %q", len(left), left[0])
			}
		})
	}
}

// Runs that are in Redis at the same time do not see each other.
func TestRedisNamespace(t *testing.T) {
	server := redistest.Start(t)
	args := []string{"-limit", "2", "-json", "-storage", "redis", "-redis", server.Addr}
	text := logOf("h", 1, 2, 3)
	want := must(t, text, "-limit", "2", "-json")
	var inner string
	var outer, stderr bytes.Buffer
	stdin := script(text, func() io.Reader {
		inner = must(t, text, args...)
		return strings.NewReader("")
	})
	if status := run(t.Context(), args, stdin, &outer, newNotes(&stderr, false)); status != 0 {
		t.Fatalf("status %d, %s", status, &stderr)
	}
	if outer.String() != want || inner != want {
		t.Errorf("got %s and %s, want %s", &outer, inner, want)
	}
}

func TestRedisFails(t *testing.T) {
	server := redistest.Start(t)
	args := []string{"-limit", "2", "-storage", "redis", "-redis", server.Addr}
	var stdout, stderr bytes.Buffer
	stdin := script(logOf("h", 1, 2), func() io.Reader {
		server.Stop()
		return strings.NewReader(logOf("h", 3))
	})
	start := time.Now()
	status := run(t.Context(), args, stdin, &stdout, newNotes(&stderr, false))
	got := stderr.String()
	if status != 1 || stdout.Len() > 0 || strings.Count(got, "\n") != 1 ||
		!strings.HasPrefix(got, "replay: line 3 of the log: ratelimit: ") || !strings.Contains(got, "; and then: counters replay-") {
		t.Errorf("while it ran: status %d, %q and %q", status, got, &stdout)
	}

	_, got, status = replayOf(t, logOf("h", 1), args...)
	if status != 1 || strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "replay: ratelimit: storage unavailable") || strings.Contains(got, "line") {
		t.Errorf("before it began: status %d, %q", status, got)
	}
	if took := time.Since(start); took > 2*redisTimeout {
		t.Errorf("took %v", took)
	}
}
