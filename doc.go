// Package ratelimit limits how many units of work are done in how much time: a
// service imports it, and asks in its request handlers whether work fits several
// quotas at once. The state is in memory or in Redis, and the answer is the same.
//
// Most callers should make a [Policy] and use its Allow or Wait:
//
//	limiter := ratelimit.NewSlidingWindow(memory.New())
//	perUser, err := ratelimit.NewPolicy("new-thread", limiter, ratelimit.PerMinute(1))
//	d, err := perUser.Allow(ctx, userID) // d.Allowed, d.Remaining, d.RetryAfter
//
// The [Limiter] underneath takes several requests, each for any number of units
// under any number of quotas, in one atomic call; it grants a part where a part
// fits, and can check first and record later what was really used.
//
// # Strategies
//
// A strategy is how use is counted. If in doubt, take the sliding window.
//
//   - [NewSlidingWindow] counts in granules, and sums the newest of them. Close to
//     exact, small, the same speed whatever the number of granules.
//   - [NewListLimiter] logs every use. Exact in every interval, for limits that
//     must hold to the unit; one entry for each use within a window.
//   - [NewHashLimiter] counts in buckets, one more than a window has. Never too
//     much in any interval, with little memory; frees up to a bucket late.
//   - [NewSimpleLimiter] counts in fixed windows. Two numbers; up to twice the
//     limit across an edge.
//   - [NewSlidingCounter] counts in two fixed windows, and weighs the previous one.
//     Three numbers, no edge; close to twice the limit in the worst case.
//   - [NewTokenBucket] refills a level all the time, up to a burst. For a steady
//     rate with some slack, without edges.
//
// Each constructor's doc has the promise that the strategy keeps: it never admits
// more, whatever the traffic.
//
// # Storages
//
// Package storage/memory keeps counters in this process; package
// storage/redisstore in a Redis that many processes share. Each call is one
// atomic step: a script in Redis, a few locks in memory. Module
// storage/dynamostore has one in DynamoDB. Package storage is the contract, for
// storages of your own.
//
// # Time
//
// The storage's clock stamps each call: in Redis the server's, so that the clocks
// of clients do not matter; in memory a monotonic one, so that setting the wall
// clock does not. [At] gives a call a time of its own, for replays and tests.
// Time is in whole µs. For one counter it never goes backwards: a call stamped
// before the newest use is judged, and recorded, at that use's time. A counter
// that the storage's own clock, since corrected, left more than a window in the
// future is repaired: what was used counts as used now.
//
// # Counters
//
// A counter belongs to a prefix, a strategy and a window, and with the sliding
// window and the hash limiter a granularity. Quotas that agree in those share it,
// in the same storage, also across processes; limits can be raised and lowered,
// and what was used stays used. A quota with a PrefixOverride counts for all
// prefixes together. Any non-empty text is a prefix: nothing in it can reach
// another counter. What is longer than 200 bytes is kept by its SHA-256 digest.
//
// # Errors
//
// Being limited is not an error. Bad input is refused before anything is sent:
// [ErrInvalidQuota], [ErrEmptyPrefix], [ErrInvalidRequest]. A storage that failed
// says what became of the charge: nothing was charged with [ErrUnavailable] and
// [ErrMisconfigured]; with [ErrIndeterminate] it may have been, once. Whether to
// let work through then is the caller's choice.
package ratelimit
