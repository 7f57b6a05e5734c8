// Package redistokens keeps the places of package tokens in Redis, through
// go-redis v9, so that the processes of a fleet share them: in a single server,
// behind Sentinel, or in a cluster.
//
//	store, err := redistokens.New(client)
//	clusters, err := tokens.New("clusters", store, tokens.Fixed(10))
//
// Deadlines are by the server's clock. Reserve is one script and one round trip,
// Bind, Release and Renew of a token are three. All is safe to repeat, so
// that what go-redis sends again, because an answer was lost, is done once.
//
// # Why there are two keys to a token
//
// The places of an account are in one slot, and what is there decides: who has a
// place, until when, and for which resource. Release knows the resource alone, so
// there is an index too, in a slot of its own, that names the account and the
// reservation. The two are not written at once; the order makes it safe:
//
//   - A token's index is there as long as the token. Bind looks which reservation it
//     is for; writes the index, which claims the resource; and then the account, where
//     that reservation, and none of the same id that was made since, is judged. A
//     claim is replaced only when its reservation has no place any more, or one that
//     is another resource's; neither ever becomes this resource's token. Release and
//     a Bind that failed delete a claim only if it is the very one that they read or
//     wrote, and only after the reservation has lost its place. It expires a day after the token:
//     a server that carries out a Bind up to a day late changes nothing.
//   - An index without a token does no harm. A crash, or a lost answer, after the
//     claim leaves one. Release and Renew ask the account, and find nothing; who
//     binds the resource next replaces it. Only while the crashed one's hold lasts is
//     that refused, with ErrAlreadyBound.
//   - A crash in Release after the place was given back leaves an index without a
//     token; before, everything, so that the Release can be repeated.
//   - If an index is lost, to an eviction or a failover, Release does not find the
//     token. It ends at its deadline; or repeat its Bind, which writes the index
//     again: List tells the reservation.
package redistokens
