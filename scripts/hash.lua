-- Buckets of width G, of which the current one and the W/G before it count. See
-- hash_limiter.go.

local LATE = 1
