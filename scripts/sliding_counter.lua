-- Two fixed windows, the previous one weighted by the part of it that the sliding
-- window still covers. See sliding_counter.go.
--
-- The state is newest, the start of the newest window, a multiple of W; current, the
-- units used in it; and previous, those of the window before.

local function load(key)
  local state = call('GET', key)
  if not state then
    return { key = key, newest = -1, current = 0, previous = 0, write = nil, renew = nil }
  elseif #state ~= 21 then
    return {}
  end
  local newest, current, previous = number(state, 1), number(state, 8), number(state, 15)
  if newest >= 2^53 or current >= 2^53 or previous >= 2^53 then
    return {}
  end
  return { key = key, newest = newest, current = current, previous = previous, write = nil, renew = nil }
end

-- ⌊n × left / window⌋ and the rest. Where the product has too many digits for a
-- double it is divided as on paper, in a base in which no step has: the rest, a
-- digit down, and left × digit are both below base × window, at most 2^52.
local function divide(n, left, window)
  local product = n * left
  if product < 2^53 then
    local rest = product % window
    return (product - rest) / window, rest
  end
  local base = 2^52 / window
  base = base - base % 1
  local digit = n % base
  local units, rest = divide((n - digit) / base, left, window)
  local step = rest * base + digit * left
  rest = step % window
  return units * base + (step - rest) / window, rest
end

-- How many of n units count when so much is left of the window after theirs.
local function covered(n, left, window)
  local units, rest = divide(n, left, window)
  return rest > 0 and units + 1 or units
end

local function count(s, q, at)
  local window = q.window
  local left = s.newest + window - at
  if left > 0 then
    local sum = s.current + covered(s.previous, left, window)
    return sum > 2^53 - 1 and 2^53 - 1 or sum
  end
  left = left + window -- the newest window is the previous one now
  return left > 0 and covered(s.current, left, window) or 0
end

local function till(s, q, _, keep)
  local window, n = q.window, s.previous
  local gone = s.newest + window -- when none of n count
  if keep < s.current then
    gone, n = gone + window, s.current
  else
    keep = keep - s.current
  end
  local product = keep * window
  local left = product / n
  left = left - left % 1 -- the most for which covered is at most keep
  if product >= 2^53 then -- which is rounded then, and corrected by exact comparison
    while covered(n, left, window) > keep do
      left = left - 1
    end
    while covered(n, left + 1, window) <= keep do
      left = left + 1
    end
  end
  return gone - left
end

local function use(s, q, at, n)
  local start = at - at % q.window
  if n < 0 then -- units are given back to their window, if it still counts
    if start == s.newest then
      local rest = s.current + n
      s.current, s.write = rest > 0 and rest or 0, true
    elseif start == s.newest - q.window then
      local rest = s.previous + n
      s.previous, s.write, s.renew = rest > 0 and rest or 0, true, true
    end
    return
  end
  if s.current + s.previous + n >= 2^53 then
    n = math.min(n, 2^53 - 1 - count(s, q, at))
    if n == 0 then
      return
    end
  end
  if s.newest == start then
    -- what was given back to nothing has the expiry of the previous window
    s.current, s.write, s.renew = s.current + n, true, s.renew or s.current == 0
  else
    s.previous = s.newest == start - q.window and s.current or 0
    s.newest, s.current, s.write, s.renew = start, n, true, true
  end
end

local function save(s, ttl)
  if s.renew then
    call('SETRANGE', s.key, '0', bytes(s.newest) .. bytes(s.current) .. bytes(s.previous))
  else
    call('SETRANGE', s.key, '7', bytes(s.current))
  end
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

