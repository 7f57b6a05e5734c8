-- Fixed windows: one count for each window ⌊now/W⌋. See simple_limiter.go.
-- The state is a string, 'newest used'.

local function load(key)
  local s, text = { key = key, used = 0 }, redis.call('GET', key)
  if text then
    local newest, used = string.match(text, '^(%d+) (%d+)$')
    s.newest, s.used = tonumber(newest), tonumber(used)
    s.broken = not newest or max(s.newest, s.used) > MAX_NUMBER
  end
  return s
end

local function peek(s, q, at, n)
  local window = floor(at / q.window)
  if not s.newest or floor(s.newest / q.window) < window then
    return room(q, 0, n, 0)
  end
  local ends = (window + 1) * q.window
  return room(q, s.used, n, ends, function() return ends end)
end

local function use(s, q, at, n)
  local current = s.newest and floor(s.newest / q.window) == floor(at / q.window)
  if n < 0 then
    if current then
      s.used = max(0, s.used + n)
    end
    return
  end
  if not current then
    s.used = 0
  end
  s.newest = at
  s.used = s.used + min(n, MAX_NUMBER - s.used)
end

local function save(s, ttl)
  redis.call('SET', s.key, string.format('%.0f %.0f', s.newest, s.used), 'PX', ttl)
end

return run(load, peek, use, save)
