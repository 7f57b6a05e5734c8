// Benchmarks puts this library beside its peers, in one run, by turns and on the same
// keys, and prints one table for each group of cases, and which bars were reached:
//
//	go run .
//	go run . -cases memory,http -runs 9
//	go run . -docs ../docs/performance.md
//
// Machines are noisy, and other than yours: only the ratios are worth quoting. Each is
// the median of the ratios of runs that came one after the other.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options is what the flags say, and sizes that only the tests change.
type options struct {
	cases []string
	runs  int
	time  time.Duration
	docs  string
	plots string

	keys      int // in use at the same time
	onceKeys  int // used once each
	floodKeys int // that come by in a flood
	maxKeys   int // that a flooded storage keeps
}

// A group is cases that share a table.
type group struct {
	name  string
	title string
	redis bool // needs a redis-server
	run   func(options) (report, error)
}

var groups = []group{
	{"memory", "In memory", false, memoryCases},
	{"keys", "Many keys in memory", false, keyCases},
	{"redis", "On Redis", true, redisCases},
	{"server", "What the Redis server does for it", true, serverCases},
	{"wrap", "Wraps around Redis", true, wrapCases},
	{"http", "HTTP middleware in memory", false, httpCases},
	{"floor", "What the parts cost by themselves", true, floorCases},
	{"growth", "How cost grows", true, growthCases},
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(o, os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{keys: 10_000, onceKeys: 1_000_000, floodKeys: 5_000_000, maxKeys: 100_000}
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	all := strings.Join(names, ",")
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(out)
	cases := flags.String("cases", all, "groups of cases, separated by commas")
	flags.IntVar(&o.runs, "runs", 5, "runs of each case; a cell is their median")
	flags.DurationVar(&o.time, "time", 100*time.Millisecond, "length of a run, at most 1s")
	flags.StringVar(&o.docs, "docs", "", "write the tables into this page, between its markers")
	flags.StringVar(&o.plots, "plots", "", "write the charts into this folder; performance beside the page if not given")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cases = strings.Split(*cases, ",")
	for _, name := range o.cases {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("-cases %s: no group %q: choose from %s", *cases, name, all)
		}
	}
	if o.docs != "" && o.plots == "" {
		o.plots = filepath.Join(filepath.Dir(o.docs), "performance")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	case o.runs < 1:
		return o, fmt.Errorf("-runs %d: at least 1", o.runs)
	case o.time <= 0 || o.time > time.Second: // in more, the high limit could be reached
		return o, fmt.Errorf("-time %v: above 0 and at most 1s", o.time)
	}
	return o, nil
}

// run runs the groups that are asked for, prints each, and at last what was missed.
func run(o options, out io.Writer) error {
	missed := 0
	fmt.Fprintf(out, "%s\n\n", machine(o))
	for _, g := range groups {
		if !slices.Contains(o.cases, g.name) {
			continue
		}
		if g.redis && !haveRedis() {
			fmt.Fprintf(out, "## %s\n\nNot measured: there is no redis-server on the PATH.\n\n", g.title)
			continue
		}
		r, err := g.run(o)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		fmt.Fprintf(out, "## %s\n\n%s\n", g.title, r.Markdown(""))
		if err := save(o, g.name, r); err != nil {
			return err
		}
		for _, b := range r.bars {
			if !b.reached {
				missed++
			}
		}
	}
	fmt.Fprintf(out, "%d bars were missed.\n", missed)
	return nil
}
