module github.com/granule-limits/ratelimit

go 1.26.8
