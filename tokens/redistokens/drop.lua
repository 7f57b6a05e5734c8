-- Gives a place back: a token or, with the resource '', a hold.
-- KEYS: see account.lua. ARGV: reservation, resource or ''.
-- Reply: the state that was found.

local id, resource = ARGV[1], ARGV[2]

local found = state(id, resource)
if found == wanted(resource) then
  redis.call('ZREM', deadlines, id)
  redis.call('HDEL', resources, id)
end
return finish({ found })
