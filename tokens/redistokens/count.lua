-- Counts the places that are taken.
-- KEYS: see account.lua. Reply: how many.

return finish({ redis.call('ZCARD', deadlines) })
