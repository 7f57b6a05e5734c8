package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// ulule's memory store has a goroutine that only the garbage collector stops.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ulule/limiter/v3/drivers/store/memory.(*cleaner).Run"))
}

// needRedis skips a test without a redis-server, or fails it where there must be one.
func needRedis(t *testing.T) *redisServer {
	t.Helper()
	if !haveRedis() {
		if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
			t.Fatal("no redis-server on the PATH, and RATELIMIT_REQUIRE_REDIS=1")
		}
		t.Skip("no redis-server on the PATH: nothing is tested on a real Redis")
	}
	s, err := startRedis()
	require.NoError(t, err)
	t.Cleanup(s.stop)
	return s
}

// small is every group, in little.
func small(t *testing.T) options {
	o, err := parse([]string{"-runs", "1", "-time", "1ms"}, io.Discard)
	require.NoError(t, err)
	o.keys, o.onceKeys, o.floodKeys, o.maxKeys = 8, 2000, 5000, 1000
	return o
}

// All groups run, and what they print is what stands on the page afterwards.
func TestRun(t *testing.T) {
	needRedis(t)
	o := small(t)
	page, err := os.ReadFile("../docs/performance.md")
	require.NoError(t, err)
	o.docs = filepath.Join(t.TempDir(), "page.md")
	o.plots = filepath.Join(filepath.Dir(o.docs), "charts")
	require.NoError(t, os.WriteFile(o.docs, page, 0o644))

	var out bytes.Buffer
	require.NoError(t, run(o, &out))

	require.Regexp(t, `\d+ bars were missed\.\n$`, out.String())
	written, err := os.ReadFile(o.docs)
	require.NoError(t, err)
	for _, g := range groups {
		begin, end := markers(g.name)
		_, rest, _ := strings.Cut(string(written), begin)
		section, _, _ := strings.Cut(rest, end)
		require.Contains(t, section, "medians of 1 runs of 1ms", "%s was not written", g.name)
		_, printed, found := strings.Cut(out.String(), "## "+g.title+"\n\n")
		require.True(t, found, "%s was not printed", g.name)
		printed, _, _ = strings.Cut(printed, "\n## ")
		for line := range strings.Lines(section) {
			if strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "- ") {
				require.Contains(t, printed, line)
			}
		}
	}
	svgs, err := filepath.Glob(filepath.Join(o.plots, "*.svg"))
	require.NoError(t, err)
	require.Len(t, svgs, 5)
	for _, svg := range svgs {
		require.Contains(t, string(written), "](charts/"+filepath.Base(svg)+")")
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-cases", "http,memory", "-docs", "../docs/performance.md"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"http", "memory"}, o.cases)
	require.Equal(t, "../docs/performance", filepath.ToSlash(o.plots))
	require.GreaterOrEqual(t, o.runs, 5)
	for _, bad := range []string{"-cases memory,disk", "-runs 0", "-time 0", "-time 2s", "-fast", "memory"} {
		_, err := parse(strings.Fields(bad), io.Discard)
		require.Error(t, err, bad)
	}
}

// No run is so long that the high limit could be reached, at 10 ns a call and 4
// goroutines.
func TestHighLimitIsHigh(t *testing.T) {
	require.Less(t, 4*int(time.Second/(10*time.Nanosecond)), 10*high.units)
}
