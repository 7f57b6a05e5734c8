package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/strictyaml"
	"github.com/granule-limits/ratelimit/storage"
)

const (
	// maxTold is how many faults of a folder an error tells.
	maxTold = 20
	// maxDepth is how deep descriptors nest.
	maxDepth = 8
)

// A place is a line of a file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// A loader makes a set of files, and gathers what is wrong with them.
type loader struct {
	set        *set
	strategies []string
	seen       map[string]place // of paths and domains
	limits     []*limit
	faults     []error

	file string // that is being read
}

func newLoader() *loader {
	return &loader{
		set:        &set{hosts: make(map[string]*methods), domains: make(map[string]*domain)},
		strategies: ratelimit.Strategies(),
		seen:       make(map[string]place),
	}
}

// finish puts the limits into the order in which they are asked: those of one strategy
// together, and shadow rules last.
func (l *loader) finish() *set {
	slices.SortStableFunc(l.limits, func(a, b *limit) int {
		switch {
		case a.shadow != b.shadow && b.shadow:
			return -1
		case a.shadow != b.shadow:
			return 1
		}
		return cmp.Compare(a.strategy, b.strategy)
	})
	for i, limit := range l.limits {
		limit.order = i
	}
	return l.set
}

func (l *loader) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	told := l.faults[:min(len(l.faults), maxTold)]
	if more := len(l.faults) - len(told); more > 0 {
		told = append(slices.Clone(told), fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("%w: %w", ErrInvalidRules, errors.Join(told...))
}

// fault keeps an error of the file that is being read.
func (l *loader) fault(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			l.fault(err)
		}
		return
	}
	var f *strictyaml.Fault
	if errors.As(err, &f) {
		err = fmt.Errorf("%s:%d:%d: %s", l.file, f.Line, f.Column, f.Message)
	}
	l.faults = append(l.faults, err)
}

func (l *loader) faultAt(v strictyaml.Value, format string, args ...any) {
	l.fault(v.Fault(fmt.Sprintf(format, args...)))
}

// readFile reads a file of either kind.
func (l *loader) readFile(name, text string) {
	l.file = name
	root, err := strictyaml.Parse(text)
	if err != nil {
		l.fault(err)
		return
	}
	fields, ok := l.fields(root, "rules", "domain", "descriptors")
	if !ok {
		return
	}
	rules, isOwn := fields.Get("rules")
	domain, isEnvoy := fields.Get("domain")
	switch {
	case isOwn && isEnvoy:
		l.faultAt(domain, "stands beside rules: a file has rules, or a domain and descriptors")
	case isOwn:
		if d, ok := fields.Get("descriptors"); ok {
			l.faultAt(d, "stands beside rules: it belongs into a rule")
		}
		l.readRules(rules)
	case isEnvoy:
		l.readDomain(domain, fields)
	default:
		l.faultAt(root, "there are neither rules nor a domain")
	}
}

// once says where a path or a domain is already, if it is.
func (l *loader) once(kind, name string, v strictyaml.Value) bool {
	if before, ok := l.seen[kind+name]; ok {
		l.faultAt(v, "%s %q is there already, at %s", kind, name, before)
		return false
	}
	l.seen[kind+name] = l.place(v)
	return true
}

func (l *loader) place(v strictyaml.Value) place { return place{l.file, v.Line()} }

// fields reads a mapping, if it is one.
func (l *loader) fields(v strictyaml.Value, names ...string) (strictyaml.Fields, bool) {
	fields, ok, err := v.Fields(names...)
	if err != nil {
		l.fault(err)
	}
	return fields, ok
}

// need reads a field, and keeps the fault if it is missing or wrong.
func need[T any](l *loader, f strictyaml.Fields, name string, get func(strictyaml.Value) (T, error)) (v T, ok bool) {
	v, err := get(f.Need(name))
	if err != nil {
		l.fault(err)
	}
	return v, err == nil
}

// may reads a field that can be left out, and says whether all is well.
func may[T any](l *loader, f strictyaml.Fields, name string, get func(strictyaml.Value) (T, error)) (v T, ok bool) {
	if _, there := f.Get(name); !there {
		return v, true
	}
	return need(l, f, name, get)
}

// units are the windows that have a name. Months and years are not those of the calendar.
var units = map[string]time.Duration{
	"second": time.Second,
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
	"month":  30 * 24 * time.Hour,
	"year":   365 * 24 * time.Hour,
}

func (l *loader) unit(f strictyaml.Fields) (time.Duration, bool) {
	name, ok := need(l, f, "unit", strictyaml.Value.Text)
	if !ok {
		return 0, false
	}
	window, ok := units[strings.ToLower(name)]
	if !ok {
		l.faultAt(f.Need("unit"), "%q is not one of second, minute, hour, day, week, month, year", name)
	}
	return window, ok
}

// newLimit checks a limit's quota by its strategy, and adds it to a node.
func (l *loader) newLimit(n *node, v strictyaml.Value, q *ratelimit.Quota, limit limit) {
	limit.place = l.place(v)
	if q != nil {
		if err := checkQuota(l.strategies[limit.strategy], *q); err != nil {
			l.faultAt(v, "%v", err)
			return
		}
		limit.quotas = []ratelimit.Quota{*q}
	}
	n.limits = append(n.limits, &limit)
	l.limits = append(l.limits, &limit)
}

// checkQuota refuses what the strategy would refuse.
func checkQuota(strategy string, q ratelimit.Quota) error {
	if err := q.Validate(); err != nil {
		return err
	}
	if q.Limit == 0 && q.Burst > 0 {
		return fmt.Errorf("the burst %d with a limit of 0, which is to block: leave the burst out", q.Burst)
	}
	limiter, err := ratelimit.NewLimiter(strategy, nowhere{})
	if err != nil {
		return err
	}
	request := ratelimit.RequestedQuota{Prefix: "any", Quotas: []ratelimit.Quota{q}}
	_, _, err = limiter.CheckWithinQuotas(context.Background(), []ratelimit.RequestedQuota{request})
	if err != nil {
		return errors.New(strings.TrimSuffix(err.Error(), " (requests[0].Quotas[0])"))
	}
	return nil
}

// nowhere is a storage to which a strategy gets only with a quota that it can keep.
type nowhere struct{}

func (nowhere) Run(context.Context, *storage.Script, *storage.Call) error { return nil }
func (nowhere) Forget(context.Context, []storage.Key) error               { return nil }

// named is a rule's name in reports, one level deeper.
func named(rule, key, value string) string {
	if value == "" {
		return rule + " " + key
	}
	return rule + " " + key + "=" + value
}
