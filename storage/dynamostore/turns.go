package dynamostore

import (
	"context"
	"hash/maphash"
	"slices"
)

// turns has calls of this process that met others at a counter come one after
// the other: they would go on meeting each other, and each try is a write to pay
// for. Who met nobody does not wait: most calls, and all that write nothing.
type turns struct {
	seed  maphash.Seed
	lines [256]chan struct{} // counters have one each, or share one by chance
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.lines {
		t.lines[i] = make(chan struct{}, 1)
	}
	return t
}

// wait waits for the turn at all of the items. It returns what ends the turn, and
// whether somebody else had one meanwhile.
func (t *turns) wait(ctx context.Context, items []*item) (done func(), waited bool, err error) {
	lines := make([]int, len(items))
	for i, it := range items {
		lines[i] = int(maphash.String(t.seed, it.key) % uint64(len(t.lines)))
	}
	slices.Sort(lines) // all wait in the same order, and so never for each other
	lines = slices.Compact(lines)
	taken := 0
	done = func() {
		for _, line := range lines[:taken] {
			<-t.lines[line]
		}
	}
	for _, line := range lines {
		select {
		case t.lines[line] <- struct{}{}:
			taken++
			continue
		default:
			waited = true
		}
		select {
		case t.lines[line] <- struct{}{}:
			taken++
		case <-ctx.Done():
			done()
			return nil, true, ctx.Err()
		}
	}
	return done, waited, nil
}
