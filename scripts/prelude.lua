-- The beginning of every script. README.md has the calling convention, and says
-- how a script is put together.
--
-- All numbers are whole and below 2^53. Never .. or tostring one: above 1e14 that
-- loses digits. As arguments of redis.call they keep all of them.

local KEYS, ARGV, call, tonumber = KEYS, ARGV, redis.call, tonumber
local NEVER, MAX_NUMBER, MAX_SPAN = -1, 9007199254740991, 2251799813685248

local op, now = ARGV[1], ARGV[2] + 0
local own_clock = now < 0
