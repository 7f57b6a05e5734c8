-- Tells whose a resource is.
-- KEYS[1] the index. Reply: the claim that is there, or ''.

return { redis.call('GET', KEYS[1]) or '' }
