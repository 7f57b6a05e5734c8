-- The beginning of every script. README.md has the calling convention, and says
-- how a script is put together.
--
-- All numbers are whole and below 2^53. Never .. or tostring one: above 1e14 that
-- loses digits. As arguments of redis.call they keep all of them. 2^53 is written
-- so, and has no name: a local that functions share is made anew with every call.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local op, own_clock = ARGV[1], ARGV[2] == '-1'
