-- What every script over one account begins with: it reads the clock and drops
-- the places that have ended. The script that follows ends with return finish(reply).
--
-- KEYS[1] a sorted set: the reservations that have a place, by deadline, in µs since 1970
-- KEYS[2] a hash: for each of them '<when it was made, in µs>:<resource, if it is bound>';
--         under '' the newest time at which the account was asked for
--
-- Both keys expire a second or more after the last deadline.

local deadlines, resources = KEYS[1], KEYS[2]

-- What a reservation is to a resource. See state in account.go.
local NONE, HELD, BOUND, OTHER = 0, 1, 2, 3

local function whole(x)
  return string.format('%.0f', x)
end

local function set(id, ends)
  redis.call('ZADD', deadlines, whole(ends), id)
  return ends
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- The clock was set back, or another server has taken over: everybody keeps the
-- time that was left, so that nothing that has ended comes back, and nothing stays
-- for longer than it was to.
local back = (tonumber(redis.call('HGET', resources, '')) or now) - now
if back > 0 then
  local all = redis.call('ZRANGE', deadlines, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    set(all[i], tonumber(all[i + 1]) - back)
  end
end

local ended
repeat
  ended = redis.call('ZRANGEBYSCORE', deadlines, '-inf', whole(now), 'LIMIT', 0, 1000)
  if #ended > 0 then
    redis.call('ZREM', deadlines, unpack(ended))
    redis.call('HDEL', resources, unpack(ended))
  end
until #ended < 1000

-- at is the deadline of the place that ends as number i, from 0; nil if there is none.
local function at(i)
  return tonumber(redis.call('ZRANGE', deadlines, i, i, 'WITHSCORES')[2])
end

-- about is what a reservation is bound to, or '', and when it was made: it tells
-- one reservation from another that has the same id after it.
local function about(id)
  local made, bound = string.match(redis.call('HGET', resources, id) or '', '^(%d+):(.*)$')
  return bound or '', made or '0'
end

local function remember(id, made, bound)
  redis.call('HSET', resources, id, made .. ':' .. bound)
end

local function state(id, resource)
  if not redis.call('ZSCORE', deadlines, id) then
    return NONE
  end
  local bound = about(id)
  if bound == '' then
    return HELD
  end
  return bound == resource and BOUND or OTHER
end

-- wanted is the state of a place that is meant by a reservation and a resource,
-- or by a reservation and ''.
local function wanted(resource)
  return resource == '' and HELD or BOUND
end

local function ends(id)
  return tonumber(redis.call('ZSCORE', deadlines, id))
end

local function finish(reply)
  local last = at(-1)
  if last then
    redis.call('HSET', resources, '', whole(now))
    local ttl = whole(math.ceil((last - now) / 1000) + 1000)
    redis.call('PEXPIRE', deadlines, ttl)
    redis.call('PEXPIRE', resources, ttl)
  else
    redis.call('DEL', deadlines, resources)
  end
  return reply
end
