package main

import (
	"math/rand/v2"
	"net/http"
	"strconv"
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

// An api pretends to be somebody else's service, and the way there. It knows
// nothing of package ratelimit, so that what it counts can be believed.
type api struct {
	mu     sync.Mutex
	calls  []time.Time // when each arrived
	limits []apiLimit
}

func newAPI(limits ...apiLimit) *api {
	return &api{limits: append([]apiLimit(nil), limits...)}
}

// RoundTrip answers a request as the service would.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusNoContent, Header: make(http.Header), Body: http.NoBody, Request: r}
	if broken := a.call(); broken != nil {
		response.StatusCode = http.StatusTooManyRequests
		response.Header.Set("Retry-After", strconv.Itoa(int(broken.window/time.Second)))
	}
	response.Status = strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)
	return response, nil
}

// call arrives after a while, and is counted. It returns a limit that it broke.
func (a *api) call() (broken *apiLimit) {
	time.Sleep(rand.N(maxDelay))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.calls = append(a.calls, now)
	for i := range a.limits {
		if a.limits[i].count(a.calls, now) > a.limits[i].calls {
			return &a.limits[i]
		}
	}
	return nil
}

// count takes in the newest call, and returns how many are in the window. The
// fullest window of all is one that ends with a call, so it is enough to look at
// those.
func (l *apiLimit) count(calls []time.Time, now time.Time) int {
	for now.Sub(calls[l.oldest]) >= l.window {
		l.oldest++
	}
	n := len(calls) - l.oldest
	l.most = max(l.most, n)
	return n
}
