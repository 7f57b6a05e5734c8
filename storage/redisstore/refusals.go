package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// refusals remembers which prefixes refused lately. Of a call over several slots such a
// part is asked first, by itself, and the others only for what it gave: what they
// were asked for in vain they would have to give back, and meanwhile refuse to others; a
// token bucket, which is refilled meanwhile, would lose it.
//
// It is a table of a fixed size, in which one prefix may take the place of another:
// it decides about an order, not about a grant.
type refusals [1 << 12]atomic.Uint64

const (
	refusalTime = 1<<44 - 1 // ms since 1970; the bits above are the prefix's hash
	refusalHold = 1000      // ms in which being granted does not make a refusal forgotten
)

var refusalSeed = maphash.MakeSeed()

func (r *refusals) slot(prefix string) (slot *atomic.Uint64, tag uint64) {
	hash := maphash.String(refusalSeed, prefix)
	return &r[hash%uint64(len(r))], hash &^ refusalTime
}

func (r *refusals) lately(prefix string) bool {
	slot, tag := r.slot(prefix)
	word := slot.Load()
	return word != 0 && word&^refusalTime == tag
}

// note notes what a prefix said. One that gives in full is full again if it has not
// refused for a while; in between, a saturated one gives now and then.
func (r *refusals) note(prefix string, refused bool) {
	slot, tag := r.slot(prefix)
	now := uint64(time.Now().UnixMilli())
	if refused {
		slot.Store(tag | now)
	} else if word := slot.Load(); word&^refusalTime == tag && word&refusalTime+refusalHold < now {
		slot.Store(0)
	}
}
