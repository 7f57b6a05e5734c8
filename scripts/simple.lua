-- Fixed windows: one count for each window, told by its start, a multiple of W.
-- See simple_limiter.go. The state is a string, 'newest used'.

local function load(key)
  local s, text = { key = key }, redis.call('GET', key)
  if text then
    local newest, used = string.match(text, '^(%d+) (%d+)$')
    s.newest, s.used = tonumber(newest), tonumber(used)
    s.broken = not newest or max(s.newest, s.used) > MAX_NUMBER
  end
  return s
end

local function peek(s, q, at, n)
  if not s.newest or s.newest + q.window <= at then
    return room(q, 0, n, 0)
  end
  local ends = s.newest + q.window
  return room(q, s.used, n, ends, function() return ends end)
end

local function use(s, q, at, n)
  local start = at - at % q.window
  local current = s.newest == start
  if n < 0 then
    if current then
      s.used = max(0, s.used + n)
    end
  elseif current then
    s.used = s.used + min(n, MAX_NUMBER - s.used)
  else
    s.newest, s.used = start, n
  end
end

local function save(s, ttl)
  redis.call('SET', s.key, string.format('%.0f %.0f', s.newest, s.used), 'PX', ttl)
end

return run(load, peek, use, save)
