-- The part that all strategies share; internal/frame tells the same in Go.
-- scripts/README.md has the calling convention. A strategy's own file follows,
-- and ends with: return run(load, peek, use, save)
--
-- All numbers are whole and below 2^53. Never .. or tostring one: above 1e14
-- that loses digits. As arguments of redis.call they keep all of them.

local CHECK, USE = 1, 2 -- storage.Op; 0 is CheckAndUse
local NEVER = -1
local MAX_NUMBER, MAX_SPAN = 9007199254740991, 2251799813685248
local floor, max, min = math.floor, math.max, math.min

-- The room of a counter of which used units count now, none any more at
-- reset_at, and no more than keep at till(keep): what is left, and the instants
-- at which n units fit, at which left grows, and at which all is free. An instant
-- of 0 means that it is so already.
local function room(q, used, n, reset_at, till)
  local left, retry_at, next_at = max(0, q.burst - used), 0, 0
  if n > q.burst then
    retry_at = NEVER
  elseif n > left then
    retry_at = till(q.burst - n)
  end
  if used == 0 then
    reset_at = 0
  elseif left < q.burst then
    next_at = till(q.burst - left - 1)
  end
  return left, retry_at, next_at, reset_at
end

-- Executes the call. A strategy gives
--   load(key): the state kept under a key: a table whose newest is the time of the
--     newest use, nil if never used, and broken if what is there is no state
--   peek(s, q, at, n): the room that counter s has at a time, as from room
--   use(s, q, at, n): records n units, or gives back -n, in s
--   save(s, ttl): writes s, to be kept for ttl ms
-- where q has a quota's numbers: limit, burst, window, granularity.
local function run(load, peek, use, save)
  local op, now, together = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
  -- How long a key is kept beyond its reset, in ms. A call that brought its own
  -- time may be a replay or a test, whose time passes at a pace of its own; a Use
  -- has its time from a Check, most of the time.
  local own_clock, grace = now < 0, 1000
  if own_clock or op == USE then
    local t = redis.call('TIME')
    local clock = t[1] * 1000000 + t[2]
    if own_clock then
      now = clock
    else
      grace = grace + min(floor(max(now - clock, clock - now) / 1000), 3600000)
    end
  elseif op ~= CHECK then
    grace = grace + 3600000
  end

  -- time never goes backwards for a counter
  local function stamp(s)
    return max(now, s.newest or now)
  end

  local function keep(s, reset_at)
    save(s, floor(max(0, reset_at - now) / 1000) + 1 + grace)
  end

  -- What is no state, or lies more than a window in the future of our own clock,
  -- is repaired: all of it counts as used now.
  local function heal(s, q)
    local used = q.burst
    if not s.broken then
      used = used - peek(s, q, s.newest, 0)
    end
    s.newest, s.broken, s.replace = nil, nil, true
    if used > 0 then
      use(s, q, now, used)
      keep(s, select(4, peek(s, q, now, 0)))
    else
      redis.call('DEL', s.key)
      s.stored = false
    end
  end

  local function answer(q, left, retry_at, next_at, reset_at)
    q.remaining = left
    q.retry_after = retry_at == NEVER and NEVER or max(0, retry_at - now)
    q.next_after = max(0, next_at - now)
    q.reset_after = max(0, reset_at - now)
  end

  -- Decides one request. A quota is reached when it has less left than the quotas
  -- before it left of the request.
  local function grant(r)
    r.granted = r.requested
    for i = 1, #r do
      local q = r[i]
      answer(q, peek(q.s, q, stamp(q.s), r.requested))
      q.reached = q.remaining < r.granted and 1 or 0
      r.granted = min(r.granted, q.remaining)
    end
    if r.all_or_nothing and r.granted < r.requested then
      r.granted = 0
    end
    if r.granted == r.requested then
      for i = 1, #r do
        local q = r[i]
        q.retry_after = 0
      end
    end
  end

  -- the states, each loaded once, and the requests
  local states, requests, changed = {}, {}, {}
  local a, k = 4, 0
  while ARGV[a] do
    local r = { requested = ARGV[a] + 0, all_or_nothing = ARGV[a + 1] == '1', granted = ARGV[a + 1] + 0 }
    local cells = ARGV[a + 2] + 0
    for i = 1, cells do
      k = k + 1
      local key, b = KEYS[k], a + 4 * i
      local q = {
        limit = ARGV[b - 1] + 0, burst = ARGV[b] + 0, window = ARGV[b + 1] + 0, granularity = ARGV[b + 2] + 0,
        s = nil, remaining = 0, reached = 0, retry_after = 0, next_after = 0, reset_after = 0,
      }
      local s = states[key] or load(key)
      if s.broken or own_clock and stamp(s) > now + q.window then
        heal(s, q)
      end
      states[key], r[i], q.s = s, q, s
    end
    a = a + 3 + 4 * cells
    requests[#requests + 1] = r
  end

  local granted = true -- all requests, in full
  for _, r in ipairs(requests) do
    if op ~= USE then
      grant(r)
      granted = granted and r.granted == r.requested
    end
    if r.granted ~= 0 and (op ~= CHECK or #requests > 1) then
      for i = 1, #r do
        local q = r[i]
        if r.granted > 0 then
          use(q.s, q, stamp(q.s), r.granted)
          changed[q.s] = now
        elseif q.s.newest then -- units are given back at the very time at which they were recorded
          use(q.s, q, now, r.granted)
          changed[q.s] = now
        end
      end
    end
  end

  if together and op ~= USE and not granted then
    changed = {} -- nothing has been written yet
    for _, r in ipairs(requests) do
      r.granted = 0
    end
  end

  -- How the counters stand after everything the call recorded. A Check recorded
  -- nothing: each request keeps the answer that it found.
  local reply, recorded = { now }, next(changed)
  for _, r in ipairs(requests) do
    reply[#reply + 1] = r.granted
    for i = 1, #r do
      local q = r[i]
      if op == USE or op ~= CHECK and recorded then
        local want = (r.granted == r.requested or op == USE and r.granted > 0) and 0 or r.requested
        answer(q, peek(q.s, q, stamp(q.s), want))
      end
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = q.remaining, q.reached, q.retry_after
      reply[n + 4], reply[n + 5] = q.next_after, q.reset_after
      if op ~= CHECK and changed[q.s] then -- of several limits, the one that needs it longest
        changed[q.s] = max(changed[q.s], now + q.reset_after)
      end
    end
  end
  if op ~= CHECK then
    for s, reset_at in pairs(changed) do
      keep(s, reset_at)
    end
  end
  return reply
end

