-- Puts a deadline off: of a token or, with the resource '', of a hold.
-- KEYS: see account.lua. ARGV: reservation, resource or '', µs from now.
-- Reply: the state that was found, and the deadline.

local id, resource = ARGV[1], ARGV[2]

local found = state(id, resource)
if found == wanted(resource) then
  set(id, math.max(ends(id), now + tonumber(ARGV[3])))
end
return finish({ found, ends(id) or -1 })
