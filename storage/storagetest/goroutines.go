package storagetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

const (
	crowd    = 16              // goroutines
	rounds   = 20              // calls of each
	patience = 2 * time.Minute // with all of them together
)

// crowded runs f in many goroutines at once, a few times in each, or until it
// fails.
func (t *test) crowded(f func(i int) error) {
	var wg sync.WaitGroup
	var failed atomic.Bool
	start, done := make(chan struct{}), make(chan struct{})
	for i := range crowd {
		wg.Go(func() {
			<-start
			for n := 0; n < rounds && !failed.Load(); n++ {
				if err := f(i); err != nil && !failed.Swap(true) {
					t.broken("%v", err)
				}
			}
		})
	}
	close(start)
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		failed.Store(true) // who comes late has nothing more to say
		t.fail("%d goroutines are not done after %v: do calls wait for each other?", crowd, patience)
	}
}

// A patient storage asks again while the one under it is unavailable, as it may
// be where calls get into each other's way: nothing was charged. And where the
// one under it takes steps in Go, others have their turn before and after each:
// a storage that does not expect them there will be found out.
type patient struct {
	storage.Storage
	scripts *sync.Map // those of the strategies to our own
}

func (t *test) patient() storage.Storage { return patient{t.store, new(sync.Map)} }

func (p patient) Run(ctx context.Context, s *storage.Script, c *storage.Call) error {
	own, _ := p.scripts.LoadOrStore(s, &storage.Script{Name: s.Name, Lua: s.Lua, Step: yielding(s.Step), Valid: s.Valid})
	asked := clone(c)
	return patiently(func() error {
		*c = clone(&asked)
		return p.Storage.Run(ctx, own.(*storage.Script), c)
	})
}

func yielding(step func(*storage.Call, []*storage.State) bool) func(*storage.Call, []*storage.State) bool {
	return func(c *storage.Call, states []*storage.State) bool {
		runtime.Gosched()
		changed := step(c, states)
		runtime.Gosched()
		return changed
	}
}

func (p patient) Forget(ctx context.Context, keys []storage.Key) error {
	return patiently(func() error { return p.Storage.Forget(ctx, keys) })
}

func patiently(call func() error) error {
	const tries = 100
	err := call()
	for try := 1; try < tries && errors.Is(err, storage.ErrUnavailable); try++ {
		time.Sleep(time.Duration(try) * 100 * time.Microsecond)
		err = call()
	}
	return err
}

const plenty = 1 << 20 // never reached

func testAtomic(t *test) {
	t.part("two requests", atomicRequests)
	t.part("two quotas", atomicQuotas)
	t.part("together", atomicTogether)
}

// atomicRequests always uses as much of a as of b, in one call, in both orders;
// who looks at both at once must never see them differ.
func atomicRequests(t *test) {
	limiter := sliding.new(t.patient())
	a, b := want("a", 1, perHour(plenty)), want("b", 1, perHour(plenty))
	orders := [][]ratelimit.RequestedQuota{{a, b}, {b, a}}
	t.crowded(func(i int) error {
		requests := orders[i%2]
		if i%4 > 1 { // read only
			_, grants, err := limiter.CheckWithinQuotas(context.Background(), requests, ratelimit.At(epoch))
			return errors.Join(err, equalRemaining("a Check", grants))
		}
		grants, err := limiter.CheckAndUseQuotas(context.Background(), requests, ratelimit.At(epoch))
		return errors.Join(err, equalRemaining("a call that used both", grants))
	})
}

func equalRemaining(who string, grants []ratelimit.GrantedQuota) error {
	if len(grants) == 2 && grants[0].Remaining != grants[1].Remaining {
		return fmt.Errorf("%s saw %d remaining of %q and %d of %q, which are only ever used together",
			who, grants[0].Remaining, grants[0].Prefix, grants[1].Remaining, grants[1].Prefix)
	}
	return nil
}

// atomicQuotas uses a or b, and with either the quota that they share; who looks
// at all three at once must see that the two make up the third.
func atomicQuotas(t *test) {
	limiter := sliding.new(t.patient())
	all := sharedAs("all", perHour(plenty))
	users := []ratelimit.RequestedQuota{want("a", 1, perHour(plenty), all), want("b", 1, all, perHour(plenty))}
	look := []ratelimit.RequestedQuota{want("a", 0, perHour(plenty), all), want("b", 0, perHour(plenty))}
	t.crowded(func(i int) error {
		if i%4 < 2 {
			_, err := limiter.CheckAndUseQuotas(context.Background(), users[i%2:i%2+1], ratelimit.At(epoch))
			return err
		}
		_, grants, err := limiter.CheckWithinQuotas(context.Background(), look, ratelimit.At(epoch))
		if err != nil {
			return err
		}
		used := func(i, j int) int64 { return plenty - grants[i].States[j].Remaining }
		if used(0, 0)+used(1, 0) != used(0, 1) {
			return fmt.Errorf("a Check saw %d used of \"a\", %d of \"b\", and %d of the quota that was used each time either was",
				used(0, 0), used(1, 0), used(0, 1))
		}
		return nil
	})
}

// atomicTogether asks for units of a, which has plenty, and of b, which has not:
// together, so that a is charged for what b grants.
func atomicTogether(t *test) {
	const limit = crowd * rounds / 2
	limiter := sliding.new(t.patient())
	a, b := want("a", 1, perHour(plenty)), want("b", 1, perHour(limit))
	orders := [][]ratelimit.RequestedQuota{{a, b}, {b, a}}
	t.crowded(func(i int) error {
		_, err := limiter.CheckAndUseQuotas(context.Background(), orders[i%2], ratelimit.At(epoch), ratelimit.Together())
		return err
	})
	grants := asker{t: t, limiter: limiter}.check(epoch, a, b)
	if used := plenty - grants[0].Remaining; used != limit || grants[1].Remaining != 0 {
		t.broken("of two requests that were only ever asked together, one was charged %d and the other %d times, and %d was the limit",
			used, limit-grants[1].Remaining, limit)
	}
}

func testConcurrent(t *test) {
	t.part("by one time", func(t *test) { concurrentGrants(t, sliding, epoch) })
	t.part("by the clock", func(t *test) { concurrentGrants(t, list, time.Time{}) })
}

// concurrentGrants has everybody ask one shared quota for more than it has, and
// meanwhile use, check and forget counters of their own.
func concurrentGrants(t *test, s strategy, at time.Time) {
	const limit = crowd * rounds * 2 / 3 // half of what is asked for
	limiter, opts := s.new(t.patient()), options(at)
	var granted atomic.Int64
	var calls [crowd]int
	t.crowded(func(i int) error {
		calls[i]++
		own := want(fmt.Sprint("user", i), 1, perHour(plenty))
		request := want(own.Prefix, int64(1+calls[i]%2), perHour(plenty), sharedAs("all", perHour(limit)))
		grants, err := limiter.CheckAndUseQuotas(context.Background(), []ratelimit.RequestedQuota{request}, opts...)
		if err != nil {
			return err
		}
		granted.Add(grants[0].Granted)
		switch calls[i] % 3 {
		case 0:
			return limiter.Reset(context.Background(), []ratelimit.RequestedQuota{own})
		case 1:
			_, _, err = limiter.CheckWithinQuotas(context.Background(), []ratelimit.RequestedQuota{request}, opts...)
			return err
		default:
			return limiter.UseQuotas(context.Background(), []ratelimit.RequestedQuota{own}, []ratelimit.GrantedQuota{{Prefix: own.Prefix, Granted: 1}}, at)
		}
	})
	if granted.Load() != limit {
		t.broken("%d goroutines, which asked for more together, were granted %d of %d units", crowd, granted.Load(), limit)
	}
}
