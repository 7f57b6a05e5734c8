-- A log of what was used when: granules as fine as time itself, one µs. See
-- list_limiter.go.

local LATE = 0
