package tokens

import (
	"errors"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit"
)

// ErrInvalid: an argument is out of bounds. Nothing was sent and nothing has
// changed.
var ErrInvalid = errors.New("tokens: invalid argument")

// What the store answered. Asking again gives the same answer until something
// else has happened.
var (
	// ErrExhausted: all places of the account are taken; see ExhaustedError.
	ErrExhausted = errors.New("tokens: no place is free")
	// ErrReservationExpired: the reservation has no place: its hold has ended, it
	// was cancelled, its token was released, or there never was one.
	ErrReservationExpired = errors.New("tokens: the reservation has expired")
	// ErrAlreadyBound: the reservation is bound, and to another resource than it
	// would have to be; or the resource has, or is just getting, the token of
	// another reservation.
	ErrAlreadyBound = errors.New("tokens: already bound")
	// ErrNotBound: the resource holds no token.
	ErrNotBound = errors.New("tokens: the resource holds no token")
)

// An ExhaustedError says that all places of an account are taken.
// errors.Is(err, ErrExhausted) finds it.
type ExhaustedError struct {
	Pool    string // the pool's name
	Account string // not in the message: it may be personal
	InUse   int64  // places that are taken, held or bound
	Limit   int64
	// EarliestEnd is when the first of the places ends, by the store's clock, if
	// nobody renews it or gives one back sooner. It is zero where none is taken.
	EarliestEnd time.Time
	// RetryAfter is how long until a place is free, if none is renewed or given back:
	// until EarliestEnd or, with a limit that was lowered, the end of as many as are
	// too many. It is ratelimit.Never with a limit of 0.
	RetryAfter time.Duration
}

func (e *ExhaustedError) Error() string {
	if e.RetryAfter == ratelimit.Never {
		return fmt.Sprintf("%v in pool %q, which the account may not use: its limit is 0", ErrExhausted, e.Pool)
	}
	return fmt.Sprintf("%v in pool %q: %d in use, limit %d, the earliest ends at %v", ErrExhausted, e.Pool, e.InUse, e.Limit, e.EarliestEnd.UTC().Format(time.RFC3339))
}

// Unwrap returns ErrExhausted.
func (e *ExhaustedError) Unwrap() error { return ErrExhausted }
