-- Takes a place, if fewer than the limit are taken.
-- KEYS: see account.lua. ARGV: reservation, limit, µs to hold it.
-- Reply: 1, deadline, resource or ''. If all are taken: 0, how many, the first to
-- end, µs until one is free; with -1 for what will not be.

local id, limit = ARGV[1], tonumber(ARGV[2])

if redis.call('ZSCORE', deadlines, id) then
  return finish({ 1, ends(id), (about(id)) })
end
local taken = redis.call('ZCARD', deadlines)
if taken < limit then
  remember(id, whole(now), '')
  return finish({ 1, set(id, now + tonumber(ARGV[3])), '' })
end
local free = limit > 0 and at(taken - limit) - now or -1
return finish({ 0, taken, at(0) or -1, free })
