package limits

import (
	"strings"
	"sync/atomic"

	"github.com/granule-limits/ratelimit"
)

// An id is what an entry answers for.
type id struct {
	hash              uint64 // of the others
	resource, account string
}

func (i id) String() string { return Limit{Resource: i.resource, Account: i.account}.id() }

const waysPerSet = 8

// An entrySet is the places for entries whose hashes end alike. It is read without
// a lock, and written under that of the fetcher.
type entrySet struct {
	ways [waysPerSet]atomic.Pointer[entry]
}

// An entry is an answer of the table.
type entry struct {
	id
	quotas  []ratelimit.Quota
	err     error // ErrUnknownResource
	fetched atomic.Int64
	used    atomic.Bool // since an eviction last passed by
}

func (c *Cache) set(hash uint64) *entrySet { return &c.sets[hash&uint64(len(c.sets)-1)] }

func (s *entrySet) find(hash uint64, resource, account string) *entry {
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && e.hash == hash && e.account == account && e.resource == resource {
			return e
		}
	}
	return nil
}

// put puts an entry in the place of the one with the same id, or else into the first
// that is empty, has expired, or was not used lately.
func (c *Cache) put(e *entry) {
	s := c.set(e.hash)
	place := -1
	for i := range s.ways {
		switch other := s.ways[i].Load(); {
		case other == nil:
			if place < 0 {
				place = i
			}
		case other.id == e.id:
			s.ways[i].Store(e)
			return
		}
	}
	if place < 0 {
		place = c.victim(s)
		c.stats.Evicted++
	} else {
		c.stats.Entries++
	}
	s.ways[place].Store(e)
}

// victim looks twice at most: the first look takes the mark of use from all.
func (c *Cache) victim(s *entrySet) int {
	for {
		for range s.ways {
			c.hand = (c.hand + 1) % waysPerSet
			if e := s.ways[c.hand].Load(); c.expired(e) || !e.used.Swap(false) {
				return c.hand
			}
		}
	}
}

// newEntry copies the names: the caller's may be parts of something large.
func newEntry(id id) *entry {
	id.resource, id.account = strings.Clone(id.resource), strings.Clone(id.account)
	return &entry{id: id}
}
