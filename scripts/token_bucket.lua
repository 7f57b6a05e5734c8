-- A level refilled at L/W up to the burst. See token_bucket.go.
--
-- The state is a hash of newest, full, part and rate: the bucket is full again at
-- full + part/rate µs.

local function load(key)
  local words = call('HMGET', key, 'newest', 'full', 'part', 'rate')
  if not words[1] then
    return { key = key, newest = 0, full = 0, part = 0, rate = 0, keep = 0, write = nil, renew = nil }
  end
  local newest, full, part, rate = tonumber(words[1]), tonumber(words[2]), tonumber(words[3]), tonumber(words[4])
  if not (newest and full and part and rate and newest >= 0 and full >= newest and full <= MAX_NUMBER and part >= 0 and part < rate and rate <= MAX_NUMBER) then
    return { key = key, newest = 0, broken = true }
  end
  return { key = key, newest = newest, full = full, part = part, rate = rate, keep = 0, write = nil, renew = nil }
end

-- The pace of a bucket: n units take n × (whole + rest/rate) µs.
local rate, whole, rest = 0, 0, 0
local function set_pace(window, limit)
  rate = limit > 0 and limit or 1
  rest = window % rate
  whole = (window - rest) / rate
end

-- The most units that can be told in the numbers that there are.
local function most()
  local n, m = MAX_NUMBER / rate, MAX_SPAN / (whole + 1)
  n = n < m and n or m
  return n - n % 1
end

-- The time that n units take: whole µs, and a numerator over the rate.
local function takes(n)
  local p = n * rest
  local part = p % rate
  return n * whole + (p - part) / rate, part
end

-- How many units, the last one counted whole, take at least this time: a rounded
-- quotient, corrected by exact comparison.
local function missing(time, part)
  if time < 0 or time == 0 and part == 0 then
    return 0
  elseif rest == 0 then
    local over = time % whole
    return (time - over) / whole + (over > 0 and 1 or 0)
  end
  local n, most = time / (whole + rest / rate), most()
  n = n < most and n - n % 1 or most
  local w, p = takes(n)
  while n < most and (w < time or w == time and p < part) do
    n = n + 1
    w, p = takes(n)
  end
  while n > 0 do
    w, p = takes(n - 1)
    if w < time or w == time and p < part then
      break
    end
    n = n - 1
  end
  return n
end

-- When the bucket is full, in the pace of the limit that now holds.
local paced -- the quota whose pace was set last
local function full_at(s, q)
  if paced ~= q then
    paced = q
    set_pace(q.window, q.limit + 0)
  end
  if s.rate == rate or s.rate == 0 then
    return s.full, s.part
  end
  set_pace(q.window, s.rate)
  local n = missing(s.full - s.newest, s.part)
  set_pace(q.window, q.limit + 0)
  local w, p = takes(math.min(n, most()))
  return s.newest + w, p
end

local function till(s, q, _, keep) -- whole µs, rounded up
  local full, part = full_at(s, q)
  local w, p = takes(keep)
  return full - w + (part > p and 1 or 0)
end

local function look(s, q, at)
  local full, part = full_at(s, q)
  local count = missing(full - at, part)
  local keep = (count < q.burst and count or q.burst) - 1
  return count, keep > 0 and till(s, q, at, keep) or full + (part > 0 and 1 or 0), full + (part > 0 and 1 or 0)
end

local function use(s, q, at, n)
  local full, part = full_at(s, q)
  if n < 0 then
    local w, p = takes(math.min(-n, most()))
    w = w - math.max(0, s.newest - at) -- refilled since the units were recorded
    if s.rate == 0 or w < 0 then
      return
    end
    full, part, at = full - w, part - p, s.newest
    if part < 0 then
      full, part = full - 1, part + rate
    end
    if full < at then
      full, part = at, 0
    end
    s.renew = true
  else
    if full <= at then -- nothing was missing, and the expiry may say so
      s.renew = true
    end
    if full < at then
      full, part = at, 0
    end
    local room = most() - missing(full - at, part)
    n = n < room and n or room
    if n <= 0 then
      return
    end
    local w, p = takes(n)
    full, part = full + w, part + p
    if part >= rate then
      full, part = full + 1, part - rate
    end
    local span = q.window / 8
    s.renew = s.renew or s.full - s.full % span < full - full % span
  end
  s.write = s.write ~= 'all' and s.part == part and s.rate == rate and 'full' or 'all'
  s.newest, s.full, s.part, s.rate = at, full, part, rate
end

local function save(s, ttl)
  if s.write == 'full' then
    call('HSET', s.key, 'newest', s.newest, 'full', s.full)
  else
    call('HSET', s.key, 'newest', s.newest, 'full', s.full, 'part', s.part, 'rate', s.rate)
  end
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

