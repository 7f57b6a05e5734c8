package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Reservation holds a place of an account, until it is bound to a resource.
type Reservation struct {
	pool    *Pool
	account Account
	id      string

	mu    sync.Mutex
	place Place // as the store told last
}

// ID tells the reservation from all others of the account.
func (r *Reservation) ID() string { return r.id }

// Account is the account whose place it is.
func (r *Reservation) Account() string { return r.account.Name }

// Ends is the place's deadline, by the store's clock, as of the last call of this
// Reservation; zero before the first.
func (r *Reservation) Ends() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.Ends
}

// Bind makes the place the token of a resource, for as long as WithToken says. From
// then on it is the resource's: Release gives it back, and Renew of the Pool puts
// its deadline off. Binding it again to the same resource changes nothing.
//
// If the hold has ended it is ErrReservationExpired: the resource is there, and its
// place may be somebody else's by now. ErrAlreadyBound if the reservation is bound
// to another resource, or the resource to another reservation.
func (r *Reservation) Bind(ctx context.Context, resourceID string) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := r.pool.check(ctx, "resource id", resourceID); err != nil {
		return err
	}
	return r.heard(r.pool.store.Bind(ctx, r.account, r.id, resourceID, r.pool.token))
}

// Renew puts off the deadline of a place that is not bound, to as long from now as
// WithHold says; it never brings it forward. ErrReservationExpired if the hold has
// ended: then stop what it was held for. ErrAlreadyBound if it is bound.
func (r *Reservation) Renew(ctx context.Context) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	return r.heard(r.pool.store.RenewHold(ctx, r.account, r.id, r.pool.hold))
}

// Cancel gives back the place. Where none is held, because it was given back or
// has ended, there is nothing to do. If it is bound it is ErrAlreadyBound, and stays
// the resource's.
func (r *Reservation) Cancel(ctx context.Context) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	return r.named(r.pool.store.Cancel(ctx, r.account, r.id))
}

func (r *Reservation) check(ctx context.Context) error {
	if err := r.pool.check(ctx, "account", r.account.Name); err != nil {
		return err
	}
	return r.pool.check(ctx, "reservation id", r.id)
}

func (r *Reservation) heard(place Place, err error) error {
	if err == nil {
		r.set(place)
	}
	return r.named(err)
}

func (r *Reservation) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (pool %q, reservation %.200q)", err, r.pool.name, r.id)
}

func (r *Reservation) set(place Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place = place
}

func (r *Reservation) bound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.Resource != ""
}

// giveBack cancels what was not bound, whatever has become of the caller's context.
func (r *Reservation) giveBack(ctx context.Context) error {
	if r.bound() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	err := r.Cancel(ctx)
	if err == nil || errors.Is(err, ErrAlreadyBound) { // by a Bind whose answer was lost
		return nil
	}
	return fmt.Errorf("tokens: a place was not given back, and ends at %v: %w", r.Ends().UTC().Format(time.RFC3339), err)
}
