// Package tokens limits capacity that is not a rate: at most 10 clusters at a
// time for an account, at most 4 workers at a job. A place is taken before the
// resource exists, bound to the resource, and comes back when the resource is
// gone:
//
//	clusters, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(10))
//	err = clusters.Do(ctx, account, func(ctx context.Context, r *tokens.Reservation) error {
//		id, err := createCluster(ctx)
//		if err != nil {
//			return err // and the place is back
//		}
//		return r.Bind(ctx, id)
//	})
//	...
//	released, err := clusters.Release(ctx, id)
//
// # The life of a place
//
// Reserve takes a place, for 5 minutes. Bind makes it the token of a resource,
// once, for 8 hours. Release gives the place back by the resource's id alone, so
// that whoever hears of the resource's end can do it; package tokens/events does
// when the cloud sends an event. A place that nobody gives back comes back at its
// deadline, which each has of its own: a crash costs no place for good. WithHold
// and WithToken set the two spans, Renew puts a deadline off.
//
// With short holds that their workers renew, and never bind, a Pool is a
// semaphore of many processes; see examples/semaphore.
//
// # Promises
//
//   - Counting and taking are one atomic step: an account never has more places
//     than its limit at the time they were taken. A lowered limit takes nothing away.
//   - A hold that has ended is never revived: Bind is then ErrReservationExpired.
//   - Every operation can be repeated safely, when its answer was lost too.
//   - Accounts, reservations and resources are any bytes, but none. Two that differ
//     never meet, also not those of pools of different names.
//
// # Stores
//
// NewMemory keeps places in this process; package tokens/redistokens in a Redis,
// or a Redis cluster, that many processes share. Deadlines are by the store's
// clock: in Redis the server's, in memory a monotonic one.
//
// All types are safe for concurrent use, and there is nothing to close.
package tokens
