package redisstore

// Join is for tests.
var Join = join
