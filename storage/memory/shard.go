package memory

import (
	"hash/maphash"
	"sync"
	"unique"
	"unsafe"

	"github.com/granule-limits/ratelimit/storage"
)

// A shard is a part of the counters: a hash table with chains, under a lock. It
// is a table of its own, not a map, because a hand goes round it that drops
// counters a few at a time, and because it takes a third of the memory.
//
// What every call needs comes first: it fills a cache line, and a shard two.
type shard struct {
	mu      sync.Mutex
	buckets []*entry          // a power of two of them
	states  [1]*storage.State // room for a call of one cell
	calls   int               // see turn
	index   int
	maxKeys int

	count int    // entries, without those that find has just made
	hand  int    // the bucket that the hand comes to next
	spare *entry // used again by find
	room  []byte // used again by own
	seed  maphash.Seed
	_     [1]uint64
}

// An entry is the state of one counter.
type entry struct {
	prefix  string
	counter unique.Handle[storage.Counter]
	next    *entry
	// expires is when the entry may be dropped, in µs of the store's clock, times
	// two; 0 for one that find has just made. The lowest bit says that it was asked
	// for since the hand came by.
	expires int64
	state   storage.State
	words   [4]int64 // room for the state, as far as it does
}

const (
	minBuckets = 8
	sweepEvery = 16 // calls
	sweepSize  = 4  // buckets
	evictTries = 32 // entries that the hand looks at to make room
)

// hashOf is the hash of a key: of its prefix, which has a few counters at most. They
// are in one shard, and in one chain of it, where who comes for one wants all.
func hashOf(seed maphash.Seed, prefix string) uint64 { return maphash.String(seed, prefix) }

func shardOf(hash uint64) int { return int(hash >> 56) }

func (e *entry) is(k *storage.Key) bool {
	return e.counter == k.Counter && e.prefix == k.Prefix
}

// fresh entries were made by find and are not settled yet.
func (e *entry) fresh() bool { return e.expires>>1 == 0 }

func (sh *shard) bucket(hash uint64) **entry {
	return &sh.buckets[hash&uint64(len(sh.buckets)-1)]
}

// find returns the entry of a key. If there was none it is a new one, not yet in
// use, whose prefix is still the caller's; settle must follow.
func (sh *shard) find(hash uint64, k *storage.Key) *entry {
	if sh.buckets == nil {
		sh.buckets = make([]*entry, minBuckets)
	}
	head := sh.bucket(hash)
	for e := *head; e != nil; e = e.next {
		if e.is(k) {
			e.expires |= 1
			return e
		}
	}
	e := sh.spare
	if e == nil {
		e = new(entry)
	}
	sh.spare = nil
	e.state = e.words[:0]
	e.prefix, e.counter, e.next = k.Prefix, k.Counter, *head
	*head = e
	return e
}

// keep keeps an entry that is no longer used, and its prefix's memory, for the next
// that comes in: a flood of keys at a full storage makes no garbage.
func (sh *shard) keep(e *entry) {
	if !e.fresh() {
		sh.room = unsafe.Slice(unsafe.StringData(e.prefix), wholeWords(len(e.prefix)))
	}
	*e = entry{}
	sh.spare = e
}

// own copies a prefix.
func (sh *shard) own(prefix string) string {
	room := sh.room
	if sh.room = nil; len(room) < len(prefix) {
		room = make([]byte, wholeWords(len(prefix)))
	}
	copy(room, prefix)
	return unsafe.String(unsafe.SliceData(room), len(prefix))
}

// wholeWords rounds a number of bytes up, as Go's memory is given out.
func wholeWords(n int) int { return (n + 7) &^ 7 }

// settle ends what find began, after the step: an entry that is still unused
// goes, and one that was changed stays until it expires.
func (sh *shard) settle(e *entry, hash uint64, expires, now int64) {
	switch {
	case len(e.state) == 0:
		sh.unlink(sh.bucket(hash), e)
		if !e.fresh() {
			sh.count--
		}
		sh.keep(e)
	case e.fresh():
		e.prefix = sh.own(e.prefix)
		e.expires = expires << 1
		sh.count++
		sh.makeRoom(e, now)
	case expires > 0: // another limit may have needed it longer
		e.expires = max(e.expires, expires<<1) | 1
	}
}

// turn counts the calls of a shard, and now and then names another one, each in
// its turn, where a few buckets are to be swept: also counters that nobody asks
// for any more go, as long as anybody asks for anything.
func (sh *shard) turn() (other int, due bool) {
	sh.calls++
	if sh.calls%sweepEvery > 0 {
		return 0, false
	}
	return (sh.index + sh.calls/sweepEvery) % shardCount, true
}

// makeRoom is called after e has come in.
func (sh *shard) makeRoom(e *entry, now int64) {
	if sh.count > sh.maxKeys {
		sh.evict(e, now)
	} else {
		sh.sweep(now)
	}
	if sh.count > len(sh.buckets) {
		sh.resize(2 * len(sh.buckets))
	}
}

// sweep drops what has expired in the next bucket.
func (sh *shard) sweep(now int64) {
	if sh.count == 0 {
		return
	}
	head := sh.advance()
	for e := *head; e != nil; e = e.next {
		if !e.fresh() && e.expires>>1 <= now {
			sh.unlink(head, e)
			sh.count--
		}
	}
	if len(sh.buckets) > minBuckets && sh.count < len(sh.buckets)/8 {
		sh.resize(len(sh.buckets) / 2)
	}
}

// evict puts out an entry that has expired or was not asked for since the hand came
// by last, or the last of the few that the hand looks at.
func (sh *shard) evict(keep *entry, now int64) {
	var victim, head = (*entry)(nil), (**entry)(nil)
	for seen, i := 0, 0; seen < evictTries && i < len(sh.buckets); i++ {
		bucket := sh.advance()
		for e := *bucket; e != nil; e = e.next {
			if e == keep || e.fresh() {
				continue
			}
			victim, head = e, bucket
			if e.expires&1 == 0 || e.expires>>1 <= now {
				seen = evictTries
				break
			}
			e.expires &^= 1
			seen++
		}
	}
	if victim != nil {
		sh.unlink(head, victim)
		sh.count--
		sh.keep(victim)
	}
}

// advance moves the hand to the next bucket.
func (sh *shard) advance() **entry {
	sh.hand = (sh.hand + 1) & (len(sh.buckets) - 1)
	return &sh.buckets[sh.hand]
}

func (sh *shard) unlink(head **entry, e *entry) {
	for p := head; *p != nil; p = &(*p).next {
		if *p == e {
			*p = e.next
			return
		}
	}
}

func (sh *shard) remove(hash uint64, k *storage.Key) {
	if sh.buckets == nil {
		return
	}
	head := sh.bucket(hash)
	for e := *head; e != nil; e = e.next {
		if e.is(k) {
			sh.unlink(head, e)
			sh.count--
			return
		}
	}
}

func (sh *shard) resize(n int) {
	old := sh.buckets
	sh.buckets = make([]*entry, n)
	sh.hand = 0
	for _, e := range old {
		for e != nil {
			next := e.next
			head := sh.bucket(hashOf(sh.seed, e.prefix))
			e.next, *head = *head, e
			e = next
		}
	}
}
