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
	{"till(s, q, at, burst - left - 1)", "till(s, q, at, used - 1)"},
	{"till(s, q, at, burst - left - 1)", "till(s, q, at, 0)"},
	{"lacks == left + 1 and", "lacks <= left + 2 and"},
	{"if left < 0 then\n    left = 0", "if false then\n    left = 0"},
	{"elseif lacks > burst then", "elseif lacks >= burst then"},
	{"till(of, q, when, burst - lacks)", "till(of, q, when, burst - lacks + 1)"},
	{"if left < granted and granted > 0 then", "if left < requested then"},
	{"granted, all = how == '1' and 0 or granted, false", "all = false"},
	{"local s = states and states[key] or load(key)", "local s = load(key)"},
	{"local tries = op == CHECK or op == CHECK_ALL or op == ALL", "local tries = op == CHECK"},
	{"local recorded = not tries or op == ALL and all", "local recorded = not tries"},
	{"q.s = copy and copy(s) or s", "q.s = s"},
	{"requested = granted > 0 and 0 or requested", ""},
	{"KEYS[2] and (tries or KEYS[3] or KEYS[1] == KEYS[2]) and {}", "KEYS[3] and {}"},
	{"if at and at < now then -- time never goes backwards", "if at then -- time never goes backwards"},
	{"use(s, q, granted > 0 and s.newest > now and s.newest or now, granted)", "use(s, q, now, granted)"},

	{"if s.newest + lasts <= at then\n    return 0", "if s.newest + lasts < at then\n    return 0"},
	{"elseif s.oldest + lasts > at then", "elseif s.oldest + lasts >= at then"},
	{"find(s, 1, at - lasts + 1)\n  return", "find(s, 1, at - lasts)\n  return"},
	{"s.first, s.gone, s.oldest = log.find(s, 1, at - lasts + 1)", "s.first, s.gone, s.oldest = log.find(s, 1, at - lasts)"},
	{"s.first, s.gone, s.oldest = log.find(s, 1, at - lasts + 1)", "s.first, s.gone = log.find(s, 1, at - lasts + 1)"},
	{"if keep == s.used - s.gone - 1 then", "if keep == s.used - s.gone - 2 then"},
	{"find(s, 8, s.used - keep)", "find(s, 8, s.used - keep + 1)"},
	{"low, before, step = i + 1, look_up(s, i, 8), step * 2 + 1", "low, step = i + 1, step * 2 + 1"},
	{"high, start = i, look_up(s, i, 1)", "high = i"},
	{"if look_up(s, i, offset) < least then", "if look_up(s, i, offset) <= least then"},
	{"s.part = s.part .. next_entry(s)", ""},
	{"HEAD + s.first * ENTRY, '-1') .. next_entry(s)", "HEAD + s.first * ENTRY, '-1')"},
	{"HEAD + s.first * ENTRY, '-1')", "HEAD, '-1')"},
	{"- HEAD + #next_entry(s)", "- HEAD"},
	{"i, next = i - s.first, next - s.first", ""},
	{"look_up(s, j, 8) - n, 0)", "look_up(s, j, 8), 0)"},
	{"logged and empty and last + 1 or last, n)", "last, n)"},
	{"logged and empty and last + 1 or last, n)", "logged and last + 1 or last, n)"},
	{"made.find(s, 8, before + n)", "made.find(s, 8, before)"},
	{"n = math.min(n, s.used - before)", "n = math.min(n, s.used - s.gone)"},
	{"or s.used) <= before + n", "or s.used) < before + n"},
	{"s.oldest = s.first < s.size and look_up(s, s.first, 1) or s.newest", ""},
	{"if s.first > 16 + (s.size - s.first) / 4 then", "if s.first > 16 + (s.size - s.first) / 4 then s.size = s.size - 1"},
	{"if s.used + n >= 2^53 then", "if false then"},
	{"s.gone, n = 0, math.min(n, 2^53 - 1 - s.used)", "n = math.min(n, 2^53 - 1 - s.used)"},
	{"s.part = s.part .. bytes(s.newest) .. bytes(s.used)", ""},
	{"if s.size then\n      s.size = s.size + 1", "if false then\n      s.size = s.size + 1"},
	{"s.write == 'all' and 'both' or s.write or 'next'", "s.write or 'next'"},
	{"head = head .. bytes(s.gone) ..", "head = head .. string.sub(s.head, 15, 21) .."},
	{"head .. bytes(s.gone) .. bytes(s.oldest)", "head .. bytes(s.gone) .. bytes(s.newest)"},
	{"bytes(s.oldest) .. bytes(s.first)\n    end", "bytes(s.oldest) .. bytes(s.first + 1)\n    end"},
	{"local LATE = 1", "local LATE = 0"},
	{"local LATE = 0", "local LATE = 1"},

	{"return at < s.newest + q.window and s.used or 0", "return at <= s.newest + q.window and s.used or 0"},
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
	{"n = math.min(n, 2^53 - 1 - count(s, q, at))", "n = math.min(n, 2^53 - 1 - s.current)"},
	{"s.previous = s.newest == start - q.window and s.current or 0", "s.previous = s.current"},

	{"return part > 0 and full + 1 or full", "return full"},
	{"full, part = full - w, part - p\n  end\n  return", "full = full - w\n  end\n  return"},
	{"return (units - rest) / window + (rest > 0 and 1 or 0)", "return (units - rest) / window"},
	{"elseif units < 2^53 then", "elseif true then"},
	{"if time < 2^53 then", "if true then"},
	{"return (time - part) / rate, part", "return (time - part) / rate, 0"},
	{"if op == '2' then", "if false then"},
	{"while n < most and (w < time or w == time and p < part) do", "while n < most and w < time do"},
	{"if s.rate == rate or s.rate < 0 then", "if true then"},
	{"if rate == 0 then -- of a limit of 0", "if false then -- of a limit of 0"},
	{"if part >= rate then", "if false then"},
	{"return n * ((window - rest) / rate) + (n * rest - part) / rate, part", "return n * ((window - rest) / rate), part"},
	{"math.min((sums[key] or 0) + cells[i].requested", "math.min(cells[i].requested"},
	{"cells[i].s -- as the first found it", "states[key]"},
	{"and s.newest < start + lasts then -- else", "then -- else"},
	{"(keep > 0 or s.empty) and s.oldest", "keep > 0 and s.oldest"},
	{"s.empty, s.write = true, s.write ~= 'used' and s.write or 'all'", "s.write = s.write ~= 'used' and s.write or 'all'"},
	{"s.empty, s.write = true, s.write ~= 'used' and s.write or 'all'", "s.empty, s.write = true, s.write or 'all'"},
	{"s.newest, s.empty, s.renew = start, nil, true", "s.newest, s.renew = start, true"},
	{"s.oldest = s.first < s.size and s.oldest or start", "s.oldest = s.oldest"},
	{"w = w - math.max(0, s.newest - at) -- refilled", "w = w -- refilled"},
	{"s.write = (s.write == 'all' or s.part ~= part or", "s.write = (s.part ~= part or"},
	{"s.part ~= part or s.rate ~= rate", "s.part ~= part"},
	{"s.part ~= part or s.rate ~= rate", "s.rate ~= rate"},
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
				faulty.script = &storage.Script{Name: s.name, Lua: strings.ReplaceAll(s.script.Lua, fault.from, fault.to), Step: s.script.Step, Valid: s.script.Valid}
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
var goFaults = map[string]changed{
	"one too many left": {count: func(used int64) int64 { return max(used-1, 0) }},
	"one too few left":  {count: func(used int64) int64 { return used + min(used, 1) }},
	"retry a µs early":  {till: func(till, keep int64) int64 { return till - min(keep, 1) }},
	"reset a µs late":   {till: func(till, keep int64) int64 { return till + max(1-keep, 0) }},
	"records one less": {use: func(at, n int64) (int64, int64) {
		if n > 1 {
			n--
		}
		return at, n
	}},
	"records a µs late": {use: func(at, n int64) (int64, int64) { return at + 1, n }},
	"never gives back":  {use: func(at, n int64) (int64, int64) { return at, max(n, 0) }},
}

// A changed strategy answers or records something else.
type changed struct {
	frame.Strategy
	count func(used int64) int64
	till  func(till, keep int64) int64
	use   func(at, n int64) (int64, int64)
}

func (s changed) Count(state storage.State, c *storage.Cell, at int64) int64 {
	used := s.Strategy.Count(state, c, at)
	if s.count != nil {
		used = s.count(used)
	}
	return used
}

func (s changed) Till(state storage.State, c *storage.Cell, at, keep int64) int64 {
	till := s.Strategy.Till(state, c, at, keep)
	if s.till != nil {
		till = s.till(till, keep)
	}
	return till
}

func (s changed) Use(state storage.State, c *storage.Cell, at, n int64) storage.State {
	if s.use != nil {
		at, n = s.use(at, n)
	}
	return s.Strategy.Use(state, c, at, n)
}

func TestTwinSeesFaultsInGo(t *testing.T) {
	redis := teststore.Redis(t)
	for name, fault := range goFaults {
		for _, s := range strategies {
			t.Run(name+"/"+s.name, func(t *testing.T) {
				faulty := *s
				fault.Strategy = s.Strategy
				faulty.script = &storage.Script{Name: s.name, Lua: s.script.Lua, Step: frame.Step(fault), Valid: s.script.Valid}
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
