package storagetest_test

import (
	"slices"
	"strings"
	"sync"

	"github.com/granule-limits/ratelimit/storage"
)

// A table is a database in memory.
type table struct {
	mu    sync.Mutex
	rows  map[storage.Key]row
	saved int64 // the newest version
}

func newTable() *table { return &table{rows: make(map[storage.Key]row)} }

func (t *table) load(cells []*storage.Cell, now int64) map[storage.Key]*row {
	t.mu.Lock()
	defer t.mu.Unlock()
	loaded := make(map[storage.Key]*row, len(cells))
	for _, cell := range cells {
		k := cell.Key
		if t.rows[k].expires <= now {
			delete(t.rows, k)
		}
		r := t.rows[k]
		r.words = slices.Clone(r.words)
		loaded[k] = &r
	}
	return loaded
}

func (t *table) save(rows map[storage.Key]*row) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range rows {
		if t.rows[k].version != r.version {
			return false
		}
	}
	for k, r := range rows {
		t.saved++
		k.Prefix = strings.Clone(k.Prefix)
		t.rows[k] = row{r.words, t.saved, r.expires}
	}
	return true
}

func (t *table) remove(keys []storage.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		delete(t.rows, k)
	}
}
