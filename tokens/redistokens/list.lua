-- Lists the places that are taken, the first to end first.
-- KEYS: see account.lua. Reply: for each its reservation, its resource or '', its deadline.

local reply = {}
local all = redis.call('ZRANGE', deadlines, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  reply[#reply + 1] = all[i]
  reply[#reply + 1] = about(all[i])
  reply[#reply + 1] = tonumber(all[i + 1])
end
return finish(reply)
