package tokens_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/tokens"
)

// A model is a pool as slow and plain as can be: a list of all places there ever
// were, with the time by a number.
type model struct {
	now    time.Duration
	limit  int64
	places []*modelPlace
}

type modelPlace struct {
	account, id, resource string
	ends                  time.Duration
}

func (m *model) find(is func(*modelPlace) bool) *modelPlace {
	for _, p := range m.places {
		if p.ends > m.now && is(p) {
			return p
		}
	}
	return nil
}

func (m *model) byID(account, id string) *modelPlace {
	return m.find(func(p *modelPlace) bool { return p.account == account && p.id == id })
}

func (m *model) byResource(resource string) *modelPlace {
	return m.find(func(p *modelPlace) bool { return p.resource == resource })
}

// ends are the deadlines of an account's places, in order.
func (m *model) ends(account string) (ends []time.Duration) {
	for _, p := range m.places {
		if p.ends > m.now && p.account == account {
			ends = append(ends, p.ends)
		}
	}
	slices.Sort(ends)
	return ends
}

func (m *model) reserve(account, id string) error {
	ends := m.ends(account)
	switch {
	case m.byID(account, id) != nil:
		return nil
	case int64(len(ends)) < m.limit:
		m.places = append(m.places, &modelPlace{account, id, "", m.now + hold})
		return nil
	case m.limit == 0:
		return &tokens.ExhaustedError{Account: account, InUse: int64(len(ends)), RetryAfter: ratelimit.Never}
	}
	// The place is free once fewer than the limit are left.
	i := 0
	for int64(len(ends)-i) >= m.limit {
		i++
	}
	return &tokens.ExhaustedError{Account: account, InUse: int64(len(ends)), Limit: m.limit, RetryAfter: ends[i-1] - m.now}
}

func (m *model) bind(account, id, resource string) error {
	p := m.byID(account, id)
	switch {
	case p == nil:
		return tokens.ErrReservationExpired
	case p.resource == resource:
		return nil
	case p.resource != "" || m.byResource(resource) != nil:
		return tokens.ErrAlreadyBound
	}
	p.resource, p.ends = resource, m.now+token
	return nil
}

func (m *model) renewHold(account, id string) error {
	p := m.byID(account, id)
	switch {
	case p == nil:
		return tokens.ErrReservationExpired
	case p.resource != "":
		return tokens.ErrAlreadyBound
	}
	p.ends = m.now + hold
	return nil
}

func (m *model) cancel(account, id string) error {
	p := m.byID(account, id)
	switch {
	case p == nil:
		return nil
	case p.resource != "":
		return tokens.ErrAlreadyBound
	}
	p.ends = m.now
	return nil
}

func (m *model) renew(resource string) error {
	p := m.byResource(resource)
	if p == nil {
		return tokens.ErrNotBound
	}
	p.ends = m.now + token
	return nil
}

func (m *model) release(resource string) bool {
	p := m.byResource(resource)
	if p != nil {
		p.ends = m.now
	}
	return p != nil
}

// lingers tells whether a reservation that had a token of the resource, which has
// ended, was reserved anew under the same id, and is not bound: in Redis the resource
// may still be claimed for it.
func (m *model) lingers(resource string) bool {
	return slices.ContainsFunc(m.places, func(p *modelPlace) bool {
		now := m.byID(p.account, p.id)
		return p.resource == resource && p.ends <= m.now && now != nil && now.resource == ""
	})
}

// Any sequence of operations has the outcomes that it has on the model. Time passes
// in steps that never come near a deadline, so that slow machines do not matter.
func testModel(t *testing.T, w world) {
	rounds := 1
	if w.inexact == 0 { // rapid stops by the clock, which in memory is the bubble's: after one sequence
		rounds = 500
	}
	for range rounds {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { checkModel(t, w) }) // not T: in a bubble it has no deadline
	}
}

func checkModel(t *rapid.T, w world) {
	ctx := context.Background()
	m := &model{limit: 2}
	p, err := tokens.New(rand.Text(), w.store, func(context.Context, string) (int64, error) { return m.limit, nil },
		tokens.WithHold(hold), tokens.WithToken(token))
	require.NoError(t, err)
	account := rapid.SampledFrom([]string{"a", "b"})
	id := rapid.SampledFrom([]string{"1", "2", "3", "4"})
	resource := rapid.SampledFrom([]string{"x", "y", "z"})
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) { m.check(t, w, p) },
		"Advance": func(t *rapid.T) {
			d := time.Duration(rapid.SampledFrom([]int{1, 2, 4, 30}).Draw(t, "steps")) * 13 * time.Minute
			w.advance(d)
			m.now += d
		},
		"Limit": func(t *rapid.T) { m.limit = rapid.Int64Range(0, 4).Draw(t, "limit") },
		"Reserve": func(t *rapid.T) {
			a, id := account.Draw(t, "account"), id.Draw(t, "id")
			_, err := p.ReserveAs(ctx, a, id)
			requireSame(t, w, m.reserve(a, id), err)
		},
		"Bind": func(t *rapid.T) {
			a, id, x := account.Draw(t, "account"), id.Draw(t, "id"), resource.Draw(t, "resource")
			err := p.Reservation(a, id).Bind(ctx, x)
			if w.inexact > 0 && errors.Is(err, tokens.ErrAlreadyBound) && m.lingers(x) {
				return
			}
			requireSame(t, w, m.bind(a, id, x), err)
		},
		"RenewHold": func(t *rapid.T) {
			a, id := account.Draw(t, "account"), id.Draw(t, "id")
			requireSame(t, w, m.renewHold(a, id), p.Reservation(a, id).Renew(ctx))
		},
		"Cancel": func(t *rapid.T) {
			a, id := account.Draw(t, "account"), id.Draw(t, "id")
			requireSame(t, w, m.cancel(a, id), p.Reservation(a, id).Cancel(ctx))
		},
		"Renew": func(t *rapid.T) {
			x := resource.Draw(t, "resource")
			_, err := p.Renew(ctx, x)
			requireSame(t, w, m.renew(x), err)
		},
		"Release": func(t *rapid.T) {
			x := resource.Draw(t, "resource")
			released, err := p.Release(ctx, x)
			require.NoError(t, err)
			require.Equal(t, m.release(x), released)
		},
	})
}

// check compares what is listed.
func (m *model) check(t *rapid.T, w world, p *tokens.Pool) {
	for _, account := range []string{"a", "b"} {
		places, err := p.List(context.Background(), account)
		require.NoError(t, err)
		ends := m.ends(account)
		require.Len(t, places, len(ends), account)
		for i, place := range places {
			want := m.byID(account, place.Reservation)
			require.NotNil(t, want, place.Reservation)
			require.Equal(t, want.resource, place.Resource)
			require.InDelta(t, ends[i]-ends[0], place.Ends.Sub(places[0].Ends), float64(w.inexact))
		}
		n, err := p.InUse(context.Background(), account)
		require.NoError(t, err)
		require.EqualValues(t, len(ends), n)
	}
}

// requireSame compares errors by what they mean.
func requireSame(t *rapid.T, w world, want, got error) {
	var e, g *tokens.ExhaustedError
	switch {
	case want == nil:
		require.NoError(t, got)
	case errors.As(want, &e):
		require.ErrorAs(t, got, &g)
		require.Equal(t, []any{e.Account, e.InUse, e.Limit}, []any{g.Account, g.InUse, g.Limit})
		require.InDelta(t, e.RetryAfter, g.RetryAfter, float64(w.inexact))
	default:
		require.ErrorIs(t, got, want)
	}
}
