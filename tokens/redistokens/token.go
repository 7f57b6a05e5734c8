package redistokens

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit/tokens"
)

// The package's doc tells why the two steps of each of these, at the index and at
// the account, are safe in this order.

// Bind: see tokens.Store.
func (s *Store) Bind(ctx context.Context, a tokens.Account, reservation, resource string, d time.Duration) (tokens.Place, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return tokens.Place{}, err
	}
	defer b.End()
	found, made, err := s.at(b, look, a, reservation, resource)
	if err != nil || found == none || found == other {
		return tokens.Place{}, cmp.Or(unchanged(err), refusal(found, resource))
	}
	mine := newClaim(a, reservation)
	claimed, err := s.claim(b, resource, mine, d)
	if err != nil {
		return tokens.Place{}, unchanged(err) // a claim alone is no token
	}
	if !claimed {
		return tokens.Place{}, refusal(held, resource)
	}
	found, ends, err := s.at(b, bind, a, reservation, resource, d.Microseconds(), made.UnixMicro())
	switch {
	case err != nil:
		return tokens.Place{}, err // the claim stays: it may be bound
	case found == held, found == bound:
		return tokens.Place{Reservation: reservation, Resource: resource, Ends: ends}, nil
	}
	s.unclaim(b, resource, mine)
	return tokens.Place{}, refusal(found, resource)
}

// refusal is why a reservation is not bound to a resource.
func refusal(found state, resource string) error {
	switch found {
	case none:
		return tokens.ErrReservationExpired
	case other:
		return fmt.Errorf("%w: the reservation, to another resource than %.200q", tokens.ErrAlreadyBound, resource)
	}
	return fmt.Errorf("%w: resource %.200q, by another reservation", tokens.ErrAlreadyBound, resource)
}

// Release: see tokens.Store.
func (s *Store) Release(ctx context.Context, pool, resource string) (bool, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer b.End()
	there, ok, err := s.whose(b, pool, resource)
	if err != nil || !ok {
		return false, err
	}
	found, _, err := s.at(b, drop, there.Account, there.reservation, resource)
	if err != nil || found == held { // held: a Bind may be between its two steps
		return false, err
	}
	s.unclaim(b, resource, there)
	return found == bound, nil
}

// Renew: see tokens.Store.
func (s *Store) Renew(ctx context.Context, pool, resource string, d time.Duration) (tokens.Place, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return tokens.Place{}, err
	}
	defer b.End()
	there, ok, err := s.whose(b, pool, resource)
	if err != nil {
		return tokens.Place{}, err
	}
	if !ok {
		return tokens.Place{}, notBound(resource)
	}
	// The index first: it must last as long as the token.
	still, err := s.writeClaim(b, resource, there, len(there.String()), "", d)
	if err != nil {
		return tokens.Place{}, unchanged(err)
	}
	if still.owner() != there.owner() {
		return tokens.Place{}, notBound(resource) // it was released meanwhile, and bound by another
	}
	found, ends, err := s.at(b, renew, there.Account, there.reservation, resource, d.Microseconds())
	switch {
	case err != nil:
		return tokens.Place{}, err
	case found == bound:
		return tokens.Place{Reservation: there.reservation, Resource: resource, Ends: ends}, nil
	case found != held:
		s.unclaim(b, resource, there)
	}
	return tokens.Place{}, notBound(resource)
}

func notBound(resource string) error {
	return fmt.Errorf("%w: %.200q", tokens.ErrNotBound, resource)
}
