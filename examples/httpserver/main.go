// Httpserver limits the requests of each client address, in memory or, shared by
// several servers, in Redis, by each of the strategies. What is refused is answered
// 429, with a Retry-After. A page shows it: open http://localhost:8080 in a browser.
//
//	go run ./examples/httpserver -limit 3 -window 10s
//	curl -i localhost:8080/hello/sliding-window
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
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
	store, closeStore, err := openStore(redisAddr)
	if err != nil {
		return err
	}
	defer closeStore()
	handler, err := newHandler(store, quota)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
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

//go:embed page.html
var page []byte

// newHandler says hello within the quota, counted by each strategy at a path of its
// own, and serves the page, which is not limited.
func newHandler(store storage.Storage, quota ratelimit.Quota) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	for _, name := range ratelimit.Strategies() {
		limiter, err := ratelimit.NewLimiter(name, store)
		if err != nil {
			return nil, err
		}
		policy, err := ratelimit.NewPolicy(name, limiter, quota)
		if err != nil {
			return nil, err
		}
		limit, err := newMiddleware(policy)
		if err != nil {
			return nil, err
		}
		mux.Handle("GET /hello/"+name, limit(http.HandlerFunc(hello)))
	}
	return mux, nil
}

// newMiddleware counts by the address at the other end of the connection. Behind a
// proxy of your own all connections come from the proxy: see examples/proxy.
//
// While the storage fails nobody is let through unlimited. A service that would
// rather answer than limit adds WithFailOpen.
func newMiddleware(policy *ratelimit.Policy) (func(http.Handler) http.Handler, error) {
	return httplimit.New(policy, httplimit.WithOnError(func(_ *http.Request, err error) { log.Print(err) }))
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
