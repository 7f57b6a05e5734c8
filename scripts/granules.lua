-- The state of the window strategies; granules.go tells the same in Go. A granule
-- counts for W from its start, and LATE granules longer.
--
-- The state begins with five numbers, the head: the start of the newest granule; the
-- units used since the state began, and those of them that no longer count; the start
-- of the oldest granule; and its index in the log, which follows. The log has an entry
-- for each granule older than the newest: its start, and the units used up to its end.
-- Both rise, so what is looked for is found by bisection, and nothing has to be moved
-- when granules expire. If all units of the newest granule were given back, 2^52 is added
-- to its start, which no time has, and s.empty is true: it stays, as time does not go back.

local function load(key)
  local head = call('GETRANGE', key, '0', '34')
  if head == '' then
    return { key = key, newest = 0, used = 0, gone = 0, oldest = 0, head = head, write = nil, renew = nil }
  elseif #head < 35 then
    return {}
  end
  local newest, used, gone, oldest = four(head)
  local empty
  if newest >= 2^52 then -- seldom
    newest, empty = newest - 2^52, true
  end
  if newest >= 2^52 or oldest > newest or used >= 2^53 or gone > used then
    return {}
  end
  local s = { key = key, newest = newest, used = used, gone = gone, oldest = oldest, head = head, write = nil, renew = nil }
  if empty then
    s.empty = true
  end
  return s
end

-- s.write is what save has to write: 'used' that number; 'next' a granule more, of
-- which the entry is the head's first two numbers; 'all' of the head; 'both' of
-- these; 'anew' everything, and the log is s.part.

-- What looks into the log, or changes it but at its end. Made when needed, which
-- is seldom: most calls would pay for the making only.
local made
local function log_of(s)
  local HEAD, ENTRY = 35, 14 -- bytes
  local function next_entry(s)
    return (s.write == 'next' or s.write == 'both') and string.sub(s.head, 1, ENTRY) or ''
  end

  if not s.first then
    local log = call('STRLEN', s.key) - HEAD + #next_entry(s)
    s.first, s.size, s.part, s.part_at = number(s.head, 29), log / ENTRY, '', 0
    -- A log that somebody else wrote into is given up, wherever that is noticed: all
    -- of it counts as used when the newest was. And no number leaves its bounds by what
    -- is in it.
    if s.size % 1 > 0 or s.first > s.size then
      s.oldest, s.first, s.size, s.write, s.renew, s.empty = s.newest, 0, 0, 'anew', true, nil
    end
  end
  if made then
    return made
  end
  made = {}

  -- A number of granule i: its start at 1, the units up to its end at 8. It is read
  -- with those of the next granules.
  local function look_up(s, i, offset)
    local at = (i - s.part_at) * ENTRY
    if at < 0 or at >= #s.part then
      local from = HEAD + i * ENTRY
      s.part, s.part_at, at = call('GETRANGE', s.key, from, from + 8 * ENTRY - 1), i, 0
      if #s.part < 8 * ENTRY then
        s.part = s.part .. next_entry(s)
      end
    end
    return math.min(number(s.part, at + offset), 2^53 - 1)
  end

  -- The first granule of which such a number is at least so much: its index, the units
  -- up to its beginning, and its start. The newest granule stands after the log. What is
  -- near the log's beginning is found soonest.
  function made.find(s, offset, least)
    local low, high, before, start, step = s.first, s.size, s.gone, s.newest, 0
    while low < high do
      local half = (high - low - (high - low) % 2) / 2
      local i = low + math.min(step, half)
      if look_up(s, i, offset) < least then
        low, before, step = i + 1, look_up(s, i, 8), step * 2 + 1
      else
        high, start = i, look_up(s, i, 1)
      end
    end
    if before < s.gone or before > s.used or start > s.newest then -- given up
      return s.size, s.gone, s.newest
    end
    return low, before, start
  end

  -- Has the log written anew, without what no longer counts.
  function made.hold(s)
    s.part = call('GETRANGE', s.key, HEAD + s.first * ENTRY, '-1') .. next_entry(s)
    s.size, s.part_at, s.first, s.write, s.renew = s.size - s.first, 0, 0, 'anew', true
  end

  -- Drops the granules from i until before next, and makes the units up to the end of
  -- each from there on n less.
  function made.lower(s, i, next, n)
    if s.write ~= 'anew' then
      i, next = i - s.first, next - s.first
      made.hold(s)
    end
    local log = { string.sub(s.part, 1, i * ENTRY) }
    for j = next, s.size - 1 do
      log[#log + 1] = bytes(look_up(s, j, 1)) .. bytes(math.max(look_up(s, j, 8) - n, 0))
    end
    s.used, s.size, s.part = s.used - n, s.size - (next - i), table.concat(log)
  end

  -- Takes up to n units out of the granules from the given one on, the first ones first.
  -- That is where a use at that time was recorded, or in a later one, where time had
  -- gone on: then what is taken instead expires no later.
  function made.give_back(s, given, n)
    local i, before = made.find(s, 1, given)
    n = math.min(n, s.used - before)
    if n > 0 then
      local last = made.find(s, 8, before + n) -- has the last of them
      local logged = last < s.size
      local empty = (logged and look_up(s, last, 8) or s.used) <= before + n
      if i < s.size then
        made.lower(s, i, logged and empty and last + 1 or last, n)
      else
        s.used = s.used - n
      end
      if empty and not logged and s.first < s.size then
        s.empty, s.write = true, s.write ~= 'used' and s.write or 'all'
      end
    end
    s.oldest = s.first < s.size and look_up(s, s.first, 1) or s.newest
  end
  return made
end

local function count(s, q, at)
  local lasts = q.window + LATE * q.granularity
  if s.newest + lasts <= at then
    return 0
  elseif s.oldest + lasts > at then -- none has expired
    return s.used - s.gone
  end
  local _, gone = log_of(s).find(s, 1, at - lasts + 1)
  return s.used - gone
end

local function till(s, q, _, keep)
  local lasts, start = q.window + LATE * q.granularity, s.newest
  if keep == s.used - s.gone - 1 then
    start = s.oldest
  elseif (keep > 0 or s.empty) and s.oldest < start then
    _, _, start = log_of(s).find(s, 8, s.used - keep)
  end
  return start + lasts
end

local function use(s, q, at, n)
  local start, lasts = at - at % q.granularity, q.window + LATE * q.granularity
  if n < 0 then
    if s.used > s.gone and s.newest >= start and s.newest < start + lasts then -- else they no longer count
      log_of(s).give_back(s, start, -n)
      s.write, s.renew = s.write or 'used', true
    end
    return
  end
  if s.used == s.gone or s.newest + lasts <= at then -- nothing counts any more
    s.newest, s.used, s.gone, s.oldest, s.write, s.renew = start, n, 0, start, 'anew', true
    s.first, s.size, s.part, s.part_at = 0, 0, '', 0
    if s.empty then
      s.empty = nil
    end
    return
  end
  if s.oldest + lasts <= at then
    local log = log_of(s)
    s.first, s.gone, s.oldest = log.find(s, 1, at - lasts + 1)
    s.write = s.write or 'all'
    if s.first > 16 + (s.size - s.first) / 4 then -- the room of what expired is wanted back
      log.hold(s)
    end
  end
  if s.used + n >= 2^53 then
    log_of(s).lower(s, s.first, s.first, s.gone)
    s.gone, n = 0, math.min(n, 2^53 - 1 - s.used)
  end
  if s.empty and n > 0 then
    s.write = log_of(s) and s.write or 'all'
    s.newest, s.empty, s.renew = start, nil, true
    s.oldest = s.first < s.size and s.oldest or start
  elseif s.newest < start and n > 0 then -- the newest granule becomes the last of the log
    if s.write == 'anew' then
      s.part = s.part .. bytes(s.newest) .. bytes(s.used)
    end
    if s.size then
      s.size = s.size + 1
    end
    local part = q.window / 8
    s.renew = s.renew or s.newest - s.newest % part < start - start % part
    s.newest, s.write = start, s.write == 'all' and 'both' or s.write or 'next'
  end
  s.used, s.write = s.used + n, s.write or 'used'
end

local function save(s, ttl)
  local key, write = s.key, s.write
  if write == 'used' then
    call('SETRANGE', key, '7', bytes(s.used))
  elseif write == 'anew' then
    call('SET', key, bytes(s.empty and s.newest + 2^52 or s.newest) .. bytes(s.used) .. bytes(s.gone) .. bytes(s.oldest) .. bytes(s.first) .. s.part)
  else
    if write ~= 'all' then
      call('APPEND', key, string.sub(s.head, 1, 14))
    end
    local head = bytes(s.empty and s.newest + 2^52 or s.newest) .. bytes(s.used)
    if write ~= 'next' then
      head = head .. bytes(s.gone) .. bytes(s.oldest) .. bytes(s.first)
    end
    call('SETRANGE', key, '0', head)
  end
  if s.renew or not own_clock then
    call('PEXPIRE', key, ttl)
  end
  s.write, s.renew = nil, nil
end

