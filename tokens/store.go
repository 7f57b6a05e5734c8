package tokens

import (
	"context"
	"time"
)

// A Store keeps the places of accounts. NewMemory makes one, and package
// tokens/redistokens; a Pool is what a program uses.
//
// A Store must keep these promises:
//
//   - Atomic: each operation is one step over all places of its account. A
//     reservation has at most one place, and a resource of a pool at most one token.
//   - Ended: at its deadline, and after, a place is not counted, not listed and not
//     found; it never comes back. Deadlines are by the store's own clock.
//   - Repeated: an operation that is asked again with the same arguments changes
//     nothing more, but for a Renew, which puts the deadline off from now.
//   - Distinct: names that differ in any byte, also pools, have nothing in common.
//   - Failure: an error that is none of this package wraps storage.ErrUnavailable
//     or storage.ErrMisconfigured if nothing has changed, and storage.ErrIndeterminate
//     if it may have.
//   - Context: a context that has ended fails the operation before anything is
//     changed, with an error that wraps the context's.
//   - Concurrent: all methods may be called from any number of goroutines.
//
// Arguments have been checked: no name is empty, limits are from 0 to
// storage.MaxNumber, spans are whole µs from 1 ms to storage.MaxSpan.
type Store interface {
	// Reserve takes a place for d if fewer than limit are taken, else it fails with
	// an *ExhaustedError. A reservation that has a place already keeps it, as it is.
	Reserve(ctx context.Context, a Account, reservation string, limit int64, d time.Duration) (Place, error)
	// Bind makes the place of a reservation the token of a resource, for d from now.
	// ErrReservationExpired if it has no place, ErrAlreadyBound if either is bound
	// otherwise. A reservation that is bound to the resource stays as it is.
	Bind(ctx context.Context, a Account, reservation, resource string, d time.Duration) (Place, error)
	// RenewHold puts off the deadline of a place that is held, to d from now or what
	// it was, whichever is later. ErrReservationExpired, ErrAlreadyBound.
	RenewHold(ctx context.Context, a Account, reservation string, d time.Duration) (Place, error)
	// Cancel gives back a place that is held, if it is there. ErrAlreadyBound.
	Cancel(ctx context.Context, a Account, reservation string) error
	// Renew is RenewHold for the token of a resource. ErrNotBound.
	Renew(ctx context.Context, pool, resource string, d time.Duration) (Place, error)
	// Release gives back the token of a resource and reports whether there was one.
	Release(ctx context.Context, pool, resource string) (bool, error)
	// InUse is the number of places that are taken.
	InUse(ctx context.Context, a Account) (int64, error)
	// List is the places that are taken, the first to end first.
	List(ctx context.Context, a Account) ([]Place, error)
}

// An Account has places in a pool.
type Account struct{ Pool, Name string }

// A Place is taken by a reservation, and then by the resource it is bound to.
type Place struct {
	Reservation string
	Resource    string    // empty while the place is only held
	Ends        time.Time // the deadline, by the store's clock
}
