package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// published is what the API says that it allows. Nobody who keeps the first limit
// in every 5 seconds can break the second; but that is the API's business.
var published = []apiLimit{
	{calls: 25, window: 5 * time.Second},
	{calls: 300, window: 60 * time.Second},
}

// maxDelay is how long a call can be on its way.
const maxDelay = 50 * time.Millisecond

// An apiLimit is so many calls in any window of this length.
type apiLimit struct {
	calls  int
	window time.Duration

	oldest int // the first call, of all there were, that is in the window now
	most   int // the most calls that have been in a window
}

// An api pretends to be somebody else's service. It knows nothing of package
// ratelimit, so that what it counts can be believed.
type api struct {
	mu     sync.Mutex
	calls  []time.Time // when each arrived
	limits []apiLimit
}

func newAPI(limits ...apiLimit) *api {
	return &api{limits: append([]apiLimit(nil), limits...)}
}

// call arrives after a while, and is counted. It fails if there were too many.
func (a *api) call() error {
	time.Sleep(rand.N(maxDelay))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.calls = append(a.calls, now)
	for i := range a.limits {
		if err := a.limits[i].count(a.calls, now); err != nil {
			return err
		}
	}
	return nil
}

// count takes in the newest call. The fullest window of all is one that ends with
// a call, so it is enough to look at those.
func (l *apiLimit) count(calls []time.Time, now time.Time) error {
	for now.Sub(calls[l.oldest]) >= l.window {
		l.oldest++
	}
	n := len(calls) - l.oldest
	l.most = max(l.most, n)
	if n > l.calls {
		return fmt.Errorf("the API refused: %d calls in %v, %d are allowed", n, l.window, l.calls)
	}
	return nil
}
