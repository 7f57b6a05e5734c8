package tokens

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A Memory keeps places in this process. It keeps none that have ended, and has no
// goroutine.
type Memory struct {
	mu       sync.Mutex
	accounts map[Account]map[string]*holder // by reservation
	bound    map[resourceKey]*holder
	ends     deadlines
}

type resourceKey struct{ pool, resource string }

// A holder is a place in a Memory. Its deadline has a monotonic reading, as all
// times of a Memory: the wall clock can be set, and nothing changes.
type holder struct {
	account Account
	Place
	index int // in Memory.ends
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{
		accounts: make(map[Account]map[string]*holder),
		bound:    make(map[resourceKey]*holder),
	}
}

// begin locks the store for an operation, and drops what has ended, whosever it
// is: an account that nobody asks for again leaves nothing behind.
func (m *Memory) begin(ctx context.Context) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return now, fmt.Errorf("tokens: nothing done: %w", err)
	}
	m.mu.Lock()
	now = time.Now()
	for len(m.ends) > 0 && !now.Before(m.ends[0].Ends) {
		m.drop(m.ends[0])
	}
	return now, nil
}

func (m *Memory) drop(h *holder) {
	heap.Remove(&m.ends, h.index)
	holders := m.accounts[h.account]
	delete(holders, h.Reservation)
	if len(holders) == 0 {
		delete(m.accounts, h.account)
	}
	if h.Resource != "" {
		delete(m.bound, resourceKey{h.account.Pool, h.Resource})
	}
}

func (m *Memory) move(h *holder, ends time.Time) {
	h.Ends = ends
	heap.Fix(&m.ends, h.index)
}

// Reserve: see Store.
func (m *Memory) Reserve(ctx context.Context, a Account, reservation string, limit int64, d time.Duration) (Place, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Place{}, err
	}
	defer m.mu.Unlock()
	holders := m.accounts[a]
	if h := holders[reservation]; h != nil {
		return h.Place, nil
	}
	if int64(len(holders)) >= limit {
		return Place{}, m.exhausted(a, limit, now)
	}
	if holders == nil {
		holders = make(map[string]*holder)
		m.accounts[a] = holders
	}
	h := &holder{account: a, Place: Place{Reservation: reservation, Ends: now.Add(d)}}
	holders[reservation] = h
	heap.Push(&m.ends, h)
	return h.Place, nil
}

func (m *Memory) exhausted(a Account, limit int64, now time.Time) error {
	ends := make([]time.Time, 0, len(m.accounts[a]))
	for _, h := range m.accounts[a] {
		ends = append(ends, h.Ends)
	}
	e := &ExhaustedError{Pool: a.Pool, Account: a.Name, InUse: int64(len(ends)), Limit: limit, RetryAfter: ratelimit.Never}
	if len(ends) > 0 {
		e.EarliestEnd = slices.MinFunc(ends, time.Time.Compare)
	}
	switch {
	case limit == 0:
	case e.InUse == limit: // as always but for limits that were lowered: no need to sort
		e.RetryAfter = e.EarliestEnd.Sub(now)
	default:
		slices.SortFunc(ends, time.Time.Compare)
		e.RetryAfter = ends[e.InUse-limit].Sub(now)
	}
	return e
}

// Bind: see Store.
func (m *Memory) Bind(ctx context.Context, a Account, reservation, resource string, d time.Duration) (Place, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Place{}, err
	}
	defer m.mu.Unlock()
	h := m.accounts[a][reservation]
	switch other := m.bound[resourceKey{a.Pool, resource}]; {
	case h == nil:
		return Place{}, ErrReservationExpired
	case h.Resource == resource:
		return h.Place, nil
	case h.Resource != "":
		return Place{}, fmt.Errorf("%w: the reservation, to another resource than %.200q", ErrAlreadyBound, resource)
	case other != nil:
		return Place{}, fmt.Errorf("%w: resource %.200q, by another reservation", ErrAlreadyBound, resource)
	}
	h.Resource = resource
	m.bound[resourceKey{a.Pool, resource}] = h
	m.move(h, now.Add(d))
	return h.Place, nil
}

// RenewHold: see Store.
func (m *Memory) RenewHold(ctx context.Context, a Account, reservation string, d time.Duration) (Place, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Place{}, err
	}
	defer m.mu.Unlock()
	h := m.accounts[a][reservation]
	switch {
	case h == nil:
		return Place{}, ErrReservationExpired
	case h.Resource != "":
		return Place{}, fmt.Errorf("%w: renew it by its resource", ErrAlreadyBound)
	}
	m.putOff(h, now.Add(d))
	return h.Place, nil
}

func (m *Memory) putOff(h *holder, ends time.Time) {
	if ends.After(h.Ends) {
		m.move(h, ends)
	}
}

// Cancel: see Store.
func (m *Memory) Cancel(ctx context.Context, a Account, reservation string) error {
	if _, err := m.begin(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	h := m.accounts[a][reservation]
	switch {
	case h == nil:
		return nil
	case h.Resource != "":
		return fmt.Errorf("%w: release it by its resource", ErrAlreadyBound)
	}
	m.drop(h)
	return nil
}

// Renew: see Store.
func (m *Memory) Renew(ctx context.Context, pool, resource string, d time.Duration) (Place, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return Place{}, err
	}
	defer m.mu.Unlock()
	h := m.bound[resourceKey{pool, resource}]
	if h == nil {
		return Place{}, fmt.Errorf("%w: %.200q", ErrNotBound, resource)
	}
	m.putOff(h, now.Add(d))
	return h.Place, nil
}

// Release: see Store.
func (m *Memory) Release(ctx context.Context, pool, resource string) (bool, error) {
	if _, err := m.begin(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	h := m.bound[resourceKey{pool, resource}]
	if h == nil {
		return false, nil
	}
	m.drop(h)
	return true, nil
}

// InUse: see Store.
func (m *Memory) InUse(ctx context.Context, a Account) (int64, error) {
	if _, err := m.begin(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	return int64(len(m.accounts[a])), nil
}

// List: see Store.
func (m *Memory) List(ctx context.Context, a Account) ([]Place, error) {
	if _, err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.places(a), nil
}

// places are in order of their ends, and where those are equal of reservations.
func (m *Memory) places(a Account) []Place {
	places := make([]Place, 0, len(m.accounts[a]))
	for _, h := range m.accounts[a] {
		places = append(places, h.Place)
	}
	slices.SortFunc(places, func(a, b Place) int {
		return cmp.Or(a.Ends.Compare(b.Ends), cmp.Compare(a.Reservation, b.Reservation))
	})
	return places
}

// deadlines is a heap of holders, the first to end on top.
type deadlines []*holder

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].Ends.Before(d[j].Ends) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *deadlines) Push(x any) {
	h := x.(*holder)
	h.index = len(*d)
	*d = append(*d, h)
}

func (d *deadlines) Pop() any {
	old := *d
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return h
}
