package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/go-chi/httprate"
	peerlimit "github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// httpCases is the middlewares, by the client's address, around a handler that
// answers 204.
func httpCases(o options) (report, error) {
	t := table{caption: "Middleware by the client's address, in memory, around a handler that answers 204. With headers, each sets its X-RateLimit ones; go-limiter, ulule/limiter and throttled always do. The ratio is to this library."}
	var off worst
	for _, clients := range []int{o.keys, 1} {
		l := load[*exchange]{items: exchanges(clients), goroutines: 1, batch: 64}
		for _, c := range []struct {
			limit   limit
			headers bool
			name    string
		}{{high, false, "headers off"}, {high, true, "headers on"}, {low, true, "headers on, refused"}} {
			l.name = count(clients, "client") + ", " + c.name
			results, err := compare(o, middlewares(c.limit, c.headers), l)
			if err != nil {
				return report{}, err
			}
			t.addCase(l.name, results)
			if !c.headers {
				off.see(results[0].ratio(fastest(results[1:])), l.name)
			}
		}
	}
	return report{tables: []table{t}, bars: []bar{atWorst("headers off, beside the fastest middleware", off, 1)}}, nil
}

// An exchange is a request and what its answer is written to.
type exchange struct {
	request *http.Request
	header  http.Header
	status  int
}

func (e *exchange) Header() http.Header         { return e.header }
func (e *exchange) Write(b []byte) (int, error) { return len(b), nil }
func (e *exchange) WriteHeader(status int)      { e.status = status }

// exchanges is one for each client, at an address of its own.
func exchanges(clients int) []*exchange {
	all := make([]*exchange, clients)
	for i := range all {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.1." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) + ":40000"
		all[i] = &exchange{request: r, header: make(http.Header)}
	}
	return all
}

type middleware func(http.Handler) http.Handler

// opened is a middleware, and how it is closed if it has to be.
type opened struct {
	limit middleware
	close func()
}

func middlewares(l limit, headers bool) []contender[*exchange] {
	return []contender[*exchange]{
		served(thisLibrary, l, func() (opened, error) { return ourMiddleware(l, headers) }),
		served("go-limiter", l, func() (opened, error) { return goLimiterMiddleware(l) }),
		served("ulule/limiter", l, func() (opened, error) {
			return opened{limit: stdlib.NewMiddleware(newUlule(ululememory.NewStore(), l)).Handler}, nil
		}),
		served("throttled", l, func() (opened, error) { return throttledMiddleware(l) }),
		served("httprate", l, func() (opened, error) { return httprateMiddleware(l, headers), nil }),
	}
}

// served is a middleware as a contender.
func served(name string, l limit, open func() (opened, error)) contender[*exchange] {
	return contender[*exchange]{name, l == low, func() (bench[*exchange], error) {
		m, err := open()
		if err != nil {
			return bench[*exchange]{}, err
		}
		handler := m.limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		return bench[*exchange]{
			call: func(e *exchange) (bool, error) {
				clear(e.header)
				handler.ServeHTTP(e, e.request)
				return e.status == http.StatusNoContent, nil
			},
			close: m.close,
		}, nil
	}}
}

func ourMiddleware(l limit, headers bool) (opened, error) {
	policy, err := sliding.policy(memory.New(), l, 1)
	if err != nil {
		return opened{}, err
	}
	var forms []httplimit.HeaderForm
	if headers {
		forms = append(forms, httplimit.XRateLimit)
	}
	m, err := httplimit.New(policy, httplimit.WithHeaders(forms...))
	return opened{limit: m}, err
}

func goLimiterMiddleware(l limit) (opened, error) {
	store, err := newGoLimiter(l)
	if err != nil {
		return opened{}, err
	}
	m, err := peerlimit.NewMiddleware(store, peerlimit.IPKeyFunc())
	return opened{m.Handle, func() { _ = store.Close(ctx) }}, err
}

func throttledMiddleware(l limit) (opened, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return opened{}, err
	}
	g, err := newThrottled(store, l)
	m := throttled.HTTPRateLimiterCtx{RateLimiter: g, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return opened{limit: m.RateLimit}, err
}

func httprateMiddleware(l limit, headers bool) opened {
	var options []httprate.Option
	if !headers {
		options = append(options, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	}
	return opened{limit: httprate.LimitBy(l.units, l.window, peerAddress, options...)}
}

// peerAddress is how httprate's README makes a key of an address.
func peerAddress(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}
