-- Fixed windows: one count for each window, told by its start, a multiple of W.
-- See simple_limiter.go. The state is newest, the start, and used.

local function load(key)
  local state = call('GET', key)
  if not state then
    return { key = key, newest = -1, used = 0, write = nil, renew = nil }
  elseif #state ~= 14 then
    return {}
  end
  local newest, used = number(state, 1), number(state, 8)
  if newest >= 2^53 or used >= 2^53 then
    return {}
  end
  return { key = key, newest = newest, used = used, write = nil, renew = nil }
end

local function count(s, q, at)
  return at < s.newest + q.window and s.used or 0
end

local function till(s, q)
  return s.newest + q.window
end

local function use(s, q, at, n)
  local start = at - at % q.window
  if s.newest == start then
    local sum = s.used + n
    s.renew = s.renew or s.used == 0 -- all was given back, and the expiry said so
    s.used, s.write = sum < 0 and 0 or sum > 2^53 - 1 and 2^53 - 1 or sum, true
  elseif n > 0 then
    s.newest, s.used, s.write, s.renew = start, n, true, true
  end
end

local function save(s, ttl)
  if s.renew then
    call('SETRANGE', s.key, '0', bytes(s.newest) .. bytes(s.used))
  else
    call('SETRANGE', s.key, '7', bytes(s.used))
  end
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

