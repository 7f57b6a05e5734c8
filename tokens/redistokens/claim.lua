-- Writes whose a resource is, into its index, if no claim is there, or one that begins
-- like it, or one of a reservation that is known to be gone.
-- KEYS[1] the index. ARGV: the claim, how many of its bytes have to be the same, the
-- claim that is gone or '', ms that it is kept for at least.
-- Reply: the claim that is there now.

local mine, length = ARGV[1], tonumber(ARGV[2])

local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[3] and string.sub(found, 1, length) ~= string.sub(mine, 1, length) then
  return { found }
end
local ttl = math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[1]))
redis.call('SET', KEYS[1], mine, 'PX', string.format('%.0f', ttl))
return { mine }
