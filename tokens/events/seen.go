package events

import (
	"crypto/sha256"
	"sync"
)

// seen remembers the last events, and resources of some, by the digest of what names them, so that each
// takes as much as any other.
type seen struct {
	mu   sync.Mutex
	keys map[key]bool
	ring []key // the oldest is at next, once it is full
	next int
	max  int
}

type key [sha256.Size]byte

func keyOf(source, id string) key {
	sum := sha256.Sum256([]byte(source))
	return sha256.Sum256(append(sum[:], id...))
}

// of is a resource of an event.
func (k key) of(resource string) key { return sha256.Sum256(append(k[:], resource...)) }

func newSeen(n int) *seen { return &seen{keys: make(map[key]bool), max: n} }

func (s *seen) has(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[k]
}

func (s *seen) add(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.max == 0 || s.keys[k]:
		return
	case len(s.ring) < s.max:
		s.ring = append(s.ring, k)
	default:
		delete(s.keys, s.ring[s.next])
		s.ring[s.next] = k
		s.next = (s.next + 1) % s.max
	}
	s.keys[k] = true
}
