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
try('SET', key, 'a')
try('PEXPIRE', key, 1000)
try('APPEND', key, 'b')
try('SETRANGE', key, 0, 'b')
try('GET', key)
try('GETRANGE', key, 0, 1)
try('STRLEN', key)
try('DEL', key)
return failed or { 1 }
