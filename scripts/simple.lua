-- Fixed windows: one count for each window, told by its start, a multiple of W.
-- See simple_limiter.go. The state is a hash of newest, the start, and used.

local function load(key)
  local words = call('HMGET', key, 'newest', 'used')
  if not words[1] then
    return { key = key, newest = -1, used = 0, write = nil, renew = nil, keep = nil }
  end
  local newest, used = tonumber(words[1]), tonumber(words[2])
  if not (newest and used and newest >= 0 and newest < 2^53 and used >= 0 and used < 2^53) then
    return {}
  end
  return { key = key, newest = newest, used = used, write = nil, renew = nil, keep = nil }
end

local function look(s, q, at)
  local ends = s.newest + q.window
  if ends <= at then
    return 0, 0, 0
  end
  return s.used, ends, ends
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
    call('HSET', s.key, 'newest', s.newest, 'used', s.used)
  else
    call('HSET', s.key, 'used', s.used)
  end
  if s.renew or not own_clock then
    call('PEXPIRE', s.key, ttl)
  end
  s.write, s.renew = nil, nil
end

