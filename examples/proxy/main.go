// Proxy is a server behind a reverse proxy, both in this program. The server
// limits each client, although all connections come from the proxy, and although
// clients can send an X-Forwarded-For of their own.
//
//	go run ./examples/proxy
//	curl -i localhost:8080
//	curl -i localhost:8080 -H 'X-Forwarded-For: 203.0.113.9'   # is counted for the same client
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`address` that the proxy listens on")
	limit := flag.Int64("limit", 3, "requests that a client may make in ten seconds")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *addr, *limit)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends.
func run(ctx context.Context, stdout io.Writer, addr string, limit int64) error {
	server, err := newServer(limit)
	if err != nil {
		return err
	}
	// Nobody but the proxy can reach the server: that is what makes its word good.
	inside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer inside.Close()
	outside, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer outside.Close()
	fmt.Fprintf(stdout, "listening on http://%s\n", outside.Addr())
	return serve(ctx, map[net.Listener]http.Handler{
		inside:  server,
		outside: newProxy(inside.Addr().String()),
	})
}

// newServer says whom it has counted a request for.
//
// There is one proxy, so that the client is what the last entry of X-Forwarded-For
// says. With a load balancer before the proxy it would be the last but one,
// ForwardedButN(1). Where proxies have networks of their own, ForwardedOutside does
// not need to know how many there are.
func newServer(limit int64) (http.Handler, error) {
	client := httplimit.ForwardedButN(0)
	policy, err := ratelimit.NewPolicy("per-client", ratelimit.NewSlidingWindow(memory.New()), ratelimit.Per(limit, 10*time.Second))
	if err != nil {
		return nil, err
	}
	limited, err := httplimit.New(policy, httplimit.WithKey(client))
	if err != nil {
		return nil, err
	}
	return limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := client(r) // or we would not be here
		fmt.Fprintf(w, "the peer is %s,\nX-Forwarded-For is %q,\ncounted for %s\n", r.RemoteAddr, r.Header.Values("X-Forwarded-For"), key)
	})), nil
}

// newProxy adds the client to the X-Forwarded-For that the client has sent, as most
// proxies do.
func newProxy(server string) http.Handler {
	target := &url.URL{Scheme: "http", Host: server}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded()
	}}
}

// serve serves until the context ends or one of the servers fails.
func serve(ctx context.Context, handlers map[net.Listener]http.Handler) error {
	failed := make(chan error, len(handlers))
	for listener, handler := range handlers {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		defer server.Close()
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
