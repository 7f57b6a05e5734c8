package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// A strategy is a way to count, by the name that -strategy knows it by.
type strategy struct{ name string }

// strategies are all that the library has.
var strategies = func() (all []strategy) {
	for _, name := range ratelimit.Strategies() {
		all = append(all, strategy{name})
	}
	return all
}()

func (s strategy) open(store storage.Storage) ratelimit.Limiter {
	limiter, err := ratelimit.NewLimiter(s.name, store)
	if err != nil {
		panic(err) // the library knows the name no more that it gave
	}
	return limiter
}

// allStrategies is the name that stands for all of them.
const allStrategies = "all"

// config is what the flags say.
type config struct {
	strategy   string
	strategies []strategy
	quota      ratelimit.Quota
	key        string
	storage    string
	redis      string
	json       bool
	file       string // "-" is standard input
}

func newFlagSet(c *config) *flag.FlagSet {
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints errors, in one line
	f.StringVar(&c.strategy, "strategy", "sliding-window", "`NAME` of the way to count: "+strings.Join(strategyNames(), ", "))
	f.Int64Var(&c.quota.Limit, "limit", 0, "`N` requests a window for each key; 0 admits nothing (required)")
	f.DurationVar(&c.quota.Window, "window", time.Minute, "`DURATION` of the window")
	f.DurationVar(&c.quota.Granularity, "granularity", 0, "`DURATION` of a granule or bucket, for sliding-window and hash (default window/10)")
	f.Int64Var(&c.quota.Burst, "burst", 0, "`N` requests at once, for token-bucket (default limit)")
	f.StringVar(&c.key, "key", "ip", "what has a limit of its own: `ip|path|ip+path`")
	f.StringVar(&c.storage, "storage", "memory", "where counters are: `memory|redis`")
	f.StringVar(&c.redis, "redis", "", "`HOST:PORT` of the server, with -storage redis")
	f.BoolVar(&c.json, "json", false, "report in JSON")
	return f
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: replay -limit N [flags] [FILE]")
	fmt.Fprintln(w, "Tells what a limit would have done to the traffic in an access log.")
	f := newFlagSet(new(config))
	f.SetOutput(w)
	f.PrintDefaults()
}

func strategyNames() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return append(names, allStrategies)
}

func parseFlags(args []string) (*config, error) {
	c := &config{file: "-"}
	f := newFlagSet(c)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 1 {
		return nil, fmt.Errorf("%q after the file %q: there is one file, and flags stand before it", f.Arg(1), f.Arg(0))
	}
	if f.NArg() == 1 {
		c.file = f.Arg(0)
	}
	if !isSet(f, "limit") {
		return nil, errors.New("-limit is missing: how many requests a window")
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

func isSet(f *flag.FlagSet, name string) (set bool) {
	f.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func (c *config) validate() error {
	for _, s := range strategies {
		if c.strategy == s.name || c.strategy == allStrategies {
			c.strategies = append(c.strategies, s)
		}
	}
	switch {
	case c.strategies == nil:
		return fmt.Errorf("-strategy %q is not one of %s", c.strategy, strings.Join(strategyNames(), ", "))
	case !slices.Contains([]string{"ip", "path", "ip+path"}, c.key):
		return fmt.Errorf("-key %q is not one of ip, path, ip+path", c.key)
	case c.quota.Limit < 0:
		return fmt.Errorf("-limit %d is negative", c.quota.Limit)
	}
	if err := c.validateStorage(); err != nil {
		return err
	}
	return c.validateQuota()
}

func (c *config) validateStorage() error {
	switch {
	case c.storage != "memory" && c.storage != "redis":
		return fmt.Errorf("-storage %q is not one of memory, redis", c.storage)
	case c.storage == "redis" && c.redis == "":
		return errors.New("-storage redis needs -redis HOST:PORT")
	case c.storage == "memory" && c.redis != "":
		return fmt.Errorf("-redis %q needs -storage redis", c.redis)
	case c.storage == "redis":
		if _, _, err := net.SplitHostPort(c.redis); err != nil {
			return fmt.Errorf("-redis %q is not HOST:PORT", c.redis)
		}
	}
	return nil
}

// validateQuota also asks the limiters, on a storage of no consequence: a
// strategy can refuse what is a valid quota to the others.
func (c *config) validateQuota() error {
	if err := c.quota.Validate(); err != nil {
		return err
	}
	for _, s := range c.strategies {
		if _, _, err := s.open(memory.New()).CheckWithinQuotas(context.Background(), c.ask("any", 0)); err != nil {
			return fmt.Errorf("-strategy %s: %w", s.name, err)
		}
	}
	return nil
}

// keyOf is the key of an entry, by which it is limited.
func (c *config) keyOf(e entry) string {
	switch c.key {
	case "ip":
		return e.host
	case "path":
		return e.path
	default:
		return e.host + " " + e.path // hosts have no spaces: no two pairs are one key
	}
}

// ask is what limiters are asked: n units for a key.
func (c *config) ask(key string, n int64) []ratelimit.RequestedQuota {
	return []ratelimit.RequestedQuota{{Prefix: key, Requested: n, Quotas: []ratelimit.Quota{c.quota}}}
}
