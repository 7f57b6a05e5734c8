-- Runs, on a key of its own, every command that the scripts of the strategies run,
-- so that a permission that is missing is found before it is needed.
-- KEYS[1] the key; it is gone afterwards. The reply is the first error, or 1.

local key, failed = KEYS[1], nil

local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    failed = failed or reply
  end
end

try('TIME')
try('HSET', key, 'a', 1, 'b', 2)
try('PEXPIRE', key, 1000)
try('HMGET', key, 'a', 'b')
try('HDEL', key, 'b')
try('DEL', key)
return failed or { 1 }
