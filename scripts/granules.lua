-- The state of the window strategies; granules.go tells the same in Go.
--
-- It is a list. Its last element is the head, 'newest total count oldest': the
-- start of the newest granule, the units in all granules and in the newest, and
-- the start of the oldest. Before it stand the granules older than the newest,
-- 'start count' each, the oldest first. So most calls read and write the head
-- alone, and advancing works at the two ends.

local function text_of(start, count)
  return string.format('%.0f %.0f', start, count)
end

local function granule_of(text)
  local start, count = string.match(text or '', '^(%d+) (%d+)$')
  return tonumber(start), tonumber(count)
end

local function load(key)
  local head = redis.call('LINDEX', key, -1)
  if not head then
    return { key = key, read = 0, dropped = 0, newest = nil, total = 0, count = 0, oldest = 0, advanced = false }
  end
  local newest, total, count, oldest = string.match(head, '^(%d+) (%d+) (%d+) (%d+)$')
  if not newest then
    return { key = key, read = 0, dropped = 0, stored = true, broken = true }
  end
  local s = {
    key = key, stored = true,
    newest = newest + 0, total = total + 0, count = count + 0, oldest = oldest + 0,
    older = nil, read = 0, all = false, -- the older granules that were read, and whether those are all
    dropped = 0, pushed = nil, advanced = false, -- what is not written yet
  }
  s.broken = max(s.newest, s.total, s.count, s.oldest) > MAX_NUMBER
  return s
end

-- Start and units of the i-th of the older granules, or nil after the last. They
-- are read when they are asked for, more each time.
local function older(s, i)
  s.older = s.older or {}
  while i > s.read and not s.all do
    local batch = redis.call('LRANGE', s.key, s.read, s.read * 2 + 7)
    for _, text in ipairs(batch) do
      local start, count = granule_of(text)
      if not start then -- the head
        s.all = true
        break
      end
      s.read = s.read + 1
      s.older[s.read] = { start, count }
    end
    s.all = s.all or #batch == 0
  end
  local granule = s.older[i] or i == s.read + 1 and s.pushed
  if granule then
    return granule[1], granule[2]
  end
end

-- How many of the older granules, those that began until a time, have expired,
-- the dropped ones included; the units in them; and the start of the oldest that
-- has not.
local function expire(s, till)
  if s.oldest > till then
    return s.dropped, 0, s.oldest
  end
  local i, units = s.dropped, 0
  local start, count = older(s, i + 1)
  while start and start <= till do
    i, units = i + 1, units + count
    start, count = older(s, i + 1)
  end
  return i, units, start or s.newest
end

-- Writes what has changed in s.
local function flush(s)
  local head = string.format('%.0f %.0f %.0f %.0f', s.newest, s.total, s.count, s.oldest)
  if s.replace then
    redis.call('DEL', s.key)
    s.stored, s.replace = false, false
  elseif s.dropped > 0 then
    redis.call('LTRIM', s.key, s.dropped, -1)
  end
  if s.stored and s.pushed then
    redis.call('LSET', s.key, -1, text_of(s.pushed[1], s.pushed[2]))
    redis.call('RPUSH', s.key, head)
  elseif s.stored then
    redis.call('LSET', s.key, -1, head)
  else
    redis.call('RPUSH', s.key, head)
  end
  s.stored = true
  s.older, s.read, s.all, s.dropped, s.pushed = nil, 0, false, 0, nil
end

-- Takes up to n units out of the first granule that is not before the given one:
-- that is where a use at that time was recorded, or, where time had gone on, a
-- granule that expires no later.
local function give_back(s, start, n)
  if s.total == 0 or s.newest < start then
    return
  end
  flush(s)
  local index, found, count = -1, s.newest, s.count
  local before, units = granule_of(redis.call('LINDEX', s.key, index - 1))
  while before and before >= start do
    index, found, count = index - 1, before, units
    before, units = granule_of(redis.call('LINDEX', s.key, index - 1))
  end
  n = min(n, count)
  s.total = s.total - n
  if index == -1 then
    s.count = count - n
    if s.count == 0 and s.oldest < s.newest then -- the newest of the older ones takes its place
      redis.call('RPOP', s.key)
      s.newest, s.count = granule_of(redis.call('LINDEX', s.key, -1))
    end
  elseif n < count then
    redis.call('LSET', s.key, index, text_of(found, count - n))
  else
    redis.call('LREM', s.key, -1, text_of(found, count))
    if found == s.oldest then
      s.oldest = granule_of(redis.call('LINDEX', s.key, 0)) or s.newest
    end
  end
end

local function save(s, ttl)
  flush(s)
  if s.advanced then -- else the expiry is set already
    redis.call('PEXPIRE', s.key, ttl)
  end
end

-- A window of W/G granules, and late more.
local function granules(late)
  local function peek(s, q, at, n)
    local lasts = q.window + late * q.granularity -- how long a granule counts from its start
    if not s.newest or s.newest + lasts <= at then
      return room(q, 0, n, 0)
    end
    local first, units, oldest = expire(s, at - lasts)
    local used, reset_at = s.total - units, s.newest + lasts
    return room(q, used, n, reset_at, function(keep)
      if keep == used - 1 then
        return oldest + lasts
      end
      local left, i = used, first + 1
      local start, count = older(s, i)
      while start do
        left = left - count
        if left <= keep then
          return start + lasts
        end
        i = i + 1
        start, count = older(s, i)
      end
      return reset_at
    end)
  end

  local function use(s, q, at, n)
    local start = at - at % q.granularity
    if n < 0 then
      return give_back(s, start, -n)
    end
    local lasts = q.window + late * q.granularity
    if not s.newest or s.total == 0 or s.newest + lasts <= at then -- nothing counts any more
      s.replace = s.replace or s.stored and s.oldest < s.newest
      s.older, s.read, s.all, s.dropped, s.pushed = nil, 0, true, 0, nil
      s.newest, s.total, s.count, s.oldest, s.advanced = start, n, n, start, true
      return
    end
    local units
    s.dropped, units, s.oldest = expire(s, at - lasts)
    s.total = s.total - units
    n = min(n, MAX_NUMBER - s.total)
    if n == 0 then
      return
    end
    if s.newest < start then
      s.pushed = { s.newest, s.count }
      s.newest, s.count, s.advanced = start, 0, true
    end
    s.total, s.count = s.total + n, s.count + n
  end

  return load, peek, use, save
end

