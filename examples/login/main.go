// Login limits failed logins: so many for each address, and so many for each
// account. Logins that succeed cost nothing.
//
//	go run ./examples/login
//	curl -i localhost:8080/login -d 'account=alice&password=guess'
//	curl -i localhost:8080/login -d 'account=alice&password=correct horse'
package main

import (
	"context"
	"crypto/subtle"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/httplimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// passwords stands for a database of salted hashes, which is slow to ask. That is
// one more reason not to ask it for everybody.
var passwords = map[string]string{"alice": "correct horse", "bob": "battery staple"}

// maxForm is how long a login can be, in bytes. It bounds what the key function of
// the accounts reads before anything is limited.
const maxForm = 4 << 10

func main() {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *addr)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends.
func run(ctx context.Context, stdout io.Writer, addr string) error {
	handler, err := newHandler(ratelimit.NewSlidingWindow(memory.New()))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// newHandler has two limits around the login. The inner one counts what fails,
// once it has failed: guesses that are under way at the same time can all pass it.
// So the outer one counts all attempts, before anything else happens. It is wide
// enough for an office behind one address, and bounds how many guesses there can
// be at a time.
func newHandler(limiter ratelimit.Limiter) (http.Handler, error) {
	attempts, err := limitAttempts(limiter)
	if err != nil {
		return nil, err
	}
	failures, err := limitFailures(limiter)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /login", http.MaxBytesHandler(attempts(failures(http.HandlerFunc(login))), maxForm))
	return mux, nil
}

type middleware = func(http.Handler) http.Handler

func limitAttempts(limiter ratelimit.Limiter) (middleware, error) {
	perAddress, err := ratelimit.NewPolicy("attempts", limiter, ratelimit.Per(10, 10*time.Second))
	if err != nil {
		return nil, err
	}
	return httplimit.New(perAddress)
}

// limitFailures counts under two keys. The limit of the account holds against
// guesses from many addresses; it is short, because it also keeps the owner out.
// The one of the address holds against few guesses for each of many accounts.
func limitFailures(limiter ratelimit.Limiter) (middleware, error) {
	perAddress, err := ratelimit.NewPolicy("failures-per-address", limiter, ratelimit.PerHour(20))
	if err != nil {
		return nil, err
	}
	perAccount, err := ratelimit.NewPolicy("failures-per-account", limiter, ratelimit.Per(5, 15*time.Minute))
	if err != nil {
		return nil, err
	}
	return httplimit.New(perAddress,
		httplimit.WithPolicy(perAccount, func(r *http.Request) (string, error) { return account(r), nil }),
		httplimit.WithCountIf(func(status int) bool { return status == http.StatusUnauthorized }))
}

// account is the name of an account as it is looked up. If the limit had another
// notion of equal names than the lookup, every spelling would have its own guesses.
func account(r *http.Request) string {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("account")))
}

// login answers the same for a wrong password and for an account that there isn't,
// and both are counted: else the limit would tell which accounts there are.
func login(w http.ResponseWriter, r *http.Request) {
	want, known := passwords[account(r)]
	if subtle.ConstantTimeCompare([]byte(r.PostFormValue("password")), []byte(want)) == 0 || !known {
		http.Error(w, "wrong account or password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}
