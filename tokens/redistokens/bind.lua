-- Makes the place of a reservation the token of a resource.
-- KEYS: see account.lua. ARGV: reservation, resource, µs that the token lasts, when the
-- reservation was made: one of the same id that was made since is another.
-- Reply: the state that was found, and the deadline if it was HELD or BOUND.

local id, resource = ARGV[1], ARGV[2]

local found = state(id, resource)
local _, made = about(id)
if made ~= ARGV[4] then
  found = NONE
end
if found == HELD then
  set(id, now + tonumber(ARGV[3]))
  remember(id, made, resource)
end
return finish({ found, ends(id) or -1 })
