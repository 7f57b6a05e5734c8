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
try('RPUSH', key, 'a', 'b', 'c')
try('PEXPIRE', key, 1000)
try('LINDEX', key, -1)
try('LRANGE', key, 0, 1)
try('LSET', key, 0, 'd')
try('LREM', key, -1, 'd')
try('LTRIM', key, 0, 0)
try('RPOP', key)
try('SET', key, 'a', 'PX', 1000)
try('GET', key)
try('DEL', key)
return failed or { 1 }
