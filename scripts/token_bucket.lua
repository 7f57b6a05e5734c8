-- A level refilled at L/W up to the burst. See token_bucket.go.
--
-- The state is newest, full, part and rate: the bucket is full again at
-- full + part/rate µs.

local function load(key)
  local state = call('GET', key)
  if not state then
    return { key = key, newest = 0, full = 0, part = 0, rate = -1, write = nil, renew = nil }
  elseif #state ~= 28 then
    return {}
  end
  local newest, full, part, rate = four(state)
  if newest > full or full >= 2^53 or part >= rate or rate >= 2^53 then
    return {}
  end
  return { key = key, newest = newest, full = full, part = part, rate = rate, write = nil, renew = nil }
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

-- When a bucket is full that is told in another rate than the one that now holds.
local function repaced(s, window, rate)
  if rate == 0 then -- of a limit of 0
    rate = 1
  end
  if s.rate == rate or s.rate < 0 then
    return s.full, s.part, rate
  end
  local n = missing(s.full - s.newest, s.part, window, s.rate)
  local w, p = takes(math.min(n, most(window, rate)), window, rate)
  return s.newest + w, p, rate
end

local function count(s, q, at)
  local full, part, rate = s.full, s.part, q.limit + 0
  q.limit = rate -- a number from here on
  if s.rate ~= rate then
    full, part, rate = repaced(s, q.window, rate)
  end
  return missing(full - at, part, q.window, rate)
end

local function till(s, q, _, keep) -- whole µs, rounded up
  local full, part, rate = s.full, s.part, q.limit + 0
  if s.rate ~= rate then
    full, part, rate = repaced(s, q.window, rate)
  end
  if keep > 0 then
    local w, p = takes(keep, q.window, rate)
    full, part = full - w, part - p
  end
  return part > 0 and full + 1 or full
end

local function use(s, q, at, n)
  local window, full, part, rate = q.window, s.full, s.part, q.limit + 0
  if s.rate ~= rate then
    full, part, rate = repaced(s, window, rate)
  end
  if n < 0 then
    local w, p = takes(math.min(-n, most(window, rate)), window, rate)
    w = w - math.max(0, s.newest - at) -- refilled since the units were recorded
    if s.rate < 0 or w < 0 then
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
    if op == '2' then -- what nobody checked; a bucket never misses more than can be told
      n = math.min(n, most(window, rate) - missing(full - at, part, window, rate))
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
  s.write = (s.write == 'all' or s.part ~= part or s.rate ~= rate) and 'all' or 'newest'
  s.newest, s.full, s.part, s.rate = at, full, part, rate
end

local function save(s, ttl)
  local state = bytes(s.newest) .. bytes(s.full)
  if s.write == 'all' then
    state = state .. bytes(s.part) .. bytes(s.rate)
  end
  call('SETRANGE', s.key, '0', state)
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

