package rules_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// folder is a folder with these files: names and texts in turn.
func folder(t testing.TB, files ...string) string {
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, dir, files[i], files[i+1])
	}
	return dir
}

func write(t testing.TB, dir, name, text string) {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// engine has one file.
func engine(t testing.TB, store storage.Storage, text string) *rules.Engine {
	e, err := rules.Open(folder(t, "rules.yaml", text), store)
	require.NoError(t, err)
	return e
}

// memoryEngine has one file, and counts in memory.
func memoryEngine(t testing.TB, text string) *rules.Engine { return engine(t, memory.New(), text) }

// decide at a time.
func decide(t testing.TB, e *rules.Engine, at time.Time, r rules.Request) rules.Decision {
	t.Helper()
	d, err := e.Decide(t.Context(), r, ratelimit.At(at))
	require.NoError(t, err)
	require.NoError(t, d.Err)
	return d
}

func names(hits []rules.Hit) (names []string) {
	for _, h := range hits {
		names = append(names, h.Rule)
	}
	return names
}

// values are keys and values in turn.
func values(pairs ...string) map[string]string {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}
