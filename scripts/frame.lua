-- The part that all strategies share, and the end of every script; internal/frame
-- tells the same in Go. The strategy, whose text stands before this, gives
--   load(key): the state kept under a key, a table without tables in it; of it, newest is
--     the time of the newest use, or any time before, and nil if what is there is no state
--   count(s, q, at): how many units count at a time that is not before the newest use
--   till(s, q, at, keep): when no more than keep of them will, fewer than now do
--   use(s, q, at, n): records n units, or gives back -n, in s, and sets s.write
--   save(s, ttl): writes s, to be kept for ttl ms, and clears s.write
-- where q has a quota's numbers: limit (still a text), burst, window, granularity.
--
-- This is the path of every decision, and it is straight on purpose: a closure
-- or a table costs a server as much as reading a small key.

local CHECK, USE, ALL, CHECK_ALL = '1', '2', '3', '4' -- storage.Op, and Together
local NEVER = -1

-- How long a key is kept beyond its reset, in ms. A call that brought its own time
-- may be a replay or a test, whose time passes at a pace of its own; a Use has its
-- time from a Check, most of the time.
local now, grace = nil, 1001
if own_clock then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = ARGV[2] + 0
  if op == USE then
    local t = call('TIME')
    local away = math.abs(now - (t[1] * 1000000 + t[2]))
    grace = grace + math.min((away - away % 1000) / 1000, 3600000)
  elseif op ~= CHECK then
    grace = grace + 3600000
  end
end

-- Counters by key, where cells may share one. A call that only tries, and has
-- several, shows each request a copy, as it found the counter at its turn.
local tries = op == CHECK or op == CHECK_ALL or op == ALL
local states = KEYS[2] and (tries or KEYS[3] or KEYS[1] == KEYS[2]) and {}
local copy = states and tries and function(s)
  local c = {}
  for k, v in pairs(s) do
    c[k] = v
  end
  return c
end

-- Decides each request in turn, and records it. A quota is reached when it has
-- less left than the quotas before it left of the request.
local cells, k, a, all = { false, KEYS[2] and false }, 0, 3, true
while ARGV[a] do
  local requested, how, first = ARGV[a] + 0, ARGV[a + 1], k + 1
  local granted = requested
  k, a = k + ARGV[a + 2], a + 3
  for i = first, k do
    local key = KEYS[i]
    local s = states and states[key] or load(key)
    local q = {
      s = s, limit = ARGV[a], burst = ARGV[a + 1] + 0, window = ARGV[a + 2] + 0, granularity = ARGV[a + 3] + 0,
      reached = false, requested = 0, granted = 0,
    }
    local at = s.newest
    if at and at < now then -- time never goes backwards for a counter
      at = now
    end
    -- What is no state, or lies more than a window in the future of our own clock,
    -- is repaired: all of it counts as used now.
    if not at or own_clock and at > now + q.window then
      local found = at and math.min(count(s, q, at), q.burst) or q.burst
      call('DEL', key)
      s, at = load(key), now
      if found > 0 then
        use(s, q, now, found)
        local keep = till(s, q, now, 0) - now + (q.window - q.window % 8) / 8
        save(s, (keep - keep % 1000) / 1000 + grace)
      end
      q.s = s
    end
    if states then
      states[key] = s
      q.s = copy and copy(s) or s
    end
    cells[i], a = q, a + 4
    local left = q.burst - count(s, q, at)
    if left < granted and granted > 0 then
      q.reached, granted = true, left > 0 and left or 0
    end
  end
  if op == USE then
    granted = how + 0
    requested = granted > 0 and 0 or requested
  elseif granted < requested then
    granted, all = how == '1' and 0 or granted, false
  end
  for i = first, k do
    local q = cells[i]
    q.requested, q.granted = requested, granted
    if granted ~= 0 and (copy or op ~= CHECK and op ~= CHECK_ALL and (all or op ~= ALL)) then
      local s = copy and states[KEYS[i]] or q.s
      -- units are given back at the very time at which they were recorded
      use(s, q, granted > 0 and s.newest > now and s.newest or now, granted)
    end
  end
end

-- How the counters stand after everything the call recorded, or as each request
-- found them. Of several limits for one counter, the one that needs it longest
-- says how long it is kept, so those that cells share are saved last.
local recorded = not tries or op == ALL and all
local sums = copy and not all and op ~= CHECK and {} -- by key, what the call asks for
if sums then
  for i = k, 1, -1 do
    local key = KEYS[i]
    sums[key], states[key] = math.min((sums[key] or 0) + cells[i].requested, 2^53 - 1), cells[i].s -- as the first found it
  end
end
local reply, r = KEYS[2] and { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } or { now, 0, 0, 0, 0, 0 }, 2
for i = 1, k do
  local q = cells[i]
  local s = copy and recorded and states[KEYS[i]] or q.s
  local at = s.newest > now and s.newest or now
  local burst, used = q.burst, count(s, q, at)
  local left, retry_after, next_after, reset_after = burst - used, 0, 0, 0
  if left < 0 then
    left = 0
  end
  if used > 0 then
    reset_after = till(s, q, at, 0) - now
    if left < burst then
      next_after = till(s, q, at, burst - left - 1) - now
    end
  end
  if q.granted < q.requested then
    local lacks, has, of, when = q.requested, left, s, at
    if sums then -- all requests of the call would have to fit
      lacks, of = sums[KEYS[i]], states[KEYS[i]]
      when = of.newest > now and of.newest or now
      has = burst - count(of, q, when)
    end
    if lacks <= has then
      retry_after = 0
    elseif lacks > burst then
      retry_after = NEVER
    elseif lacks == left + 1 and not sums then -- which most ask for
      retry_after = next_after
    else
      retry_after = till(of, q, when, burst - lacks) - now
    end
  end
  if states or s.write then
    -- of a counter that is back to full the reset is the time of its newest use
    local keep = (used > 0 and reset_after or at - now) + (q.window - q.window % 8) / 8
    if not states then
      save(s, (keep - keep % 1000) / 1000 + grace)
    elseif not s.keep or s.keep < keep then
      s.keep = keep
    end
  end
  q.s = s
  reply[r] = not all and tries and op ~= CHECK and 0 or q.granted
  reply[r + 1] = q.reached and op ~= USE and -1 - left or left
  reply[r + 2], reply[r + 3], reply[r + 4] = retry_after, next_after, reset_after
  r = r + 5
end

if states and recorded then
  for i = 1, k do
    local s = cells[i].s
    if s.write then
      save(s, (s.keep - s.keep % 1000) / 1000 + grace)
    end
  end
end
return reply
