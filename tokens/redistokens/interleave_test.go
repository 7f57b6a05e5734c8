package redistokens_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

// Operations of several round trips, at the same time, in every order of their
// commands, each also with every one of them killed before every command: a bound
// token can be released by its resource, a resource has one token at most, and
// nothing stays behind that is in the way.
func TestInterleavings(t *testing.T) {
	type pool = *tokens.Pool
	type operation = func(ctx context.Context, p pool) error
	bind := func(account, id, resource string) operation {
		return func(ctx context.Context, p pool) error { return p.Reservation(account, id).Bind(ctx, resource) }
	}
	cancel := func(account, id string) operation {
		return func(ctx context.Context, p pool) error { return p.Reservation(account, id).Cancel(ctx) }
	}
	reserve := func(account, id string) operation {
		return func(ctx context.Context, p pool) error { _, err := p.ReserveAs(ctx, account, id); return err }
	}
	release := func(resource string) operation {
		return func(ctx context.Context, p pool) error { _, err := p.Release(ctx, resource); return err }
	}
	renew := func(resource string) operation {
		return func(ctx context.Context, p pool) error { _, err := p.Renew(ctx, resource); return err }
	}
	both := func(first, second operation) operation {
		return func(ctx context.Context, p pool) error { return errors.Join(first(ctx, p), second(ctx, p)) }
	}
	for name, c := range map[string]struct {
		before, meanwhile []operation
		nobodyIsKilled    bool  // there are enough orders without
		order             []int // the only one, where there are too many
	}{
		"one resource, two reservations": {
			[]operation{reserve("a", "1"), reserve("a", "2")},
			[]operation{bind("a", "1", "x"), bind("a", "2", "x")},
			false, nil,
		},
		"one resource, two accounts": {
			[]operation{reserve("a", "1"), reserve("b", "2")},
			[]operation{bind("a", "1", "x"), bind("b", "2", "x"), release("x")},
			true, nil,
		},
		"bind, bind again, release": {
			[]operation{reserve("a", "1")},
			[]operation{bind("a", "1", "x"), bind("a", "1", "x"), release("x")},
			true, nil,
		},
		"one reservation, two resources": {
			[]operation{reserve("a", "1")},
			[]operation{bind("a", "1", "x"), bind("a", "1", "y")},
			false, nil,
		},
		"bind, cancel": {
			[]operation{reserve("a", "1")},
			[]operation{bind("a", "1", "x"), cancel("a", "1"), release("x")},
			false, nil,
		},
		"release, bind by another": {
			[]operation{reserve("a", "1"), bind("a", "1", "x"), reserve("b", "2")},
			[]operation{release("x"), bind("b", "2", "x")},
			false, nil,
		},
		"release, renew": {
			[]operation{reserve("a", "1"), bind("a", "1", "x")},
			[]operation{release("x"), renew("x")},
			false, nil,
		},
		"release, renew, bind by another": {
			[]operation{reserve("a", "1"), bind("a", "1", "x"), reserve("b", "2")},
			[]operation{release("x"), both(renew("x"), bind("b", "2", "x"))},
			false, nil,
		},
		"the same reservation once more": {
			[]operation{reserve("a", "1"), bind("a", "1", "x")},
			[]operation{release("x"), release("x"), both(reserve("a", "1"), bind("a", "1", "x"))},
			true, []int{0, 1, 1, 1, 0, 2, 2, 2, 2, 0}, // so that a claim of old is deleted late
		},
		"the same reservation once more, and renew": {
			[]operation{reserve("a", "1"), bind("a", "1", "x")},
			[]operation{both(release("x"), both(reserve("a", "1"), bind("a", "1", "x"))), renew("x")},
			false, nil,
		},
		"bind before it is reserved": {
			[]operation{reserve("b", "2")},
			[]operation{bind("a", "1", "x"), reserve("a", "1"), release("x")},
			true, nil,
		},
		"bind again, release, and the same reservation once more": {
			[]operation{reserve("a", "1"), bind("a", "1", "x")},
			[]operation{bind("a", "1", "x"), both(release("x"), reserve("a", "1"))},
			true, nil,
		},
		"release twice, the same reservation once more, and renew": {
			[]operation{reserve("a", "1"), bind("a", "1", "x")},
			[]operation{release("x"), release("x"), renew("x"), both(reserve("a", "1"), bind("a", "1", "x"))},
			true, []int{2, 0, 1, 1, 1, 0, 3, 3, 3, 3, 2, 2, 0}, // so that a claim of old is written again, and then deleted
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			runs := 0
			for s := new(schedule); s != nil; s = s.next() {
				s.calm, s.order = c.nobodyIsKilled, c.order
				require.NoError(t, client.FlushDB(t.Context()).Err())
				p := newPool(t, client)
				for _, o := range c.before {
					require.NoError(t, o(t.Context(), p))
				}
				s.run(newPool(t, &gate{client, s}), c.meanwhile)
				requireSound(t, newPool(t, client), s)
				runs++
			}
			t.Logf("%d orders", runs)
		})
	}
}

func newPool(t *testing.T, client redistokens.Client) *tokens.Pool {
	store, err := redistokens.New(client, redistokens.WithTimeout(time.Minute))
	require.NoError(t, err)
	p, err := tokens.New("pool", store, tokens.Fixed(2))
	require.NoError(t, err)
	return p
}

// requireSound gives back all that is taken, and binds what was bound anew.
func requireSound(t *testing.T, p *tokens.Pool, s *schedule) {
	ctx := t.Context()
	seen := make(map[string]bool)
	for _, account := range []string{"a", "b"} {
		places, err := p.List(ctx, account)
		require.NoError(t, err)
		for _, place := range places {
			if place.Resource == "" {
				require.NoError(t, p.Reservation(account, place.Reservation).Cancel(ctx))
				continue
			}
			require.False(t, seen[place.Resource], "two tokens: %v", s)
			seen[place.Resource] = true
		}
		for resource := range seen {
			_, err := p.Release(ctx, resource)
			require.NoError(t, err)
		}
		n, err := p.InUse(ctx, account)
		require.NoError(t, err)
		require.Zero(t, n, "a token that can't be released: %v", s)
	}
	for _, resource := range []string{"x", "y"} {
		r, err := p.Reserve(ctx, "c")
		require.NoError(t, err)
		require.NoError(t, r.Bind(ctx, resource), "what is left is in the way: %v", s)
	}
}

// A schedule is one order of the commands of several operations: at each point one
// of those that wait goes on or, once, is killed.
type schedule struct {
	choices, options []int
	step             int
	calm             bool
	order            []int
	killed           int // the operation, from 1
	arrivals         chan int
	turns            []chan bool
	log              []string
}

// next is the next order, or nil after the last.
func (s *schedule) next() *schedule {
	for i := len(s.choices) - 1; i >= 0 && s.order == nil; i-- {
		if s.choices[i]+1 < s.options[i] {
			return &schedule{choices: append(s.choices[:i:i], s.choices[i]+1)}
		}
	}
	return nil
}

func (s *schedule) choose(options int) int {
	if s.step == len(s.choices) {
		s.choices = append(s.choices, 0)
	}
	s.options = append(s.options, options)
	s.step++
	return s.choices[s.step-1]
}

func (s *schedule) String() string { return fmt.Sprint(s.log) }

type operationKey struct{}

// run runs the operations, one command at a time.
func (s *schedule) run(p *tokens.Pool, operations []func(context.Context, *tokens.Pool) error) {
	s.arrivals = make(chan int)
	for i, o := range operations {
		s.turns = append(s.turns, make(chan bool))
		go func() {
			_ = o(context.WithValue(context.Background(), operationKey{}, i), p)
			s.arrivals <- -1 - i // ended
		}()
	}
	waiting := make([]bool, len(operations))
	for moving, left := len(operations), len(operations); ; moving = 1 {
		for range moving {
			if i := <-s.arrivals; i >= 0 {
				waiting[i] = true
			} else {
				left--
			}
		}
		if left == 0 {
			return
		}
		var can []int
		for i, w := range waiting {
			if w {
				can = append(can, i)
			}
		}
		options := len(can)
		if s.killed == 0 && !s.calm {
			options *= 2
		}
		var n int
		if s.order != nil {
			n = max(0, slices.Index(can, s.order[0]))
			s.order = s.order[min(1, len(s.order)-1):]
		} else {
			n = s.choose(options)
		}
		i := can[n%len(can)]
		kill := n >= len(can)
		if kill {
			s.killed = i + 1
		}
		s.log = append(s.log, map[bool]string{false: "go ", true: "kill "}[kill]+fmt.Sprint(i))
		waiting[i] = false
		s.turns[i] <- !kill
	}
}

// A gate is a client whose commands wait for their turn.
type gate struct {
	redistokens.Client
	s *schedule
}

var errKilled = errors.New("killed")

func (g *gate) Process(ctx context.Context, cmd redis.Cmder) error {
	i := ctx.Value(operationKey{}).(int)
	if g.s.killed == i+1 {
		return errKilled
	}
	if cmd.Name() == "eval" { // of a server that did not know the script: it still is that command's turn
		return g.Client.Process(ctx, cmd)
	}
	g.s.arrivals <- i
	if !<-g.s.turns[i] {
		return errKilled
	}
	return g.Client.Process(ctx, cmd)
}
