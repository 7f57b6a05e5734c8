-- The state of the window strategies; granules.go tells the same in Go. A granule
-- counts for W from its start, and LATE granules longer.
--
-- It is a hash. Three fields serve most calls: the units in all granules (total)
-- and the starts of the newest and the oldest of them. The granules older than the
-- newest are the log: each has a field 'start units', named by a number, and three
-- more tell the units in all of these (older) and the first and the next number.
-- A strategy that adds to the log with most calls (LOGS) reads all six at once.
-- Where a number is written as it was read, the text that was read is written:
-- Redis before 7.2 takes as long to write out a number as to read two fields.

-- A log that does not fit what else is known of it is given up: all its units
-- count as used when the newest were. So nothing that somebody else wrote into it,
-- or deleted from it, is looked for in vain, or locks out for longer than a window.
local function give_up(s)
  s.oldest, s.anew, s.log = s.newest, true, { older = 0, next = 0, first = 0, entry = nil }
  return s.log
end

-- The numbers of a log that is not empty, if they can be.
local function log_from(s, older, next, first)
  older, next, first = tonumber(older), tonumber(next), tonumber(first)
  if older and next and first and older >= 0 and older <= s.total
    and first >= 0 and first < next and next < 2^53 and first % 1 == 0 and next % 1 == 0 then
    s.log = { older = older, next = next, first = first, entry = nil }
    return s.log
  end
  return give_up(s)
end

local function load(key)
  local words = LOGS and call('HMGET', key, 'total', 'newest', 'oldest', 'older', 'next', 'first')
    or call('HMGET', key, 'total', 'newest', 'oldest')
  if not words[1] then
    return { key = key, total = 0, newest = 0, oldest = 0, write = nil, renew = nil, log = nil, words = words }
  end
  local total, newest, oldest = tonumber(words[1]), tonumber(words[2]), tonumber(words[3])
  if not (total and newest and oldest and total >= 0 and total < 2^53 and newest >= oldest and newest < 2^53) then
    return {}
  end
  local s = { key = key, total = total, newest = newest, oldest = oldest, write = nil, renew = nil, log = nil, words = words }
  if LOGS and oldest < newest then
    log_from(s, words[4], words[5], words[6])
  end
  return s
end

-- What tells of the log, read when first asked for. Later it has, under their
-- numbers, also the granules that were read.
local function log_of(s)
  if s.log then
    return s.log
  elseif s.oldest < s.newest then
    local words = call('HMGET', s.key, 'older', 'next', 'first')
    return log_from(s, words[1], words[2], words[3])
  end
  s.log = { older = 0, next = 0, first = 0, entry = nil }
  return s.log
end

-- What looks into the log, or changes it but at its end. Made when needed, which
-- is seldom: most calls would pay for the making only.
local made
local function rare(s)
  local log = log_of(s)
  if log.entry then -- added a moment ago: it may have to be changed
    local start, units = string.match(log.entry, '(%d+) (%d+)')
    log[log.next - 1], log.changed, log.entry = { start + 0, units + 0 }, { log.next - 1 }, nil
  end
  if made then
    return made
  end

  -- Start and units of granule number i; nil after the last, and if there is none
  -- in its place. They are read when they are asked for, more each time.
  local function granule(s, i)
    local log = s.log
    if i >= log.next then
      return nil
    end
    if log[i] == nil then
      local batch, numbers = log.batch or 2, {}
      for j = i, math.min(i + batch, log.next) - 1 do
        numbers[#numbers + 1] = j
      end
      log.batch = math.min(batch * 4, 1000)
      for j, text in ipairs(call('HMGET', s.key, unpack(numbers))) do
        local start, units = string.match(text or '', '^(%d+) (%d+)$')
        if log[i + j - 1] == nil then
          log[i + j - 1] = start and start + 0 < s.newest and { start + 0, units + 0 } or false
        end
      end
    end
    if log[i] then
      return log[i][1], log[i][2]
    end
  end

  -- Sets granule number i, or drops it.
  local function put(s, i, granule)
    local log = s.log
    log.changed = log.changed or {}
    log[i], log.changed[#log.changed + 1] = granule, i
  end

  -- The number of the first granule that began after a time, the units in those
  -- before it, and its start.
  local function expire(s, time)
    local i, units = s.log.first, 0
    local start, count = granule(s, i)
    while start and start <= time do
      i, units = i + 1, units + count
      start, count = granule(s, i)
    end
    local rest = s.log.older - units
    if rest < 0 or not start and (i < s.log.next or rest > 0) then
      give_up(s)
      return 0, 0, s.newest
    end
    return i, units, start or s.newest
  end

  local function drop_expired(s, time)
    local first, units, oldest = expire(s, time)
    local log = s.log
    log.gone = log.gone or log.first
    log.first, log.older = first, log.older - units
    s.total, s.oldest, s.write = s.total - units, oldest, 'all'
  end

  -- The start of the granule with whose end no more than keep of the units are
  -- left that count when those until a time have expired.
  local function reach(s, time, keep)
    local i, units = expire(s, time)
    local left = s.total - units
    local start, count = granule(s, i)
    while start do
      left = left - count
      if left <= keep then
        return start
      end
      i = i + 1
      start, count = granule(s, i)
    end
    return s.newest
  end

  -- Takes up to n units out of the first granule that is not before the given one:
  -- that is where a use at that time was recorded, or, where time had gone on, a
  -- granule that expires no later.
  local function give_back(s, given, n)
    local log = s.log
    local i, start, units = log.next, s.newest, s.total - log.older
    while i > log.first and (granule(s, i - 1) or 0) >= given do
      i = i - 1
      start, units = granule(s, i)
    end
    n = math.min(n, units)
    s.total, s.write, s.renew = s.total - n, 'all', true
    if i < log.next then
      log.older = log.older - n
    end
    if n < units then
      if i < log.next then
        put(s, i, { start, units - n })
      end
    elseif log.first < log.next then
      for j = i, log.next - 2 do -- those after it move up
        put(s, j, { granule(s, j + 1) })
      end
      if i == log.next then -- the newest of the older ones takes its place
        local start, units = granule(s, i - 1)
        if not start then
          give_up(s)
          return
        end
        s.newest, log.older = start, log.older - units
      end
      log.next = log.next - 1
      put(s, log.next, nil)
      s.oldest = granule(s, log.first) or s.newest
    end
  end

  made = { put = put, expire = expire, drop_expired = drop_expired, reach = reach, give_back = give_back }
  return made
end

local function till(s, q, at, keep)
  local lasts = q.window + LATE * q.granularity
  if keep == 0 then
    return s.newest + lasts
  elseif keep == s.total - 1 then -- none has expired
    return s.oldest + lasts
  end
  return rare(s).reach(s, at - lasts, keep) + lasts
end

local function look(s, q, at)
  local lasts, burst, count, oldest = q.window + LATE * q.granularity, q.burst, s.total, s.oldest
  if count == 0 or s.newest + lasts <= at then
    return 0, 0, 0
  end
  if oldest + lasts <= at then
    local _, units, start = rare(s).expire(s, at - lasts)
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
      rare(s).give_back(s, start, -n)
    end
    return
  end
  if s.total == 0 or s.newest + lasts <= at then -- nothing counts any more
    s.write = s.oldest < s.newest and 'anew' or s.write or 'all'
    s.total, s.newest, s.oldest, s.log, s.renew = n, start, start, nil, true
    return
  end
  if s.oldest + lasts <= at then
    rare(s).drop_expired(s, at - lasts)
  end
  if n > 2^53 - 1 - s.total then
    n = 2^53 - 1 - s.total
  end
  if s.newest == start then
    s.total, s.write = s.total + n, s.write or 'total'
  elseif n > 0 then -- the newest granule becomes the last of the log
    local log, part = log_of(s), q.window / 8
    local units, words = s.total - log.older, s.words
    if log.changed then
      made.put(s, log.next, { s.newest, units })
    else
      log.entry = words[2] .. (units == 1 and ' 1' or string.format(' %.0f', units))
    end
    log.older, log.next = s.write and s.total or words[1], log.next + 1
    s.renew = s.renew or s.newest - s.newest % part < start - start % part
    s.write = s.write or s.oldest == s.newest and 'all' or 'next'
    s.total, s.newest = s.total + n, start
  end
end

-- Writes what of s.write has changed.
local function save(s, ttl)
  local key, log = s.key, s.log
  if s.write == 'total' and not s.anew then
    call('HSET', key, 'total', s.total)
  elseif s.write == 'next' and log.entry then
    call('HSET', key, 'total', s.total, 'newest', s.newest, 'older', log.older, 'next', log.next, s.words[5] or log.next - 1, log.entry)
  else
    if s.write == 'anew' or s.anew then
      call('DEL', key)
    end
    log = log_of(s)
    local set, gone = {
      'total', s.total, 'newest', s.newest, 'oldest', s.oldest, 'older', log.older, 'next', log.next, 'first', log.first,
      log.entry and log.next - 1, log.entry,
    }, {}
    for i = log.gone or log.first, log.first - 1 do
      gone[#gone + 1] = i
    end
    for _, i in ipairs(log.changed or {}) do
      if log[i] then
        local n = #set
        set[n + 1], set[n + 2] = i, string.format('%.0f %.0f', log[i][1], log[i][2])
      else
        gone[#gone + 1] = i
      end
    end
    for i = 1, #set, 1000 do -- as many as fit on Lua's stack
      call('HSET', key, unpack(set, i, math.min(i + 999, #set)))
    end
    for i = 1, #gone, 1000 do
      call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone)))
    end
  end
  if s.renew or s.anew or not own_clock then
    call('PEXPIRE', key, ttl)
  end
  s.write, s.renew, s.anew, s.log = nil, nil, nil, nil
end

