package ratelimit

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"unique"

	"github.com/granule-limits/ratelimit/internal/frame"
	"github.com/granule-limits/ratelimit/storage"
)

// A strategy is a way to count. Each is defined once, at start-up, in a file of
// its own, and told twice: in Go as a frame.Strategy, and in Lua by
// scripts/<name>.lua. CONTRIBUTING.md says how to add one.
type strategy struct {
	name string // as in keys; scripts/<name>.lua with '_' for '-'
	// lua names further files of scripts/ that the script needs, after its own.
	lua []string
	// granular says that counters of another granularity are other counters.
	granular bool
	frame.Strategy
	// validate refuses quotas that the numbers of this strategy cannot hold; nil
	// if Quota.Validate is enough.
	validate func(q Quota) error
	// adapt changes the numbers by which this strategy judges; nil if they are the
	// quota's own, with Limit for Burst.
	adapt func(c *storage.Cell, q Quota)

	script *storage.Script
}

// strategies is all that are defined; the tests run over them.
var strategies []*strategy

//go:embed scripts/*.lua
var scripts embed.FS

func define(s strategy) *strategy {
	var lua strings.Builder
	own := strings.ReplaceAll(s.name, "-", "_") + ".lua"
	for _, name := range slices.Concat([]string{"prelude.lua", own}, s.lua, []string{"frame.lua"}) {
		text, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			panic("ratelimit: strategy " + s.name + ": " + err.Error())
		}
		lua.Write(text)
	}
	s.script = &storage.Script{Name: s.name, Lua: lua.String(), Step: frame.Step(s.Strategy), Valid: frame.Valid(s.Strategy)}
	strategies = append(strategies, &s)
	return &s
}

// Strategies are the names of the strategies, sorted: hash, list, simple,
// sliding-counter, sliding-window, token-bucket.
func Strategies() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// NewLimiter makes the limiter of a strategy by its name, as files and flags have
// it. See the constructors for what each promises.
func NewLimiter(strategy string, store storage.Storage) (Limiter, error) {
	for _, s := range strategies {
		if s.name == strategy {
			return newLimiter(store, s), nil
		}
	}
	return nil, fmt.Errorf("%w: there is no strategy %q, only %s", ErrInvalidRequest, strategy, strings.Join(Strategies(), ", "))
}

// check refuses a quota that this strategy cannot keep.
func (s *strategy) check(q Quota) error {
	if err := q.Validate(); err != nil {
		return err
	}
	if s.validate != nil {
		return s.validate(q)
	}
	return nil
}

// cell puts a valid quota into the numbers that steps judge by. The prefix is not
// in it, but a PrefixOverride.
func (s *strategy) cell(c *storage.Cell, q *Quota) {
	window, granularity := micros(q.Window), micros(q.granularity())
	counter := storage.Counter{Strategy: s.name, Window: window}
	*c = storage.Cell{
		Limit:       q.Limit,
		Burst:       q.Limit,
		Window:      window,
		Granularity: granularity,
	}
	if q.PrefixOverride != "" {
		c.Key.Prefix, counter.Shared = shortPrefix(q.PrefixOverride), true
	}
	if s.granular {
		counter.Granularity = granularity
	}
	c.Key.Counter = unique.Make(counter)
	if s.adapt != nil {
		s.adapt(c, *q)
	}
}
