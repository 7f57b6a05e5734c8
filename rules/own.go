package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/strictyaml"
)

// defaultStrategy is that of descriptors that name none.
const defaultStrategy = "sliding-window"

// readRules reads a file of our own kind.
func (l *loader) readRules(v strictyaml.Value) {
	entries, err := v.List()
	if err != nil {
		l.fault(err)
		return
	}
	for _, entry := range entries {
		l.readRule(entry)
	}
}

func (l *loader) readRule(v strictyaml.Value) {
	fields, ok := l.fields(v, "path", "descriptors")
	if !ok {
		return
	}
	text, ok := need(l, fields, "path", strictyaml.Value.Text)
	if !ok {
		return
	}
	pattern, err := parsePattern(text)
	if err != nil {
		l.faultAt(fields.Need("path"), "%v", err)
		return
	}
	r := &pathRule{pattern: pattern}
	if !l.once("path", r.text, fields.Need("path")) {
		return
	}
	r.start = appendEscaped(nil, r.text)
	entries, ok := need(l, fields, "descriptors", strictyaml.Value.List)
	if !ok {
		return
	}
	l.notEmpty(fields)
	for _, entry := range entries {
		l.readDescriptor(&r.list, entry, r.text, 1)
	}
	l.set.insert(r)
}

// ownLimit are the fields of a limit, of which a descriptor has some or none.
var ownLimit = []string{"unit", "window", "requests_per_unit", "unlimited", "strategy", "burst", "shadow", "name"}

func (l *loader) readDescriptor(in *list, v strictyaml.Value, rule string, depth int) {
	fields, ok := l.fields(v, slices.Concat([]string{"key", "value"}, ownLimit, []string{"descriptors"})...)
	if !ok {
		return
	}
	key, ok := l.key(fields)
	value, ok2 := may(l, fields, "value", strictyaml.Value.Text)
	if !ok || !ok2 {
		return
	}
	if given, there := fields.Get("value"); there && (value == "" || key == anyRequest) {
		l.faultAt(given, "%q: leave it out, for all values of the key %q", value, key)
		return
	}
	rule = named(rule, key, value)
	n, _ := in.at(key, value, l.place(v))
	n.whole = key == anyRequest
	limited := slices.ContainsFunc(ownLimit, func(name string) bool { _, ok := fields.Get(name); return ok })
	if limited {
		l.readLimit(n, v, fields, rule)
	}
	_, nested := fields.Get("descriptors")
	switch {
	case nested:
		l.notEmpty(fields)
		l.nested(fields, depth, func(entry strictyaml.Value) { l.readDescriptor(&n.list, entry, rule, depth+1) })
	case !limited:
		l.faultAt(v, "limits nothing: give it requests_per_unit and a unit, unlimited: true, or descriptors")
	}
}

func (l *loader) key(fields strictyaml.Fields) (string, bool) {
	key, ok := need(l, fields, "key", strictyaml.Value.Text)
	if ok && key == "" {
		l.faultAt(fields.Need("key"), "is empty")
		return "", false
	}
	return key, ok
}

// notEmpty refuses an empty list of descriptors. In a file of Envoy's it is none.
func (l *loader) notEmpty(fields strictyaml.Fields) {
	v := fields.Need("descriptors")
	if entries, err := v.List(); err == nil && len(entries) == 0 {
		l.faultAt(v, "is empty, and limits nothing: write some, or leave it out")
	}
}

// nested reads the descriptors in a descriptor.
func (l *loader) nested(fields strictyaml.Fields, depth int, read func(strictyaml.Value)) {
	v := fields.Need("descriptors")
	if depth >= maxDepth {
		l.faultAt(v, "is more than %d deep", maxDepth)
		return
	}
	entries, err := v.List()
	if err != nil {
		l.fault(err)
	}
	for _, entry := range entries {
		read(entry)
	}
}

func (l *loader) readLimit(n *node, v strictyaml.Value, fields strictyaml.Fields, rule string) {
	faults := len(l.faults)
	limit := limit{rule: rule, space: pathSpace}
	limit.name, _ = may(l, fields, "name", strictyaml.Value.Text)
	if limit.shadow, _ = may(l, fields, "shadow", strictyaml.Value.Bool); limit.shadow {
		limit.space = shadowPathSpace
	}
	var q *ratelimit.Quota
	if unlimited, _ := may(l, fields, "unlimited", strictyaml.Value.Bool); unlimited {
		l.alone(fields, "unit", "window", "requests_per_unit", "strategy", "burst", "shadow")
	} else {
		limit.strategy = l.strategy(fields)
		q = l.quota(fields)
		q.Name = limit.name
	}
	if len(l.faults) == faults && l.newTo(n, v, q, &limit) {
		l.newLimit(n, v, q, limit)
	}
}

// alone refuses what stands beside unlimited.
func (l *loader) alone(fields strictyaml.Fields, names ...string) {
	for _, name := range names {
		if v, there := fields.Get(name); there {
			l.faultAt(v, "stands beside unlimited: use one or the other")
		}
	}
}

// strategy is an index of Engine.limiters: any, where there is a fault.
func (l *loader) strategy(fields strictyaml.Fields) int {
	name := defaultStrategy
	if given, there := fields.Get("strategy"); there {
		var ok bool
		if name, ok = need(l, fields, "strategy", strictyaml.Value.Text); !ok {
			return 0
		}
		if !slices.Contains(l.strategies, name) {
			l.faultAt(given, "%q is not one of %s", name, strings.Join(l.strategies, ", "))
			return 0
		}
	}
	if burst, there := fields.Get("burst"); there && name != "token-bucket" {
		l.faultAt(burst, "is for the strategy token-bucket, not %s", name)
	}
	return slices.Index(l.strategies, name)
}

func (l *loader) quota(fields strictyaml.Fields) *ratelimit.Quota {
	var q ratelimit.Quota
	q.Limit, _ = need(l, fields, "requests_per_unit", strictyaml.Value.Whole)
	q.Burst, _ = may(l, fields, "burst", strictyaml.Value.Whole)
	q.Window = l.window(fields)
	return &q
}

func (l *loader) window(fields strictyaml.Fields) (window time.Duration) {
	given, there := fields.Get("window")
	_, unit := fields.Get("unit")
	switch {
	case there && unit:
		l.faultAt(given, "stands beside unit: use one or the other")
	case there:
		window, _ = need(l, fields, "window", strictyaml.Value.Duration)
	default:
		window, _ = l.unit(fields)
	}
	return window
}

// newTo refuses a limit that would be the same counter as another.
func (l *loader) newTo(n *node, v strictyaml.Value, q *ratelimit.Quota, limit *limit) bool {
	for _, other := range n.limits {
		switch {
		case q == nil || other.quotas == nil:
			l.faultAt(v, "%s is there already, at %s: unlimited stands alone", limit.rule, other.place)
			return false
		case other.strategy == limit.strategy && other.shadow == limit.shadow && other.quotas[0].Window == q.Window:
			l.faultAt(v, "%s is there already, at %s, with this window and strategy", limit.rule, other.place)
			return false
		}
	}
	return true
}
