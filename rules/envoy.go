package rules

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/strictyaml"
)

// envoyStrategy counts as Envoy's service does: in fixed windows.
const envoyStrategy = "simple"

// Fields that newer versions of Envoy's service know, and this package does not.
var unsupported = []string{"value_to_metric", "quota_mode"}

// maxEnvoyLimit is the most that Envoy's service takes.
const maxEnvoyLimit = 1<<32 - 1

// readDomain reads a file of Envoy's service.
func (l *loader) readDomain(v strictyaml.Value, fields strictyaml.Fields) {
	name, err := v.Scalar()
	switch {
	case err != nil:
		l.fault(err)
		return
	case name == "":
		l.faultAt(v, "is empty")
		return
	case !l.once("domain", name, v):
		return
	}
	d := &domain{start: appendEscaped(nil, name)}
	if list, there := fields.Get("descriptors"); there && !list.IsNull() {
		l.nested(fields, 0, func(entry strictyaml.Value) { l.readEnvoy(d, &d.list, entry, name, 1) })
	}
	l.set.domains[name] = d
}

func (l *loader) readEnvoy(d *domain, in *list, v strictyaml.Value, rule string, depth int) {
	fields, ok := l.envoyFields(v, "key", "value", "rate_limit", "shadow_mode", "detailed_metric", "share_threshold", "descriptors")
	if !ok {
		return
	}
	key, ok := need(l, fields, "key", strictyaml.Value.Scalar)
	value, ok2 := may(l, fields, "value", strictyaml.Value.Scalar)
	switch {
	case !ok || !ok2:
		return
	case key == "":
		l.faultAt(fields.Need("key"), "is empty")
		return
	case strings.Contains(strings.TrimSuffix(value, "*"), "*"): // which newer versions know
		l.faultAt(fields.Need("value"), "%q: a * that is not at its end is not supported", value)
		return
	}
	n, isNew := in.at(key, value, l.place(v))
	rule = named(rule, key, value)
	if !isNew {
		l.faultAt(v, "%s is there already, at %s", rule, n.place)
		return
	}
	if n.shared, _ = may(l, fields, "share_threshold", strictyaml.Value.Bool); n.shared && !strings.HasSuffix(value, "*") {
		l.faultAt(fields.Need("share_threshold"), "is for a value that ends in *, not %q", value)
	}
	l.readRateLimit(d, n, fields, rule)
	if list, there := fields.Get("descriptors"); there && !list.IsNull() {
		l.nested(fields, depth, func(entry strictyaml.Value) { l.readEnvoy(d, &n.list, entry, rule, depth+1) })
	}
}

// envoyFields is Fields, that knows what is not supported.
func (l *loader) envoyFields(v strictyaml.Value, names ...string) (strictyaml.Fields, bool) {
	fields, ok := l.fields(v, slices.Concat(names, unsupported)...)
	for _, name := range unsupported {
		if v, there := fields.Get(name); there {
			l.faultAt(v, "%s is not supported: leave it out", name)
		}
	}
	return fields, ok
}

// readRateLimit reads what a descriptor of Envoy's counts, if it does.
func (l *loader) readRateLimit(d *domain, n *node, fields strictyaml.Fields, rule string) {
	faults := len(l.faults)
	limit := limit{rule: rule, space: domainSpace, strategy: slices.Index(l.strategies, envoyStrategy)}
	if limit.shadow, _ = may(l, fields, "shadow_mode", strictyaml.Value.Bool); limit.shadow {
		limit.space = shadowDomainSpace
	}
	detailed, _ := may(l, fields, "detailed_metric", strictyaml.Value.Bool)
	limit.detailed = detailed && n.value == ""
	block, there := fields.Get("rate_limit")
	if !there {
		return // what matches is not limited
	}
	inner, ok := l.envoyFields(block, "name", "replaces", "unit", "unit_multiplier", "requests_per_unit", "unlimited")
	if !ok {
		return
	}
	limit.name, _ = may(l, inner, "name", strictyaml.Value.Scalar)
	limit.replaces = l.replaces(inner, limit.name)
	q := l.rateLimit(inner)
	if len(l.faults) > faults {
		return
	}
	if q != nil {
		q.Name = limit.name
	}
	d.replaces = d.replaces || len(limit.replaces) > 0
	l.newLimit(n, block, q, limit)
}

// rateLimit is nil where it is unlimited.
func (l *loader) rateLimit(fields strictyaml.Fields) *ratelimit.Quota {
	if unlimited, _ := may(l, fields, "unlimited", strictyaml.Value.Bool); unlimited {
		l.alone(fields, "unit", "unit_multiplier", "requests_per_unit")
		return nil
	}
	var q ratelimit.Quota
	var ok bool
	if q.Window, ok = l.unit(fields); ok {
		q.Window *= time.Duration(l.multiplier(fields, q.Window))
	}
	if q.Limit, ok = need(l, fields, "requests_per_unit", strictyaml.Value.Whole); ok && q.Limit > maxEnvoyLimit {
		l.faultAt(fields.Need("requests_per_unit"), "%d is above %d", q.Limit, int64(maxEnvoyLimit))
	}
	return &q
}

// multiplier is how many units a window has.
func (l *loader) multiplier(fields strictyaml.Fields, unit time.Duration) int64 {
	v, there := fields.Get("unit_multiplier")
	if !there {
		return 1
	}
	n, err := v.Whole()
	switch most := int64(math.MaxInt64 / unit); {
	case err != nil:
		l.fault(err)
	case n == 0 || n > most:
		l.faultAt(v, "%d is not between 1 and %d", n, most)
	default:
		return n
	}
	return 1
}

func (l *loader) replaces(fields strictyaml.Fields, own string) (names []string) {
	entries, _ := may(l, fields, "replaces", strictyaml.Value.List)
	for _, entry := range entries {
		f, ok := l.fields(entry, "name")
		if !ok {
			continue
		}
		name, ok := need(l, f, "name", strictyaml.Value.Scalar)
		if ok && (name == "" || name == own) {
			l.faultAt(f.Need("name"), "%q is empty, or the limit's own: name another limit", name)
		}
		names = append(names, name)
	}
	return names
}
