// Replay reads an access log and tells what a limit would have done to that
// traffic: how many requests it would have refused, and whose.
//
//	go run ./examples/replay -limit 10 -window 1m access.log.gz
//	go run ./examples/replay -strategy all -limit 100 -window 1h -key ip+path access.log
//	zcat access.log.*.gz | go run ./examples/replay -limit 10 -json
//
// The log is in the common or the combined format of Apache and nginx, plain or
// compressed by gzip; it is the file argument, or standard input if that is
// missing or "-". -h lists the flags. The exit status is 1 if the run failed, and
// 2 if a flag is wrong.
//
// # What is counted
//
// Each request asks for 1 unit at the time that its line gives, for its key: the
// client's address (ip), the target of the request without its query string
// (path), or both. A request that has no target, such as "-", has the path "-".
// Keys are compared as the log writes them.
//
// A log is only roughly in time order, as a line is written when its request
// ends. Lines are replayed in the order of the file, as a server would have met
// them, and are not sorted: for a counter time never goes backwards, and a
// request stamped before the newest one admitted for its key is judged, and
// recorded, at that one's time.
//
// # Malformed lines
//
// A line that can't be read, is longer than 1 MB, or has a time that is not from
// 1970 to 2112 is counted as malformed and takes no part in anything else; the
// first five are shown on standard error. Blank lines are skipped.
//
// # JSON
//
// With -json the report is an object of
//
//	requests      well-formed lines
//	admitted
//	refused       requests - admitted
//	malformed     lines
//	keys          distinct keys
//	limited_keys  keys of which at least one request was refused
//	top           the ten keys with the most refusals, then by key:
//	              a list of {"key", "refused", "requests"}
//
// and with -strategy all a list of such objects, each of which begins with
// the name of its "strategy".
//
// # Redis
//
// With -storage redis the counters are in Redis, in a namespace of this run's own,
// and are deleted when it ends, also by a failure or an interrupt. It costs a
// round trip for each request and strategy. The numbers are the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who interrupts twice does not want to wait for the clean-up
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, newNotes(os.Stderr, isTerminal(os.Stderr)))
	os.Exit(status)
}

// run is main with everything that it touches as an argument. It returns the exit
// status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer, notes *notes) int {
	c, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout)
		return 0
	}
	if err != nil {
		notes.printf("replay: %v", err)
		return 2
	}
	if err := replayAndReport(ctx, c, stdin, stdout, notes); err != nil {
		notes.printf("replay: %v", err)
		return 1
	}
	return 0
}

func replayAndReport(ctx context.Context, c *config, stdin io.Reader, stdout io.Writer, notes *notes) error {
	l, err := openLog(ctx, c.file, stdin)
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := newReplay(ctx, c)
	if err != nil {
		return err
	}
	runErr := r.run(l, notes)
	closeErr := r.close()
	switch {
	case runErr != nil && closeErr != nil:
		return fmt.Errorf("%w; and then: %w", runErr, closeErr)
	case runErr != nil:
		return runErr
	}
	// Counters that could not be deleted don't make the numbers wrong.
	return errors.Join(report(stdout, c, r.results()), closeErr)
}
