-- Deletes a claim, if it is still there.
-- KEYS[1] the index. ARGV: the claim. Reply: 1 if it was.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return { redis.call('DEL', KEYS[1]) }
end
return { 0 }
