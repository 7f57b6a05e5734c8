package redistokens

import (
	"context"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
)

// A state is what a reservation is to a resource, at its account.
type state int64

const (
	none  state = iota // it has no place, and never will have again
	held               // it has a place that is not bound
	bound              // it is bound to the resource
	other              // it is bound to another one
)

// Reserve: see tokens.Store.
func (s *Store) Reserve(ctx context.Context, a tokens.Account, reservation string, limit int64, d time.Duration) (tokens.Place, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return tokens.Place{}, err
	}
	defer b.End()
	raw, err := s.run(b, reserve, s.accountKeys(a), reservation, limit, d.Microseconds())
	if err != nil {
		return tokens.Place{}, err
	}
	r := reply{values: raw}
	if r.number() == 1 {
		p := tokens.Place{Reservation: reservation, Ends: r.time(), Resource: r.text()}
		return p, r.check()
	}
	e := &tokens.ExhaustedError{Pool: a.Pool, Account: a.Name, Limit: limit, InUse: r.number(), EarliestEnd: r.time()}
	if e.RetryAfter = ratelimit.Never; limit > 0 {
		e.RetryAfter = time.Duration(r.number()) * time.Microsecond
	} else {
		r.number()
	}
	if err := r.check(); err != nil {
		return tokens.Place{}, err
	}
	return tokens.Place{}, e
}

// RenewHold: see tokens.Store.
func (s *Store) RenewHold(ctx context.Context, a tokens.Account, reservation string, d time.Duration) (tokens.Place, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return tokens.Place{}, err
	}
	defer b.End()
	found, ends, err := s.at(b, renew, a, reservation, "", d.Microseconds())
	switch {
	case err != nil:
		return tokens.Place{}, err
	case found == none:
		return tokens.Place{}, tokens.ErrReservationExpired
	case found != held:
		return tokens.Place{}, fmt.Errorf("%w: renew it by its resource", tokens.ErrAlreadyBound)
	}
	return tokens.Place{Reservation: reservation, Ends: ends}, nil
}

// Cancel: see tokens.Store.
func (s *Store) Cancel(ctx context.Context, a tokens.Account, reservation string) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer b.End()
	found, _, err := s.at(b, drop, a, reservation, "")
	if err == nil && found != none && found != held {
		err = fmt.Errorf("%w: release it by its resource", tokens.ErrAlreadyBound)
	}
	return err
}

// InUse: see tokens.Store.
func (s *Store) InUse(ctx context.Context, a tokens.Account) (int64, error) {
	raw, err := s.ask(ctx, count, a)
	if err != nil {
		return 0, err
	}
	r := reply{values: raw}
	return r.number(), r.check()
}

// List: see tokens.Store.
func (s *Store) List(ctx context.Context, a tokens.Account) ([]tokens.Place, error) {
	raw, err := s.ask(ctx, list, a)
	if err != nil {
		return nil, err
	}
	r := reply{values: raw}
	places := make([]tokens.Place, len(raw)/3)
	for i := range places {
		places[i] = tokens.Place{Reservation: r.text(), Resource: r.text(), Ends: r.time()}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return places, nil
}

// ask asks what changes no place: if its answer is lost, nothing has happened.
func (s *Store) ask(ctx context.Context, sc script, a tokens.Account) ([]any, error) {
	b, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.End()
	raw, err := s.run(b, sc, s.accountKeys(a))
	return raw, unchanged(err)
}

// at runs a script that answers with the state that it found, and maybe a time.
func (s *Store) at(b *rediscall.Bound, sc script, a tokens.Account, args ...any) (state, time.Time, error) {
	raw, err := s.run(b, sc, s.accountKeys(a), args...)
	if err != nil {
		return none, time.Time{}, err
	}
	r := reply{values: raw}
	found, ends := state(r.number()), time.Time{}
	if len(r.values) > 0 {
		ends = r.time()
	}
	return found, ends, r.check()
}

// A reply is read value by value; check tells whether it was what a script of ours
// answers.
type reply struct {
	values []any
	failed bool
}

func next[T any](r *reply) (v T) {
	if len(r.values) == 0 {
		r.failed = true
		return v
	}
	v, ok := r.values[0].(T)
	r.values = r.values[1:]
	r.failed = r.failed || !ok
	return v
}

func (r *reply) number() int64 { return next[int64](r) }
func (r *reply) text() string  { return next[string](r) }

// time is a moment in µs since 1970, or none.
func (r *reply) time() time.Time {
	if us := r.number(); us >= 0 {
		return time.UnixMicro(us)
	}
	return time.Time{}
}

func (r *reply) check() error {
	if r.failed || len(r.values) > 0 {
		return fmt.Errorf("%w: a script of redistokens answered with something else than it does", storage.ErrMisconfigured)
	}
	return nil
}
