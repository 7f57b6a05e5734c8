package main

import (
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// memoryPeers is the other libraries in memory, as their documentation sets them up.
func memoryPeers(l limit) []contender[string] {
	return []contender[string]{
		{"go-limiter", l == low, func() (bench[string], error) { return openGoLimiter(l) }},
		{"ulule/limiter", l == low, func() (bench[string], error) { return openUlule(l), nil }},
		{"throttled", l == low, func() (bench[string], error) { return openThrottled(l) }},
		{"httprate", l == low, func() (bench[string], error) { return openHTTPRate(l), nil }},
		{"x/time/rate", l == low, func() (bench[string], error) { return openXRate(l), nil }},
	}
}

func openGoLimiter(l limit) (bench[string], error) {
	store, err := newGoLimiter(l)
	if err != nil {
		return bench[string]{}, err
	}
	return bench[string]{
		call: func(key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		close: func() { _ = store.Close(ctx) },
	}, nil
}

// newGoLimiter keeps its keys for as long as the limit needs them.
func newGoLimiter(l limit) (golimiter.Store, error) {
	return memorystore.New(&memorystore.Config{Tokens: uint64(l.units), Interval: l.window, SweepMinTTL: 2 * l.window})
}

func newUlule(store limiter.Store, l limit) *limiter.Limiter {
	return limiter.New(store, limiter.Rate{Period: l.window, Limit: int64(l.units)})
}

func openUlule(l limit) bench[string] {
	return bench[string]{call: callUlule(newUlule(ululememory.NewStore(), l))}
}

func callUlule(u *limiter.Limiter) func(string) (bool, error) {
	return func(key string) (bool, error) {
		c, err := u.Get(ctx, key)
		return !c.Reached, err
	}
}

func openThrottled(l limit) (bench[string], error) {
	// Its README bounds the keys, by a list in the order of their last use. Without a
	// bound it is faster.
	store, err := memstore.NewCtx(0)
	if err != nil {
		return bench[string]{}, err
	}
	g, err := newThrottled(store, l)
	return bench[string]{call: callThrottled(g)}, err
}

func newThrottled(store throttled.GCRAStoreCtx, l limit) (*throttled.GCRARateLimiterCtx, error) {
	g, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(l.units, l.window),
		MaxBurst: l.units - 1,
	})
	if err == nil {
		g.SetMaxCASAttemptsLimit(1 << 30) // 10 are too few where many meet on a key: it fails the call
	}
	return g, err
}

func callThrottled(g *throttled.GCRARateLimiterCtx) func(string) (bool, error) {
	return func(key string) (bool, error) {
		limited, _, err := g.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}
}

// openHTTPRate is the limiter under the middleware, which decides by the local
// counter, told to set no headers: then it leaves the ResponseWriter alone.
func openHTTPRate(l limit) bench[string] {
	counter := httprate.NewRateLimiter(l.units, l.window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request := new(http.Request).WithContext(ctx)
	return bench[string]{call: func(key string) (bool, error) { return !counter.OnLimit(nil, request, key), nil }}
}

// openXRate is what is mostly written around x/time/rate: a limiter a key, kept for good.
func openXRate(l limit) bench[string] {
	var limiters sync.Map
	every := rate.Every(l.window / time.Duration(l.units))
	return bench[string]{call: func(key string) (bool, error) {
		v, ok := limiters.Load(key)
		if !ok {
			v, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, l.units))
		}
		return v.(*rate.Limiter).Allow(), nil
	}}
}
