-- A level refilled at L/W up to the burst. See token_bucket.go.
-- The state is a string, 'newest full part rate': the bucket is full again at
-- full + part/rate µs.

local function load(key)
  local s, text = { key = key }, redis.call('GET', key)
  if text then
    local newest, full, part, rate = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
    s.newest, s.full, s.part, s.rate = tonumber(newest), tonumber(full), tonumber(part), tonumber(rate)
    s.broken = not newest or s.rate == 0 or max(s.newest, s.full, s.part, s.rate) > MAX_NUMBER
  end
  return s
end

-- The pace of a bucket: n units take n × W/L µs.
local function refill(window, limit)
  local rate = max(limit, 1)
  local r = { rate = rate, whole = floor(window / rate), part = window % rate }
  r.most = min(floor(MAX_NUMBER / rate), floor(MAX_SPAN / (r.whole + 1)))
  return r
end

-- The time that n units take: whole µs, and a numerator over the rate.
local function takes(r, n)
  local p = n * r.part
  return n * r.whole + floor(p / r.rate), p % r.rate
end

-- How many units, the last one counted whole, take at least this time: a rounded
-- quotient, corrected by exact comparison.
local function missing(r, whole, part)
  if whole < 0 or whole == 0 and part == 0 then
    return 0
  end
  local function enough(n)
    local w, p = takes(r, n)
    return w > whole or w == whole and p >= part
  end
  local n = min(floor(whole / (r.whole + r.part / r.rate)), r.most)
  while n > 0 and enough(n - 1) do
    n = n - 1
  end
  while not enough(n) and n < r.most do
    n = n + 1
  end
  return n
end

-- When the bucket is full, in the pace of the limit that now holds.
local function full_at(s, q, r)
  if s.rate == r.rate then
    return s.full, s.part
  end
  local n = missing(refill(q.window, s.rate), s.full - s.newest, s.part)
  local whole, part = takes(r, min(n, r.most))
  return s.newest + whole, part
end

local function peek(s, q, at, n)
  if not s.newest then
    return room(q, 0, n, 0)
  end
  local r = refill(q.window, q.limit)
  local whole, part = full_at(s, q, r)
  local function till(keep) -- whole µs, rounded up
    local w, p = takes(r, keep)
    return whole - w + (part > p and 1 or 0)
  end
  return room(q, missing(r, whole - at, part), n, till(0), till)
end

local function give_back(s, r, whole, part, at, n)
  local w, p = takes(r, min(n, r.most))
  w = w - max(0, s.newest - at) -- refilled since the units were recorded
  if w < 0 then
    return
  end
  whole, part = whole - w, part - p
  if part < 0 then
    whole, part = whole - 1, part + r.rate
  end
  if whole < s.newest then
    whole, part = s.newest, 0
  end
  s.full, s.part, s.rate = whole, part, r.rate
end

local function use(s, q, at, n)
  local r = refill(q.window, q.limit)
  if not s.newest then
    s.newest, s.full, s.part, s.rate = at, at, 0, r.rate
  end
  local whole, part = full_at(s, q, r)
  if n < 0 then
    return give_back(s, r, whole, part, at, -n)
  end
  if whole < at then
    whole, part = at, 0
  end
  n = min(n, r.most - missing(r, whole - at, part))
  if n <= 0 then
    return
  end
  local w, p = takes(r, n)
  whole, part = whole + w, part + p
  if part >= r.rate then
    whole, part = whole + 1, part - r.rate
  end
  s.newest, s.full, s.part, s.rate = at, whole, part, r.rate
end

local function save(s, ttl)
  redis.call('SET', s.key, string.format('%.0f %.0f %.0f %.0f', s.newest, s.full, s.part, s.rate), 'PX', ttl)
end

return run(load, peek, use, save)
