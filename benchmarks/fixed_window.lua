-- EVALSHA fixed_window 1 key limit window
--   key     the counter of the window
--   limit   units a window
--   window  ms
-- Reply: 1 if the unit is granted, else 0.
--
-- What is mostly written by hand: the window begins with its first unit, and what
-- is refused is counted too.
local used = redis.call('INCR', KEYS[1])
if used == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return used <= tonumber(ARGV[1]) and 1 or 0
