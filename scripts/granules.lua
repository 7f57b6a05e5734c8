-- The state of the window strategies; granules.go tells the same in Go. A granule
-- counts for W from its start, and LATE granules longer.
--
-- It is a hash. Three fields serve most calls: the units in all granules (total)
-- and the starts of the newest and the oldest of them. The granules older than the
-- newest are the log: each has a field 'start units', named by a number, and three
-- more tell the units in all of these (older) and the first and the next number.

local function load(key)
  local words = call('HMGET', key, 'total', 'newest', 'oldest')
  if not words[1] then
    return { key = key, total = 0, newest = 0, oldest = 0, keep = 0, write = nil, renew = nil, log = nil }
  end
  local total, newest, oldest = tonumber(words[1]), tonumber(words[2]), tonumber(words[3])
  if not (total and newest and oldest and total >= 0 and total <= MAX_NUMBER and newest >= oldest and newest <= MAX_NUMBER) then
    return { key = key, newest = 0, broken = true }
  end
  return { key = key, total = total, newest = newest, oldest = oldest, keep = 0, write = nil, renew = nil, log = nil }
end

-- The numbers of the log, read when first asked for.
local function log_of(s)
  if not s.log then
    local words = s.oldest < s.newest and call('HMGET', s.key, 'older', 'first', 'next') or {}
    s.log = { older = tonumber(words[1]) or 0, first = tonumber(words[2]) or 0, next = tonumber(words[3]) or 0, fields = {}, dropped = {} }
  end
  return s.log
end

-- What looks into the log, or changes it but at its end. Made when needed, which
-- is seldom: most calls would pay for the making only.
local function rare(s)
  local log, batch = log_of(s), 8

  -- Start and units of granule number i; nil after the last. They are read when
  -- they are asked for, more each time.
  local function granule(i)
    if i >= log.next then
      return nil
    end
    if not log[i] then
      local numbers = {}
      for j = i, math.min(i + batch, log.next) - 1 do
        numbers[#numbers + 1] = j
      end
      batch = math.min(batch * 2, 1000)
      for j, text in ipairs(call('HMGET', s.key, unpack(numbers))) do
        local start, units = string.match(text or '', '^(%d+) (%d+)$')
        log[i + j - 1] = log[i + j - 1] or { tonumber(start) or 0, tonumber(units) or 0 }
      end
    end
    return log[i][1], log[i][2]
  end

  local function put(i, start, units)
    log[i] = { start, units }
    table.insert(log.fields, i)
    table.insert(log.fields, string.format('%.0f %.0f', start, units))
  end

  local function drop(i)
    log[i] = nil
    table.insert(log.dropped, i)
  end

  -- The number of the first granule that began after a time, the units in those
  -- before it, and its start.
  local function expire(time)
    local i, units = log.first, 0
    local start, count = granule(i)
    while start and start <= time do
      i, units = i + 1, units + count
      start, count = granule(i)
    end
    return i, units, start or s.newest
  end

  local function drop_expired(time)
    local first, units, oldest = expire(time)
    for i = log.first, first - 1 do
      drop(i)
    end
    log.first, log.older = first, log.older - units
    s.total, s.oldest, s.write = s.total - units, oldest, 'all'
  end

  -- The start of the granule with whose end no more than keep of the units are
  -- left that count when those until a time have expired.
  local function reach(time, keep)
    local i, units = expire(time)
    local left = s.total - units
    local start, count = granule(i)
    while start do
      left = left - count
      if left <= keep then
        return start
      end
      i = i + 1
      start, count = granule(i)
    end
    return s.newest
  end

  -- Takes up to n units out of the first granule that is not before the given one:
  -- that is where a use at that time was recorded, or, where time had gone on, a
  -- granule that expires no later.
  local function give_back(given, n)
    local i, start, units = log.next, s.newest, s.total - log.older
    while i > log.first and granule(i - 1) >= given do
      i = i - 1
      start, units = granule(i)
    end
    n = math.min(n, units)
    s.total, s.write, s.renew = s.total - n, 'all', true
    if i < log.next then
      log.older = log.older - n
    end
    if n < units then
      if i < log.next then
        put(i, start, units - n)
      end
    elseif log.first < log.next then
      for j = i, log.next - 2 do -- those after it move up
        put(j, granule(j + 1))
      end
      if i == log.next then -- the newest of the older ones takes its place
        s.newest, units = granule(i - 1)
        log.older = log.older - units
      end
      log.next = log.next - 1
      drop(log.next)
      s.oldest = granule(log.first) or s.newest
    end
  end

  return { expire = expire, drop_expired = drop_expired, reach = reach, give_back = give_back }
end

local function till(s, q, at, keep)
  local lasts = q.window + LATE * q.granularity
  if keep == 0 then
    return s.newest + lasts
  elseif keep == s.total - 1 then -- none has expired
    return s.oldest + lasts
  end
  return rare(s).reach(at - lasts, keep) + lasts
end

local function look(s, q, at)
  local lasts, burst, count, oldest = q.window + LATE * q.granularity, q.burst, s.total, s.oldest
  if s.total == 0 or s.newest + lasts <= at then
    return 0, 0, 0
  end
  if oldest + lasts <= at then
    local _, units, start = rare(s).expire(at - lasts)
    count, oldest = count - units, start
  end
  local next_at = oldest + lasts
  if count > burst and burst > 0 then
    next_at = till(s, q, at, burst - 1)
  end
  return count, next_at, s.newest + lasts
end

local function use(s, q, at, n)
  local start, lasts = at - at % q.granularity, q.window + LATE * q.granularity
  if n < 0 then
    if s.total > 0 and s.newest >= start then
      rare(s).give_back(start, -n)
    end
    return
  end
  if s.total == 0 or s.newest + lasts <= at then -- nothing counts any more
    s.write = s.oldest < s.newest and 'anew' or s.write or 'all'
    s.total, s.newest, s.oldest, s.log, s.renew = n, start, start, nil, true
    return
  end
  if s.oldest + lasts <= at then
    rare(s).drop_expired(at - lasts)
  end
  if n > MAX_NUMBER - s.total then
    n = MAX_NUMBER - s.total
  end
  if s.newest == start then
    s.total, s.write = s.total + n, s.write or 'total'
  elseif n > 0 then -- the newest granule becomes the last of the log
    local log = log_of(s)
    local i, fields, part = log.next, log.fields, q.window / 8
    fields[#fields + 1] = i
    fields[#fields + 1] = string.format('%.0f %.0f', s.newest, s.total - log.older)
    log[i] = { s.newest, s.total - log.older }
    log.older, log.next = s.total, i + 1
    s.renew = s.renew or s.newest - s.newest % part < start - start % part
    s.total, s.newest, s.write = s.total + n, start, s.write or s.oldest == s.newest and 'all' or 'next'
  end
end

-- Writes what of s.write has changed.
local function save(s, ttl)
  local key, log = s.key, s.log
  if s.write == 'total' then
    call('HSET', key, 'total', s.total)
  elseif s.write == 'next' then
    call('HSET', key, 'total', s.total, 'newest', s.newest, 'older', log.older, 'next', log.next, unpack(log.fields))
  else
    if s.write == 'anew' then
      call('DEL', key)
    end
    log = log or { older = 0, first = 0, next = 0, fields = {}, dropped = {} }
    call('HSET', key, 'total', s.total, 'newest', s.newest, 'oldest', s.oldest, 'older', log.older, 'first', log.first, 'next', log.next)
    for i = 1, #log.dropped, 1000 do -- as many as fit on Lua's stack
      call('HDEL', key, unpack(log.dropped, i, math.min(i + 999, #log.dropped)))
    end
    for i = 1, #log.fields, 1000 do
      call('HSET', key, unpack(log.fields, i, math.min(i + 999, #log.fields)))
    end
  end
  if s.renew or not own_clock then
    call('PEXPIRE', key, ttl)
  end
  s.write, s.renew, s.log = nil, nil, nil
end

