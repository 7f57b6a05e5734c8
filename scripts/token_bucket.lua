-- A level refilled at L/W up to the burst. See token_bucket.go.
--
-- The state is a hash of newest, full, part and rate: the bucket is full again at
-- full + part/rate µs.

local function load(key)
  local words = call('HMGET', key, 'newest', 'full', 'part', 'rate')
  if not words[1] then
    return { key = key, newest = 0, full = 0, part = 0, rate = 0, write = nil, renew = nil, keep = nil }
  end
  local newest, full, part, rate = tonumber(words[1]), tonumber(words[2]), tonumber(words[3]), tonumber(words[4])
  if not (newest and full and part and rate and newest >= 0 and full >= newest and full < 2^53 and part >= 0 and part < rate and rate < 2^53) then
    return {}
  end
  return { key = key, newest = newest, full = full, part = part, rate = rate, write = nil, renew = nil, keep = nil }
end

-- The most units that can be told in the numbers that there are.
local function most(window, rate)
  local n, m = (2^53 - 1) / rate, 2^51 / ((window - window % rate) / rate + 1)
  n = n < m and n or m
  return n - n % 1
end

-- The time that n units take: whole µs, and a numerator over the rate.
local function takes(n, window, rate)
  local time = n * window
  if time < 2^53 then
    local part = time % rate
    return (time - part) / rate, part
  end
  local rest = window % rate
  local part = n * rest % rate
  return n * ((window - rest) / rate) + (n * rest - part) / rate, part
end

-- How many units, the last one counted whole, take at least this time. Where the
-- numbers are too large for that, it is a rounded quotient, corrected by exact
-- comparison.
local function missing(time, part, window, rate)
  local units = time * rate + part
  if units <= 0 then
    return 0
  elseif units < 2^53 then
    local rest = units % window
    return (units - rest) / window + (rest > 0 and 1 or 0)
  end
  local n, most = time / (window / rate), most(window, rate)
  n = n < most and n - n % 1 or most
  local w, p = takes(n, window, rate)
  while n < most and (w < time or w == time and p < part) do
    n = n + 1
    w, p = takes(n, window, rate)
  end
  while n > 0 do
    w, p = takes(n - 1, window, rate)
    if w < time or w == time and p < part then
      break
    end
    n = n - 1
  end
  return n
end

-- When the bucket is full, in the pace of the limit that now holds, and its rate.
local function full_at(s, q)
  local window, rate = q.window, q.limit + 0
  if rate == 0 then
    rate = 1
  end
  q.limit = rate -- a number from here on
  if s.rate == rate or s.rate == 0 then
    return s.full, s.part, rate
  end
  local n = missing(s.full - s.newest, s.part, window, s.rate)
  local w, p = takes(math.min(n, most(window, rate)), window, rate)
  return s.newest + w, p, rate
end

local function till(s, q, _, keep) -- whole µs, rounded up
  local full, part, rate = full_at(s, q)
  local w, p = takes(keep, q.window, rate)
  return full - w + (part > p and 1 or 0)
end

local function look(s, q, at)
  local full, part, rate = full_at(s, q)
  local count = missing(full - at, part, q.window, rate)
  local keep = (count < q.burst and count or q.burst) - 1
  local reset_at = part > 0 and full + 1 or full
  if keep <= 0 then
    return count, reset_at, reset_at
  end
  local w, p = takes(keep, q.window, rate)
  return count, full - w + (part > p and 1 or 0), reset_at
end

local function use(s, q, at, n)
  local window, full, part, rate = q.window, full_at(s, q)
  if n < 0 then
    local w, p = takes(math.min(-n, most(window, rate)), window, rate)
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
    if full < at then
      full, part = at, 0
    end
    local count = missing(full - at, part, window, rate)
    if count + n > q.burst then -- a bucket never misses more than can be told
      n = math.min(n, most(window, rate) - count)
      if n <= 0 then
        return
      end
    end
    local w, p = takes(n, window, rate)
    full, part = full + w, part + p
    if part >= rate then
      full, part = full + 1, part - rate
    end
    local span = window / 8
    s.renew = s.renew or s.full - s.full % span < full - full % span
  end
  s.write = (s.write == 'all' or s.rate ~= rate) and 'all' or (s.write == 'part' or s.part ~= part) and 'part' or 'full'
  s.newest, s.full, s.part, s.rate = at, full, part, rate
end

local function save(s, ttl)
  if s.write == 'full' then
    call('HSET', s.key, 'newest', s.newest, 'full', s.full)
  elseif s.write == 'part' then
    call('HSET', s.key, 'newest', s.newest, 'full', s.full, 'part', s.part)
  else
    call('HSET', s.key, 'newest', s.newest, 'full', s.full, 'part', s.part, 'rate', s.rate)
  end
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

