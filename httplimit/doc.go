// Package httplimit limits HTTP with the policies of package ratelimit: requests
// that a server takes, with New, and requests that a client makes, with
// Transport. It needs nothing but the standard library.
//
// # Servers
//
// New makes a func(http.Handler) http.Handler, which net/http, chi and everything
// of that shape take:
//
//	limiter := ratelimit.NewSlidingWindow(memory.New())
//	perClient, err := ratelimit.NewPolicy("per-client", limiter, ratelimit.PerMinute(100))
//	limit, err := httplimit.New(perClient)
//	err = http.ListenAndServe(":8080", limit(mux))
//
// Each request is counted under a key. That is the address of the peer unless
// WithKey says otherwise; behind a proxy all peers are the proxy, and one of
// ForwardedOutside, ForwardedButN and TrustedHeader is needed. WithPolicy adds
// further policies, with keys of their own: a request has to fit all of them, and
// is charged to all or to none, in one call of the storage.
//
// Every answer to a request that was let through or refused tells in RateLimit and
// RateLimit-Policy how things stand, as draft-ietf-httpapi-ratelimit-headers-11
// has it; those with 400, 500 and 503, for which nothing was decided, don't. A
// refusal is 429 with a Retry-After and a problem document (RFC 9457). A storage
// that failed is 503, or lets everybody pass with WithFailOpen; a request without
// a key is 400.
//
// # Clients
//
// Transport is a http.RoundTripper that keeps to a policy of one's own, and to
// what the other side says in Retry-After and RateLimit.
package httplimit
