package storagetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A databaseStore keeps counters in anything that can load rows, and save them on
// condition that nobody else has meanwhile. To write a storage of your own, copy
// it, put your database in the place of table, and run the suite.
type databaseStore struct{ db database }

type database interface {
	// load copies the rows of all cells, as they are at one moment.
	load(cells []*storage.Cell, now int64) map[storage.Key]*row
	// save writes all rows or, if the version of one has changed, none.
	save(rows map[storage.Key]*row) bool
	remove(keys []storage.Key)
}

type row struct {
	words   storage.State
	version int64 // 0 if there is no row; never the same twice
	expires int64 // µs since 1970
}

func (s *databaseStore) Run(ctx context.Context, script *storage.Script, c *storage.Call) error {
	const tries = 100
	for range tries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nothing saved: %w", err)
		}
		now := time.Now().UnixMicro()
		if c.OwnClock {
			c.Now = now
		}
		cells := cellsOf(c)
		rows := s.db.load(cells, now)
		states := make([]*storage.State, len(cells))
		for i, cell := range cells {
			states[i] = &rows[cell.Key].words
		}
		if !script.Step(c, states) {
			return nil
		}
		if !c.OwnClock { // the caller's time may go by more slowly than ours
			now += time.Hour.Microseconds()
		}
		for _, cell := range cells {
			r := rows[cell.Key]
			r.expires = max(r.expires, now+cell.ResetAfter)
		}
		if s.db.save(rows) {
			return nil
		}
	}
	return fmt.Errorf("%w: others were faster %d times", storage.ErrUnavailable, tries)
}

func (s *databaseStore) Forget(ctx context.Context, keys []storage.Key) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing removed: %w", err)
	}
	s.db.remove(keys)
	return nil
}

func cellsOf(c *storage.Call) (cells []*storage.Cell) {
	for _, r := range c.Requests {
		for i := range r.Cells {
			cells = append(cells, &r.Cells[i])
		}
	}
	return cells
}
