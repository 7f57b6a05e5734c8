package ratelimit

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/internal/teststore"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A comparison that is easy to pass proves nothing: faults are planted in each
// telling, and the twin test must see every one of them.

// luaFaults are changes to the scripts: in the part that all share, then in those
// of single strategies.
var luaFaults = []struct{ from, to string }{
	{"return max(now, s.newest or now)", "return now"},
	{"local left, retry_at, next_at = max(0, q.burst - used), 0, 0", "local left, retry_at, next_at = q.burst - used, 0, 0"},
	{"if n > q.burst then", "if n >= q.burst then"},
	{"retry_at = till(q.burst - n)", "retry_at = till(q.burst - n + 1)"},
	{"next_at = till(q.burst - left - 1)", "next_at = till(q.burst - left)"},
	{"q.reached = q.remaining < r.granted and 1 or 0", "q.reached = q.remaining < r.requested and 1 or 0"},
	{"if r.all_or_nothing and r.granted < r.requested then", "if false then"},
	{"local s = states[key] or load(key)", "local s = load(key)"},
	{"if op == USE or op ~= CHECK and recorded then", "if op == USE then"},
	{"  if op ~= CHECK then\n    for s, reset_at", "  if true then\n    for s, reset_at"},
	{"if together and op ~= USE and not granted then", "if false then"},
	{"local want = (r.granted == r.requested or op == USE and r.granted > 0) and 0 or r.requested", "local want = r.requested"},

	{"if not s.newest or s.newest + lasts <= at then", "if not s.newest or s.newest + lasts < at then"},
	{"if s.oldest > till then", "if s.oldest >= till then"},
	{"while start and start <= till do", "while start and start < till do"},
	{"return i, units, start or s.newest", "return i, units, s.oldest"},
	{"if left <= keep then", "if left < keep then"},
	{"if s.newest < start then", "if s.newest < start - q.granularity then"},
	{"redis.call('LTRIM', s.key, s.dropped, -1)", "redis.call('LTRIM', s.key, s.dropped - 1, -1)"},
	{"nil, 0, true, 0, nil\n      s.newest", "nil, 0, false, 0, nil\n      s.newest"},
	{"while before and before >= start do", "while before and before > start do"},
	{"s.oldest = granule_of(redis.call('LINDEX', s.key, 0)) or s.newest", ""},
	{"return run(granules(1))", "return run(granules(0))"},
	{"return run(granules(0))", "return run(granules(1))"},

	{"if not s.newest or s.newest + q.window <= at then", "if not s.newest or s.newest + q.window < at then"},
	{"local start = at - at % q.window", "local start = at"},

	{"return whole - w + (part > p and 1 or 0)", "return whole - w"},
	{"return w > whole or w == whole and p >= part", "return w >= whole"},
	{"if s.rate == r.rate then", "if true then"},
	{"if part >= r.rate then", "if false then"},
	{"return n * r.whole + floor(p / r.rate), p % r.rate", "return n * r.whole, p % r.rate"},
	{"w = w - max(0, s.newest - at) -- refilled", "w = w -- refilled"},
	{"string.format('%.0f %.0f %.0f %.0f', s.newest", "string.format('%.16g %.14g %.0f %.0f', s.newest"},
}

func TestTwinSeesFaultsInLua(t *testing.T) {
	redis := teststore.Redis(t)
	for _, fault := range luaFaults {
		t.Run(fault.from, func(t *testing.T) {
			seen := false
			for _, s := range strategies {
				if !strings.Contains(s.script.Lua, fault.from) {
					continue
				}
				seen = true
				faulty := *s
				faulty.script = &storage.Script{Name: s.name, Lua: strings.ReplaceAll(s.script.Lua, fault.from, fault.to), Step: s.Step}
				if differs(&faulty, []twin{{"memory", memory.New().Run}, {"redis", redis.Run}}) {
					return
				}
			}
			require.True(t, seen, "no script has this line any more")
			t.Error("the twin test does not see this fault")
		})
	}
}

// goFaults are changes to what a strategy answers or records.
var goFaults = map[string]func(s frame.Strategy) frame.Strategy{
	"one too many left": withPeek(func(r *frame.Room, _, _ int64) { r.Left++ }),
	"retry a µs early":  withPeek(func(r *frame.Room, _, _ int64) { r.RetryAt = max(r.RetryAt-1, storage.Never) }),
	"retry a µs late": withPeek(func(r *frame.Room, _, _ int64) {
		if r.RetryAt > 0 {
			r.RetryAt++
		}
	}),
	"never comes": withPeek(func(r *frame.Room, _, n int64) {
		if n == 1 && r.Left == 0 {
			r.RetryAt = storage.Never
		}
	}),
	"next is the reset": withPeek(func(r *frame.Room, _, _ int64) { r.NextAt = r.ResetAt }),
	"reset is now":      withPeek(func(r *frame.Room, at, _ int64) { r.ResetAt = min(r.ResetAt, at) }),
	"records one less": withUse(func(at, n int64) (int64, int64) {
		if n > 1 {
			n--
		}
		return at, n
	}),
	"records a µs late": withUse(func(at, n int64) (int64, int64) { return at + 1, n }),
	"never gives back":  withUse(func(at, n int64) (int64, int64) { return at, max(n, 0) }),
}

func withPeek(change func(r *frame.Room, at, n int64)) func(frame.Strategy) frame.Strategy {
	return func(s frame.Strategy) frame.Strategy {
		peek := s.Peek
		s.Peek = func(state storage.State, c *storage.Cell, at, n int64) frame.Room {
			room := peek(state, c, at, n)
			change(&room, at, n)
			return room
		}
		return s
	}
}

func withUse(change func(at, n int64) (int64, int64)) func(frame.Strategy) frame.Strategy {
	return func(s frame.Strategy) frame.Strategy {
		use := s.Use
		s.Use = func(state storage.State, c *storage.Cell, at, n int64) storage.State {
			at, n = change(at, n)
			return use(state, c, at, n)
		}
		return s
	}
}

func TestTwinSeesFaultsInGo(t *testing.T) {
	redis := teststore.Redis(t)
	for name, fault := range goFaults {
		for _, s := range strategies {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				faulty := *s
				faulty.Strategy = fault(s.Strategy)
				faulty.script = &storage.Script{Name: s.name, Lua: s.script.Lua, Step: faulty.Step}
				if !differs(&faulty, []twin{{"redis", redis.Run}, {"memory", memory.New().Run}}) {
					t.Error("the twin test does not see this fault")
				}
			})
		}
	}
}

// differs tells whether the twin test sees a difference within a few hundred
// episodes.
func differs(s *strategy, twins []twin) bool {
	return slices.ContainsFunc(make([]struct{}, 400), func(struct{}) bool {
		_, difference := runEpisode(s, uint64(envInt("RATELIMIT_TWIN_SEED", 0))+nextSeed(), twins)
		return difference != ""
	})
}

var seeds uint64

// nextSeed makes the episodes of these tests the same in every run.
func nextSeed() uint64 { seeds++; return seeds }
