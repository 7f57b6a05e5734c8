package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/granule-limits/ratelimit/internal/redistest"
)

// A model is the slow count that the command is compared with, written from the
// definition of each strategy and from nothing else: what counts of the times at
// which a key's requests were admitted, all of which it keeps. Times are µs.
type model struct {
	limit, window, granularity, burst int64

	counts func(m *model, admitted, now int64) bool // whether a unit of then counts now; nil for the others
}

var models = map[string]func(m *model, admitted, now int64) bool{
	"sliding-window": func(m *model, admitted, now int64) bool { // the newest W/G granules
		return admitted/m.granularity > now/m.granularity-m.window/m.granularity
	},
	"list": func(m *model, admitted, now int64) bool {
		return now-admitted < m.window
	},
	"hash": func(m *model, admitted, now int64) bool { // W/G + 1 buckets
		return admitted/m.granularity >= now/m.granularity-m.window/m.granularity
	},
	"simple": func(m *model, admitted, now int64) bool {
		return admitted/m.window == now/m.window
	},
}

// A history is what a model knows of a key.
type history struct {
	requests, refused int64
	admitted          []int64
	level             *big.Rat // of the bucket, after the last that was admitted
}

// ask judges a request. Time never goes backwards: one that is stamped before the
// newest that was admitted is judged, and recorded, at that one's time.
func (m *model) ask(strategy string, h *history, now int64) {
	h.requests++
	if n := len(h.admitted); n > 0 {
		newest := h.admitted[n-1]
		if strategy == "sliding-counter" { // of which it knows no more than the window
			newest -= newest % m.window
		}
		now = max(now, newest)
	}
	fits := m.fits
	switch strategy {
	case "token-bucket":
		fits = m.drips
	case "sliding-counter":
		fits = m.weighs
	}
	if fits(h, now) {
		h.admitted = append(h.admitted, now)
	} else {
		h.refused++
	}
}

func (m *model) fits(h *history, now int64) bool {
	var used int64
	for _, t := range slices.Backward(h.admitted) {
		if !m.counts(m, t, now) {
			break // nor do those before it
		}
		used++
	}
	return used < m.limit
}

// weighs is fits for two windows, of which the previous one counts in part.
func (m *model) weighs(h *history, now int64) bool {
	var current, previous int64
	for _, t := range slices.Backward(h.admitted) {
		switch t / m.window {
		case now / m.window:
			current++
		case now/m.window - 1:
			previous++
		}
	}
	part := (previous*(m.window-now%m.window) + m.window - 1) / m.window
	return current+part < m.limit
}

// drips is fits for the bucket: a level that is refilled by L/W each µs, up to
// the burst.
func (m *model) drips(h *history, now int64) bool {
	level := big.NewRat(m.burst, 1)
	if n := len(h.admitted); n > 0 {
		grown := new(big.Rat).Mul(big.NewRat(now-h.admitted[n-1], 1), big.NewRat(m.limit, m.window))
		if grown.Add(grown, h.level); grown.Cmp(level) < 0 {
			level = grown
		}
	}
	one := big.NewRat(1, 1)
	if level.Cmp(one) < 0 {
		return false
	}
	h.level = level.Sub(level, one)
	return true
}

func (m *model) replay(strategy string, lines []modelLine) result {
	histories := make(map[string]*history)
	for _, l := range lines {
		h := histories[l.key]
		if h == nil {
			h = new(history)
			histories[l.key] = h
		}
		m.ask(strategy, h, l.at)
	}
	r := result{Strategy: strategy, Requests: int64(len(lines)), Keys: len(histories)}
	for key, h := range histories {
		r.Admitted += int64(len(h.admitted))
		r.Refused += h.refused
		if h.refused > 0 {
			r.LimitedKeys++
			r.Top = append(r.Top, limited{key, h.refused, h.requests})
		}
	}
	sort.Slice(r.Top, func(i, j int) bool {
		a, b := r.Top[i], r.Top[j]
		return a.Refused > b.Refused || a.Refused == b.Refused && a.Key < b.Key
	})
	r.Top = r.Top[:min(10, len(r.Top))]
	return r
}

type modelLine struct {
	key string
	at  int64
}

// modelLines reads a log that has nothing odd in it.
func modelLines(t *testing.T, text []byte, key string) (lines []modelLine) {
	t.Helper()
	form := regexp.MustCompile(`^(\S+) - - \[([^]]+)\] "[A-Z]+ ([^ ?"]+)[^ "]* HTTP/1\.[01]" \d+ `)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := form.FindStringSubmatch(s.Text())
		if f == nil {
			t.Fatalf("an odd line: %q", s.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", f[2])
		if err != nil {
			t.Fatal(err)
		}
		k := map[string]string{"ip": f[1], "path": f[3], "ip+path": f[1] + " " + f[3]}[key]
		lines = append(lines, modelLine{k, at.UnixMicro()})
	}
	return lines
}

// realLog is three days of requests to a public web site, where the file is.
var realLog = filepath.FromSlash("../../../shared/data/apache_access.log.gz")

func readRealLog(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(realLog)
	if os.IsNotExist(err) {
		t.Skipf("no %s: nothing is tested on a real log", realLog)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The main job on a real log: memory, Redis and the slow count agree, for all
// six strategies.
func TestRealLog(t *testing.T) {
	text := readRealLog(t)
	for _, tt := range []struct {
		key          string
		limit, burst int64
		window       time.Duration
		granularity  time.Duration
		redis        int  // lines that are replayed in Redis, too: a round trip for each is slow
		differ       bool // the strategies do
	}{
		// All of the log's minutes are the sixth of their hours, and so what
		// windows of a minute or more are cut into makes no difference.
		{key: "ip", limit: 10, window: time.Minute, granularity: 6 * time.Second, redis: 10_000},
		{key: "ip", limit: 3, window: 10 * time.Second, granularity: time.Second, redis: 3_000, differ: true},
		{key: "ip", limit: 4, burst: 9, window: 21 * time.Second, granularity: 7 * time.Second, differ: true},
		{key: "ip", limit: 100, window: time.Hour, granularity: 6 * time.Minute},
		{key: "ip", limit: 100, window: 24 * time.Hour, granularity: time.Hour},
		{key: "ip", limit: 0, window: time.Minute, granularity: 6 * time.Second},
		{key: "path", limit: 2, window: 15 * time.Second, granularity: 5 * time.Second, differ: true},
		{key: "ip+path", limit: 1, window: 2 * time.Hour, granularity: 30 * time.Minute},
	} {
		name := fmt.Sprintf("%d per %s for each %s", tt.limit, short(tt.window), tt.key)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-json", "-strategy", "all", "-key", tt.key, "-limit", strconv.FormatInt(tt.limit, 10), "-window", tt.window.String(),
				"-granularity", tt.granularity.String(), "-burst", strconv.FormatInt(tt.burst, 10)}
			got := parseJSON[[]result](t, must(t, "", append(args, realLog)...))

			burst := tt.burst
			if burst == 0 || tt.limit == 0 {
				burst = tt.limit
			}
			lines := modelLines(t, text, tt.key)
			for _, r := range got {
				m := &model{tt.limit, tt.window.Microseconds(), tt.granularity.Microseconds(), burst, models[r.Strategy]}
				if want := m.replay(r.Strategy, lines); fmt.Sprint(r) != fmt.Sprint(want) {
					t.Errorf("%s:\ngot  %v\nwant %v", r.Strategy, r, want)
				}
			}
			refused := make(map[string]int64)
			for _, r := range got {
				refused[r.Strategy] = r.Refused
			}
			if tt.differ && refused["sliding-window"] == refused["hash"] {
				t.Errorf("the limit does not tell sliding-window from hash: %d are refused", refused["hash"])
			}
			if tt.redis > 0 {
				t.Run("redis", func(t *testing.T) { compareRedis(t, text, tt.redis, args) })
			}
		})
	}
}

// compareRedis compares the reports on the first n lines of a log.
func compareRedis(t *testing.T, text []byte, n int, args []string) {
	lines := strings.Join(strings.SplitAfterN(string(text), "\n", n+1)[:n], "")
	server := redistest.Start(t)
	got := must(t, lines, append(args, "-storage", "redis", "-redis", server.Addr)...)
	if want := must(t, lines, args...); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// The order of lines is the file's. Sorted, the same log would have another
// result; so the comparison above is one in which time goes backwards.
func TestRealLogIsOutOfOrder(t *testing.T) {
	lines := modelLines(t, readRealLog(t), "ip")
	inOrder := slices.IsSortedFunc(lines, func(a, b modelLine) int { return int(a.at - b.at) })
	sorted := slices.Clone(lines)
	slices.SortStableFunc(sorted, func(a, b modelLine) int { return int(a.at - b.at) })
	m := &model{limit: 3, window: 10e6, counts: models["list"]}
	a, b := m.replay("list", lines), m.replay("list", sorted)
	if inOrder || a.Refused == b.Refused {
		t.Errorf("refused in order %d, as it is %d", b.Refused, a.Refused)
	}
}

// The slow count is itself right about what was worked out by hand.
func TestModelOfSmallLog(t *testing.T) {
	lines := modelLines(t, []byte(strings.TrimSpace(logOf("h", 4, 8, 11, 14, 16, 19, 20, 22, 24, 3, 25))), "ip")
	for strategy, want := range map[string]int64{"sliding-window": 6, "list": 5, "hash": 4, "simple": 6, "token-bucket": 6, "sliding-counter": 4} {
		m := &model{2, 10e6, 5e6, 2, models[strategy]}
		if got := m.replay(strategy, lines).Admitted; got != want {
			t.Errorf("%s: %d, want %d", strategy, got, want)
		}
	}
}
