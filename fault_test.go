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
	{"local at = s.newest > now and s.newest or now", "local at = now"},
	{"if left < 0 then\n    left = 0", "if false then\n    left = 0"},
	{"if q.requested > burst then", "if q.requested >= burst then"},
	{"till(s, q, at, burst - q.requested)", "till(s, q, at, burst - q.requested + 1)"},
	{"if left < granted and granted > 0 then", "if left < requested then"},
	{"granted, all = how == '1' and 0 or granted, false", "all = false"},
	{"local s = states and states[key] or load(key)", "local s = load(key)"},
	{"local tries = op == CHECK or op == CHECK_ALL or op == ALL", "local tries = op == CHECK"},
	{"local recorded = not tries or op == ALL and all", "local recorded = not tries"},
	{"q.s = copy and copy(s, copy) or s", "q.s = s"},
	{"requested = granted > 0 and 0 or requested", ""},
	{"KEYS[2] and (tries or KEYS[3] or KEYS[1] == KEYS[2]) and {}", "KEYS[3] and {}"},
	{"if at and at < now then -- time never goes backwards", "if at then -- time never goes backwards"},
	{"use(s, q, granted > 0 and s.newest > now and s.newest or now, granted)", "use(s, q, now, granted)"},

	{"if count == 0 or s.newest + lasts <= at then\n    return 0", "if count == 0 or s.newest + lasts < at then\n    return 0"},
	{"if oldest + lasts <= at then", "if oldest + lasts < at then"},
	{"if count > burst and burst > 0 then", "if false then"},
	{"while start and start <= time do", "while start and start < time do"},
	{"return i, units, start or s.newest", "return i, units, s.oldest"},
	{"if left <= keep then", "if left < keep then"},
	{"if s.newest == start then\n    s.total", "if s.newest >= start - q.granularity then\n    s.total"},
	{"log.first, log.older = first, log.older - units", "log.first = first"},
	{"log.older, log.next = s.write and s.total or words[1], log.next + 1", "log.older, log.next = s.write and s.total or words[1], log.next"},
	{"log.older, log.next = s.write and s.total or words[1], log.next + 1", "log.older, log.next = words[1], log.next + 1"},
	{"(units == 1 and ' 1' or string.format(' %.0f', units))", "' 1'"},
	{"if log.entry then -- added a moment ago", "if false then -- added a moment ago"},
	{"(granule(s, i - 1) or 0) >= given", "(granule(s, i - 1) or 0) > given"},
	{"put(s, j, { granule(s, j + 1) })", "put(s, j, { granule(s, j) })"},
	{"s.oldest = granule(s, log.first) or s.newest", ""},
	{"local LATE, LOGS = 1", "local LATE, LOGS = 0"},
	{"local LATE, LOGS = 0", "local LATE, LOGS = 1"},

	{"if ends <= at then", "if ends < at then"},
	{"local start = at - at % q.window", "local start = at"},

	{"return rest > 0 and units + 1 or units", "return units"},
	{"if product < 2^53 then\n    local rest", "if true then\n    local rest"},
	{"local base = 2^52 / window", "local base = 2^57 / window"},
	{"return left > 0 and covered(s.current, left, window) or 0", "return 0"},
	{"gone, n = gone + window, s.current", "n = s.current"},
	{"keep = keep - s.current", ""},
	{"left = left - left % 1 -- the most", "left = left + -left % 1 -- the most"},
	{"if product >= 2^53 then -- which", "if false then -- which"},
	{"elseif start == s.newest - q.window then\n      local rest = s.previous", "elseif false then\n      local rest = s.previous"},
	{"s.previous, s.write, s.renew = rest > 0 and rest or 0, true, true", "s.previous, s.write = rest > 0 and rest or 0, true"},
	{"if s.current + s.previous + n >= 2^53 then", "if false then"},
	{"n = math.min(n, 2^53 - 1 - used(s, q, at))", "n = math.min(n, 2^53 - 1 - s.current)"},
	{"s.previous = s.newest == start - q.window and s.current or 0", "s.previous = s.current"},

	{"return full - w + (part > p and 1 or 0)", "return full - w"},
	{"local keep = (count < q.burst and count or q.burst) - 1", "local keep = count - 1"},
	{"return (units - rest) / window + (rest > 0 and 1 or 0)", "return (units - rest) / window"},
	{"elseif units < 2^53 then", "elseif true then"},
	{"if time < 2^53 then", "if true then"},
	{"return (time - part) / rate, part", "return (time - part) / rate, 0"},
	{"if count + n > q.burst then", "if false then"},
	{"while n < most and (w < time or w == time and p < part) do", "while n < most and w < time do"},
	{"if s.rate == rate or s.rate == 0 then", "if true then"},
	{"if part >= rate then", "if false then"},
	{"return n * ((window - rest) / rate) + (n * rest - part) / rate, part", "return n * ((window - rest) / rate), part"},
	{"w = w - math.max(0, s.newest - at) -- refilled", "w = w -- refilled"},
	{"(s.write == 'all' or s.rate ~= rate) and 'all'", "false"},
	{"(s.write == 'part' or s.part ~= part) and 'part'", "false"},
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
	"one too many left": withLook(func(_ int64, used, _, _ *int64) { *used = max(*used-1, 0) }),
	"one too few left":  withLook(func(_ int64, used, _, _ *int64) { *used += min(*used, 1) }),
	"next a µs early":   withLook(func(_ int64, _, next, _ *int64) { *next-- }),
	"reset is now":      withLook(func(at int64, _, _, reset *int64) { *reset = at }),
	"retry a µs early":  withTill(func(till int64) int64 { return till - 1 }),
	"retry a µs late":   withTill(func(till int64) int64 { return till + 1 }),
	"records one less": withUse(func(at, n int64) (int64, int64) {
		if n > 1 {
			n--
		}
		return at, n
	}),
	"records a µs late": withUse(func(at, n int64) (int64, int64) { return at + 1, n }),
	"never gives back":  withUse(func(at, n int64) (int64, int64) { return at, max(n, 0) }),
}

func withLook(change func(at int64, used, nextAt, resetAt *int64)) func(frame.Strategy) frame.Strategy {
	return func(s frame.Strategy) frame.Strategy {
		look := s.Look
		s.Look = func(state storage.State, c *storage.Cell, at int64) (used, nextAt, resetAt int64) {
			used, nextAt, resetAt = look(state, c, at)
			change(at, &used, &nextAt, &resetAt)
			return used, nextAt, resetAt
		}
		return s
	}
}

func withTill(change func(till int64) int64) func(frame.Strategy) frame.Strategy {
	return func(s frame.Strategy) frame.Strategy {
		till := s.Till
		s.Till = func(state storage.State, c *storage.Cell, at, keep int64) int64 {
			return change(till(state, c, at, keep))
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
