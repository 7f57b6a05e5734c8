-- A log of what was used when: granules as fine as time itself, one µs. See
-- list_limiter.go.

return run(granules(0))
