// Gateway is an HTTP server that is limited by the rules of a folder. Edit them while it
// runs, and the limits change; break them, and they stay.
//
//	go run ./examples/gateway
//	curl -i localhost:8080/hello/you
//	$EDITOR examples/gateway/rules/gateway.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func main() {
	dir := flag.String("rules", "examples/gateway/rules", "`folder` of the rules")
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	every := flag.Duration("every", time.Second, "`interval` between looks at the folder")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *dir, *addr, *every)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends.
func run(ctx context.Context, stdout io.Writer, dir, addr string, every time.Duration) error {
	engine, err := rules.Open(dir, memory.New())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	logger := log.New(stdout, "", 0) // lines of several goroutines stay whole
	logger.Printf("http://%s", listener.Addr())

	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = engine.Watch(ctx, every, func(err error) { told(logger, err) })
	}()
	defer func() { <-watched }()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %q\n", r.PathValue("name"))
	})
	limit := engine.Middleware(address, rules.WithReport(func(_ *http.Request, d rules.Decision, err error) { report(logger, d, err) }))
	return serve(ctx, listener, limit(mux))
}

// serve stops when the context ends, once the requests under way are answered.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error)
	go func() {
		<-ctx.Done()
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(timeout)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// address is what the rules can count by.
func address(r *http.Request) map[string]string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return map[string]string{"address": host}
}

func told(logger *log.Logger, err error) {
	if err != nil {
		logger.Print("the rules stay as they are: ", err)
		return
	}
	logger.Print("new rules")
}

func report(logger *log.Logger, d rules.Decision, err error) {
	for _, h := range d.Refused {
		logger.Printf("refused by %s (%s)", h.Rule, h.Place)
	}
	for _, h := range d.Shadow {
		logger.Printf("would be refused by %s (%s)", h.Rule, h.Place)
	}
	if err = errors.Join(err, d.Err); err != nil {
		logger.Print(err)
	}
}
