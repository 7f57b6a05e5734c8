// Httpserver limits the requests of each client address, in memory or, shared by
// several servers, in Redis. What is refused is answered 429, with a Retry-After.
//
//	go run ./examples/httpserver -limit 3 -window 10s
//	curl -i localhost:8080
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// shutdownTimeout is how long requests that are being served may take to end.
const shutdownTimeout = 5 * time.Second

func main() {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on")
	redisAddr := flag.String("redis", "", "`address` of a Redis to count in; in memory if empty")
	limit := flag.Int64("limit", 10, "requests that an address may make in a window")
	window := flag.Duration("window", 10*time.Second, "length of the window")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *addr, *redisAddr, ratelimit.Per(*limit, *window))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends.
func run(ctx context.Context, stdout io.Writer, addr, redisAddr string, quota ratelimit.Quota) error {
	if err := quota.Validate(); err != nil { // or every request would find it out
		return err
	}
	store, closeStore, err := openStore(redisAddr)
	if err != nil {
		return err
	}
	defer closeStore()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           limited(ratelimit.NewSlidingWindow(store), quota, http.HandlerFunc(hello)),
		ReadHeaderTimeout: 5 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "stopping")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}

// openStore is where the counters are kept: in this process, or in a Redis that
// several processes share. The limiter is the same for both.
func openStore(redisAddr string) (store storage.Storage, closeStore func() error, err error) {
	if redisAddr == "" {
		return memory.New(), func() error { return nil }, nil
	}
	// One dial, where the default is five with pauses: a Redis that is down is known
	// to be down, and that nothing was charged, before the store's time is up.
	client := redis.NewClient(&redis.Options{Addr: redisAddr, DialerRetries: 1})
	store, err = redisstore.New(client)
	return store, client.Close, err
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// limited calls next for the requests that fit the quota of their client.
func limited(limiter ratelimit.Limiter, quota ratelimit.Quota, next http.Handler) http.Handler {
	quotas := []ratelimit.Quota{quota}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grants, err := limiter.CheckAndUseQuotas(r.Context(), []ratelimit.RequestedQuota{
			{Prefix: clientAddr(r), Requested: 1, Quotas: quotas},
		})
		if err != nil {
			// Nobody is let through unlimited. A service that would rather answer than
			// limit calls next here.
			log.Print(err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		g := grants[0]
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(g.Remaining, 10))
		if g.Granted == 0 {
			if g.RetryAfter != ratelimit.Never { // as with a limit of 0
				w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(g.RetryAfter), 10))
			}
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// clientAddr is whom a request is counted for: the host at the other end of the
// connection. X-Forwarded-For is not looked at, because a client can send what it
// likes in it, and be somebody else with every request. Behind a proxy of your
// own all connections come from the proxy: take the address that it adds, and
// only from it.
//
// Who has one IPv6 address usually has 2^64 of them: a public service would count
// by the /64.
func clientAddr(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // not TCP
		return r.RemoteAddr
	}
	return host
}

// wholeSeconds is rounded up: a client that comes back after that long is not
// refused for having come too early.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}
