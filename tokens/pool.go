package tokens

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

const (
	defaultHold  = 5 * time.Minute
	defaultToken = 8 * time.Hour

	// giveBack bounds how long Do tries to give a place back.
	giveBack = 5 * time.Second
)

// A Limit tells how many places an account has, from 0, which is none, to
// storage.MaxNumber. It is asked by each Reserve; its error is Reserve's.
type Limit func(ctx context.Context, account string) (int64, error)

// Fixed is a Limit of n places for every account.
func Fixed(n int64) Limit {
	return func(context.Context, string) (int64, error) { return n, nil }
}

// A Pool has a number of places for each account.
type Pool struct {
	name        string
	store       Store
	limit       Limit
	hold, token time.Duration
}

// An Option changes a Pool.
type Option func(*Pool)

// WithHold is how long a place is held before it is bound; 5 minutes if not given.
// From 1 ms up, in whole µs. Make it longer than it takes to create a resource.
func WithHold(d time.Duration) Option { return func(p *Pool) { p.hold = d } }

// WithToken is how long a token lasts if it is not renewed; 8 hours if not given.
// From 1 ms up, in whole µs. Make it longer than a resource lives, or renew it: it
// is for those of whose end nobody hears.
func WithToken(d time.Duration) Option { return func(p *Pool) { p.token = d } }

// New makes a pool. Pools of the same name in the same store have their places
// in common, also in different processes.
func New(name string, store Store, limit Limit, opts ...Option) (*Pool, error) {
	p := &Pool{name: name, store: store, limit: limit, hold: defaultHold, token: defaultToken}
	for _, o := range opts {
		o(p)
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: tokens.New: the name is empty", ErrInvalid)
	case store == nil:
		return nil, fmt.Errorf("%w: tokens.New: pool %q: the store is nil: give it one, such as tokens.NewMemory()", ErrInvalid, name)
	case limit == nil:
		return nil, fmt.Errorf("%w: tokens.New: pool %q: the limit is nil: give it one, such as tokens.Fixed(10)", ErrInvalid, name)
	}
	if err := checkSpan("WithHold", p.hold); err != nil {
		return nil, err
	}
	if err := checkSpan("WithToken", p.token); err != nil {
		return nil, err
	}
	return p, nil
}

func checkSpan(option string, d time.Duration) error {
	const longest = storage.MaxSpan * time.Microsecond
	if d < time.Millisecond || d > longest || d%time.Microsecond != 0 {
		return fmt.Errorf("%w: tokens.%s: %v is not a whole number of µs between %v and %v", ErrInvalid, option, d, time.Millisecond, longest)
	}
	return nil
}

// Name is the name that the pool was made with.
func (p *Pool) Name() string { return p.name }

// Reserve takes a place of the account and holds it until it is bound, cancelled,
// or has ended; see WithHold. If none is free it fails with an *ExhaustedError.
//
// After storage.ErrIndeterminate a place may be held that nobody knows of, until
// it ends; use ReserveAs where that matters.
func (p *Pool) Reserve(ctx context.Context, account string) (*Reservation, error) {
	return p.ReserveAs(ctx, account, rand.Text())
}

// ReserveAs is Reserve with an id of the caller's for the reservation, such as
// that of a job. Asked again with the same id while the reservation has its place,
// also by another process or after a crash, it takes no second one, and the
// deadline stays.
func (p *Pool) ReserveAs(ctx context.Context, account, id string) (*Reservation, error) {
	if err := p.check(ctx, "account", account); err != nil {
		return nil, err
	}
	if err := p.check(ctx, "reservation id", id); err != nil {
		return nil, err
	}
	limit, err := p.limitOf(ctx, account)
	if err != nil {
		return nil, err
	}
	r := p.Reservation(account, id)
	place, err := p.store.Reserve(ctx, r.account, id, limit, p.hold)
	if err != nil {
		return nil, err
	}
	r.set(place)
	return r, nil
}

func (p *Pool) limitOf(ctx context.Context, account string) (int64, error) {
	limit, err := p.limit(ctx, account)
	if err != nil {
		return 0, fmt.Errorf("tokens: pool %q: the account's limit: %w", p.name, err)
	}
	if limit < 0 || limit > storage.MaxNumber {
		return 0, fmt.Errorf("%w: pool %q: limit %d is not between 0 and %d", ErrInvalid, p.name, limit, int64(storage.MaxNumber))
	}
	return limit, nil
}

// Reservation is the reservation of an account with an id, for a process that did
// not reserve it itself. It asks nothing: whether there is such a place is found
// out by what is done with it.
func (p *Pool) Reservation(account, id string) *Reservation {
	return &Reservation{pool: p, account: Account{Pool: p.name, Name: account}, id: id}
}

// Do reserves a place and runs fn, which should bind it. If fn leaves without
// having bound it, by returning, by a panic or by runtime.Goexit, the place is
// given back, also when the context has ended; not for longer than 5 seconds is
// that tried. What was bound stays bound, also when fn fails: there is a resource.
//
// Do returns fn's error. If the place could not be given back, the error says so
// too, and the place comes back at its deadline.
func (p *Pool) Do(ctx context.Context, account string, fn func(ctx context.Context, r *Reservation) error) (err error) {
	if fn == nil {
		return fmt.Errorf("%w: tokens.Pool.Do: fn is nil", ErrInvalid)
	}
	r, err := p.Reserve(ctx, account)
	if err != nil {
		return err
	}
	defer func() {
		if kept := r.giveBack(ctx); kept != nil {
			err = errors.Join(err, kept)
		}
	}()
	return fn(ctx, r)
}

// Release gives back the token of a resource and reports whether there was one.
// Once released, or ended, there is none: that is no error.
func (p *Pool) Release(ctx context.Context, resourceID string) (bool, error) {
	if err := p.check(ctx, "resource id", resourceID); err != nil {
		return false, err
	}
	return p.store.Release(ctx, p.name, resourceID)
}

// Renew puts off the deadline of a resource's token, to as long from now as a token
// lasts, and returns it; it never brings it forward. If there is no token, it is
// ErrNotBound.
func (p *Pool) Renew(ctx context.Context, resourceID string) (ends time.Time, err error) {
	if err := p.check(ctx, "resource id", resourceID); err != nil {
		return time.Time{}, err
	}
	place, err := p.store.Renew(ctx, p.name, resourceID, p.token)
	return place.Ends, err
}

// InUse is the number of the account's places that are taken, held or bound.
func (p *Pool) InUse(ctx context.Context, account string) (int64, error) {
	if err := p.check(ctx, "account", account); err != nil {
		return 0, err
	}
	return p.store.InUse(ctx, Account{Pool: p.name, Name: account})
}

// List is the account's places that are taken, the first to end first.
func (p *Pool) List(ctx context.Context, account string) ([]Place, error) {
	if err := p.check(ctx, "account", account); err != nil {
		return nil, err
	}
	return p.store.List(ctx, Account{Pool: p.name, Name: account})
}

func (p *Pool) check(ctx context.Context, field, value string) error {
	switch {
	case ctx == nil:
		return fmt.Errorf("%w: pool %q: the context is nil", ErrInvalid, p.name)
	case value == "":
		return fmt.Errorf("%w: pool %q: the %s is empty", ErrInvalid, p.name, field)
	}
	return nil
}
