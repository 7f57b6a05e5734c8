package wrap

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit"
)

const (
	coalesceShards = 64
	// maxAsks bounds the requests of one call.
	maxAsks = 1024
)

// Coalesce is for keys that many ask for at the same time, on a storage that is a
// round trip away. While a CheckAndUseQuotas is under way, those who ask the same
// counters under the same limits wait for it to return, and then go together as
// one call. A call with no other under way is sent at once, in its own goroutine.
//
// Every caller gets what it would have got alone, in the order in which they
// came: units are dealt out first come, first served, and a request with
// AllOrNothing for which too little is left is passed over. That goes for Granted,
// ReachedQuotas and Remaining, and for the times but these, which are as they stand
// after the whole call: all those of a sliding counter, where they depend on what
// others used; the ResetAfter of a token bucket; and the times told to a
// request that was not granted in full, or asked for nothing, while one behind it
// was granted units of the same counter. So what is told to it is when to ask
// again now that those have been granted.
//
// Nobody waits for more than one call already under way and its own, unless more
// than 1,024 requests wait for the same counters: then for one more for each
// further 1,024. A failure reaches all that went together, each with the same
// error, and so does a panic, as an error that wraps it and tells where it was; bad
// input fails only the caller who sent it. A call that went together
// has the values of the first caller's context, and ends when all of its callers
// have gone. A caller whose context ends leaves at once: with ErrUnavailable if it
// was not sent yet, and then it is not charged, else with ErrIndeterminate, and it
// may be. Both wrap the context's error.
//
// Calls with a CallOption, and all other operations, go straight to the limiter,
// and so do calls in which several requests count in one counter by different
// limits. So does a request that counts for several prefixes, as with a
// PrefixOverride, if it wants several units with AllOrNothing, or if there are others
// in its call: on a cluster it would take for a moment what strangers behind it are
// then refused.
func Coalesce(limiter ratelimit.Limiter) ratelimit.Limiter {
	c := &coalescer{limiter: orMisconfigured(limiter), seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].flights = make(map[uint64]*flight)
	}
	return c
}

type coalescer struct {
	limiter ratelimit.Limiter
	seed    maphash.Seed
	shards  [coalesceShards]flightShard
}

// A flightShard has the sets for which calls are under way, by their hash.
type flightShard struct {
	mu      sync.Mutex
	flights map[uint64]*flight
	_       [64]byte // a cache line between locks
}

// A flight is a set for which a call is under way, and who waits for that.
type flight struct {
	key     uint64
	set     []ratelimit.RequestedQuota
	waiting []*batch
}

var flights = sync.Pool{New: func() any { return new(flight) }}

func (c *coalescer) CheckWithinQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) (time.Time, []ratelimit.GrantedQuota, error) {
	return c.limiter.CheckWithinQuotas(ctx, requests, opts...)
}

func (c *coalescer) UseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, grants []ratelimit.GrantedQuota, at time.Time) error {
	return c.limiter.UseQuotas(ctx, requests, grants, at)
}

func (c *coalescer) Reset(ctx context.Context, requests []ratelimit.RequestedQuota) error {
	return c.limiter.Reset(ctx, requests)
}

func (c *coalescer) CheckAndUseQuotas(ctx context.Context, requests []ratelimit.RequestedQuota, opts ...ratelimit.CallOption) ([]ratelimit.GrantedQuota, error) {
	if len(opts) > 0 || !canJoin(ctx, requests) {
		return c.limiter.CheckAndUseQuotas(ctx, requests, opts...)
	}
	key := hashSet(c.seed, requests)
	s := &c.shards[key%coalesceShards]
	s.mu.Lock()
	f := s.flights[key]
	switch {
	case f == nil:
		f = s.start(key, requests)
		s.mu.Unlock()
		defer c.land(s, f) // also when the limiter panics: others wait
		return c.limiter.CheckAndUseQuotas(ctx, requests)
	case !sameSet(f.set, requests): // of one hash by accident
		s.mu.Unlock()
		return c.limiter.CheckAndUseQuotas(ctx, requests)
	}
	b, first := f.join(ctx, requests)
	s.mu.Unlock()
	return c.wait(ctx, s, b, first, requests)
}

// canJoin tells whether a call can go together with others: a bad one would fail them.
//
// A cluster takes a request for several prefixes in parts, and what one part took of
// it in vain is missing to those behind it. Where each takes what there is they would
// get nothing anyway, as a part that cut one short has nothing left. So those that want
// all or nothing do not join, nor where a call has other requests.
func canJoin(ctx context.Context, requests []ratelimit.RequestedQuota) bool {
	if ctx == nil || ctx.Err() != nil || len(requests) == 0 || len(requests) > maxAsks {
		return false
	}
	for i := range requests {
		r := &requests[i]
		if r.Requested < 0 || r.Requested > maxUnits {
			return false
		}
		if spreads(r) && (len(requests) > 1 || r.AllOrNothing && r.Requested > 1) {
			return false
		}
	}
	return len(requests) == 1 || plain(requests)
}

func (s *flightShard) start(key uint64, requests []ratelimit.RequestedQuota) *flight {
	f := flights.Get().(*flight)
	f.key, f.set = key, requests
	s.flights[key] = f
	return f
}

// land ends the call of one who came alone, and sends those who came meanwhile.
func (c *coalescer) land(s *flightShard, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f.waiting) == 0 {
		delete(s.flights, f.key)
		f.set = nil
		flights.Put(f)
		return
	}
	f.set = cloneSet(f.set) // it was the caller's, who has his answer now
	go c.send(s, f)
}

// send sends what waits until nothing does. It is nobody's own goroutine, so
// that any caller can leave.
func (c *coalescer) send(s *flightShard, f *flight) {
	done := false
	defer func() {
		if !done { // the limiter has ended the goroutine, and others wait
			go c.send(s, f)
		}
	}()
	for b := s.next(f); b != nil; b = s.next(f) {
		b.send(c.limiter, f.set)
		runtime.Gosched() // who asks again at once goes in one call, not one alone and the rest after
	}
	done = true
}

// next is the batch to be sent now. Nobody can join it any more.
func (s *flightShard) next(f *flight) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(f.waiting) > 0 {
		b := f.waiting[0]
		f.waiting = f.waiting[1:]
		if b.callers > 0 {
			b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(b.ctx))
			return b
		}
	}
	delete(s.flights, f.key)
	return nil
}

// join puts a caller into the last batch.
func (f *flight) join(ctx context.Context, requests []ratelimit.RequestedQuota) (b *batch, first int) {
	if n := len(f.waiting); n > 0 && (f.waiting[n-1].callers+1)*len(requests) <= maxAsks { // who left takes no room
		b = f.waiting[n-1]
	} else {
		b = &batch{ctx: ctx, done: make(chan struct{})}
		f.waiting = append(f.waiting, b)
	}
	return b, b.join(requests)
}

// wait waits for the answer or the end of the context.
func (c *coalescer) wait(ctx context.Context, s *flightShard, b *batch, first int, requests []ratelimit.RequestedQuota) ([]ratelimit.GrantedQuota, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		if err := s.leave(ctx, b, first, len(requests)); err != nil {
			return nil, err
		}
	}
	if b.panicked != nil {
		panic(b.panicked)
	}
	if isBadInput(b.err) { // nothing was sent; each learns of his own mistakes only
		return c.limiter.CheckAndUseQuotas(ctx, requests)
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.answer(first, requests), nil
}

// leave takes a caller out, and returns what that means for it; nil if the answer
// has come.
func (s *flightShard) leave(ctx context.Context, b *batch, first, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-b.done:
		return nil
	default:
	}
	b.callers--
	if b.cancel == nil {
		for i := range n {
			b.asks[first+i].gone = true
		}
		return fmt.Errorf("%w: left while waiting to be sent: %w", ratelimit.ErrUnavailable, ctx.Err())
	}
	if b.callers == 0 {
		b.cancel()
	}
	return fmt.Errorf("%w: left while waiting for the answer: %w", ratelimit.ErrIndeterminate, ctx.Err())
}

func isBadInput(err error) bool {
	return errors.Is(err, ratelimit.ErrInvalidRequest) || errors.Is(err, ratelimit.ErrInvalidQuota) || errors.Is(err, ratelimit.ErrEmptyPrefix)
}
