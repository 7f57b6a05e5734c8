-- Tells what a reservation is to a resource.
-- KEYS: see account.lua. ARGV: reservation, resource.
-- Reply: the state, and when the reservation was made.

local _, made = about(ARGV[1])
return finish({ state(ARGV[1], ARGV[2]), tonumber(made) })
