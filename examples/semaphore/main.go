// Semaphore has processes share a few places: no more than 2 of 3 workers work at a
// time. They hold their places for a second, and put that off as long as they work. One
// of those that work is killed, as by kill -9: its place is back when its second is
// over, and the one that waits gets it.
//
//	go run ./examples/semaphore -redis localhost:6379
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

// A setup is what the program and its workers have in common.
type setup struct {
	redis  string
	name   string        // of the pool
	places int64         // how many may work at a time
	hold   time.Duration // for how long a killed worker's place is taken
	work   time.Duration // how long a worker works
}

func main() {
	var s setup
	flag.StringVar(&s.redis, "redis", "localhost:6379", "`address` of a Redis")
	flag.StringVar(&s.name, "pool", fmt.Sprint("semaphore example ", os.Getpid()), "`name` of the pool")
	flag.Int64Var(&s.places, "places", 2, "how many workers may work at a time")
	flag.DurationVar(&s.hold, "hold", time.Second, "for how long a place is held, if it is not renewed")
	flag.DurationVar(&s.work, "work", 3*time.Second, "how long a worker works")
	workers := flag.Int("workers", 3, "how many workers there are")
	worker := flag.Bool("worker", false, "be a worker: the program starts these by itself")
	flag.Parse()

	ctx := context.Background()
	var err error
	if *worker {
		err = s.runWorker(ctx, os.Stdout)
	} else {
		err = s.run(ctx, os.Stdout, *workers)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run starts the workers, kills the first that has a place, and waits for the others.
func (s setup) run(ctx context.Context, stdout io.Writer, workers int) error {
	out := &output{w: stdout, start: time.Now()}
	var first sync.Once
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		cmd, lines, err := s.start(ctx)
		if err != nil {
			return err
		}
		name := fmt.Sprint("worker ", i+1)
		wg.Go(func() {
			killed := false
			for lines.Scan() {
				out.say(name, lines.Text())
				first.Do(func() {
					killed = true
					_ = cmd.Process.Kill() // it can't give its place back
					out.say(name, "is killed")
				})
			}
			if err := cmd.Wait(); err != nil && !killed {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	pool, closePool, err := s.pool()
	if err != nil {
		return err
	}
	defer closePool()
	n, err := pool.InUse(ctx, account)
	out.say("at the end", fmt.Sprint(n, " places are taken"))
	return err
}

// start starts a worker: this program, as a process of its own.
func (s setup) start(ctx context.Context) (*exec.Cmd, *bufio.Scanner, error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-worker", "-redis", s.redis, "-pool", s.name,
		"-places", fmt.Sprint(s.places), "-hold", s.hold.String(), "-work", s.work.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, bufio.NewScanner(out), cmd.Start()
}

func (s setup) pool() (pool *tokens.Pool, closePool func(), err error) {
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	closePool = func() { _ = client.Close() }
	store, err := redistokens.New(client, redistokens.WithTimeout(time.Second))
	if err == nil {
		pool, err = tokens.New(s.name, store, tokens.Fixed(s.places), tokens.WithHold(s.hold))
	}
	if err != nil {
		closePool()
	}
	return pool, closePool, err
}

// output says what happens, and when.
type output struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func (o *output) say(who, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.w, "%6.2fs  %s %s\n", time.Since(o.start).Seconds(), who, strings.TrimSpace(what))
}
