-- sync.lua makes the limits of one service for one resource exactly those given.
--
-- KEYS[1]  the resource's hash: account ("" is the default) -> {"service":…,"quotas":…}
-- ARGV[1]  the service
-- ARGV[2]  1: change nothing, only tell
-- ARGV[3]  the channel on which changes are told
-- ARGV[4]  the resource, as it is told
-- then for each limit: account, value
--
-- reply    how many limits are unchanged
--          then for each difference: action, account, what was there before
--
-- A limit of another service, and what is no limit, is a conflict where a limit is
-- to go, and is left alone. The message is {"resource":…,"accounts":[…]}, or without
-- accounts if there are many. The account "" stands for all that have the default.

local service, dry, channel, resource = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local most_told = 100 -- accounts in a message
local at_once = 1000  -- arguments in a command: unpack has a limit

local function owner(value)
  local ok, limit = pcall(cjson.decode, value)
  return ok and type(limit) == 'table' and limit.service
end

local current = redis.call('HGETALL', KEYS[1])
local before, wanted = {}, {}
for i = 1, #current, 2 do
  before[current[i]] = current[i + 1]
end

local unchanged, reply = 0, {0}
local set, del, changed = {}, {}, {}

local function tell(action, account)
  reply[#reply + 1] = action
  reply[#reply + 1] = account
  reply[#reply + 1] = before[account] or ''
  if action ~= 'conflict' then
    changed[#changed + 1] = account
  end
end

for i = 5, #ARGV, 2 do
  local account, value = ARGV[i], ARGV[i + 1]
  local old = before[account]
  wanted[account] = true
  if old == value then
    unchanged = unchanged + 1
  elseif old and owner(old) ~= service then
    tell('conflict', account)
  else
    tell(old and 'changed' or 'added', account)
    set[#set + 1] = account
    set[#set + 1] = value
  end
end
for i = 1, #current, 2 do
  local account = current[i]
  if not wanted[account] and owner(current[i + 1]) == service then
    tell('removed', account)
    del[#del + 1] = account
  end
end
reply[1] = unchanged

if dry or #changed == 0 then
  return reply
end

-- The message first: if it is not permitted, nothing has changed. Nobody can read
-- the hash before the script has ended.
local message = {resource = resource}
if #changed <= most_told then
  message.accounts = changed
end
redis.call('PUBLISH', channel, cjson.encode(message))

for i = 1, #set, at_once do
  redis.call('HSET', KEYS[1], unpack(set, i, math.min(i + at_once - 1, #set)))
end
for i = 1, #del, at_once do
  redis.call('HDEL', KEYS[1], unpack(del, i, math.min(i + at_once - 1, #del)))
end
return reply
