package rules

import (
	"slices"
	"sync"

	"github.com/granule-limits/ratelimit"
)

// A call is what one decision needs, in room that is used again.
type call struct {
	values map[string]string // of the request
	rule   *pathRule         // that is being matched
	wild   []string          // what its wildcards stand for

	key      []byte // of the counter of the descriptors down to here
	keys     []byte // of all limits that matched
	matched  []match
	requests []ratelimit.RequestedQuota // one for each of matched
}

// A match is a limit that applies, and where in call.keys its counter's key is.
type match struct {
	limit      *limit
	start, end int
	value      string // of the last key
}

var calls = sync.Pool{New: func() any { return new(call) }}

// maxKept is how many bytes of room a call may keep.
const maxKept = 64 << 10

// free gives the call back, without the caller's strings in it.
func (c *call) free() {
	if cap(c.keys)+cap(c.key) > maxKept {
		return
	}
	clear(c.wild[:cap(c.wild)])
	clear(c.matched)
	clear(c.requests)
	*c = call{wild: c.wild[:0], key: c.key[:0], keys: c.keys[:0], matched: c.matched[:0], requests: c.requests[:0]}
	calls.Put(c)
}

// match finds all limits that apply to a request, in the order in which they are asked.
func (s *set) match(c *call, r *Request) {
	if r.Path != "" {
		c.values = r.Values
		path := cleanPath(r.Path)
		if r.Host != "" && len(s.hosts) > 0 {
			if host := hostOf(r.Host); host != "" {
				s.matchPath(c, s.hosts[host], r.Method, path)
			}
		}
		s.matchPath(c, s.hosts[""], r.Method, path)
	}
	if d := s.domains[r.Domain]; d != nil {
		first := len(c.matched)
		for _, entries := range r.Descriptors {
			d.match(c, entries)
		}
		if d.replaces {
			c.dropReplaced(first)
		}
	}
	if byOrder := func(a, b match) int { return a.limit.order - b.limit.order }; !slices.IsSortedFunc(c.matched, byOrder) {
		slices.SortStableFunc(c.matched, byOrder)
	}
}

func (s *set) matchPath(c *call, n *methods, method, path string) {
	if n == nil {
		return
	}
	n.any.match(c, path)
	if method == "" {
		return
	}
	if m := n.byMethod[method]; m != nil {
		m.match(c, path)
	}
	if get := n.byMethod["GET"]; get != nil && method == "HEAD" {
		get.match(c, path)
	}
}

// path matches the descriptors of a rule whose pattern matched.
func (c *call) path(r *pathRule) {
	c.rule = r
	c.key = append(c.key[:0], r.start...)
	c.list(&r.list)
}

// list goes through a list by its own keys or by the request's, whichever are fewer.
func (c *call) list(l *list) {
	if len(l.keys) <= len(c.values)+len(c.rule.names)+1 {
		for _, k := range l.keys {
			if value, ok := c.value(k.key); ok {
				c.descend(k, value)
			}
		}
		return
	}
	if k := l.byKey[anyRequest]; k != nil {
		c.descend(k, "")
	}
	for i, name := range c.rule.names {
		if k := l.byKey[name]; k != nil {
			c.descend(k, c.wild[i])
		}
	}
	for key, value := range c.values { // match brings them in order
		if k := l.byKey[key]; k != nil && key != anyRequest && !slices.Contains(c.rule.names, key) {
			c.descend(k, value)
		}
	}
}

// value is what the request has for a key: what a wildcard of the path stands for goes
// before what the caller gave.
func (c *call) value(key string) (string, bool) {
	if key == anyRequest {
		return "", true
	}
	if i := slices.Index(c.rule.names, key); i >= 0 {
		return c.wild[i], true
	}
	value, ok := c.values[key]
	return value, ok
}

func (c *call) descend(k *keyed, value string) {
	n := k.match(value)
	if n == nil {
		return
	}
	end := len(c.key)
	c.key = n.appendKey(c.key, k, value)
	for _, l := range n.limits {
		c.add(l, value)
	}
	if len(n.list.keys) > 0 {
		c.list(&n.list)
	}
	c.key = c.key[:end]
}

// appendKey adds a key and its value to a counter's key.
func (n *node) appendKey(b []byte, k *keyed, value string) []byte {
	b = append(append(b, ':'), k.escaped...)
	switch {
	case n.whole:
		return b
	case n.shared:
		b = appendEscaped(append(b, ':'), n.value[:len(n.value)-1])
		return append(b, '*')
	}
	return appendEscaped(append(b, ':'), value)
}

func (c *call) add(l *limit, value string) {
	if l.quotas == nil && l.replaces == nil {
		return // unlimited, and nobody asks for it
	}
	start := len(c.keys)
	c.keys = append(append(c.keys, l.space...), c.key...)
	c.matched = append(c.matched, match{limit: l, start: start, end: len(c.keys), value: value})
}

// match finds the limit of the descriptor that has as many levels as there are entries.
func (d *domain) match(c *call, entries Descriptor) {
	c.key = append(c.key[:0], d.start...)
	l := &d.list
	for i, e := range entries {
		k := l.byKey[e.Key]
		if k == nil {
			return
		}
		n := k.match(e.Value)
		if n == nil {
			return
		}
		c.key = n.appendKey(c.key, k, e.Value)
		if i == len(entries)-1 {
			for _, limit := range n.limits {
				c.add(limit, e.Value)
			}
		}
		l = &n.list
	}
}

// dropReplaced takes away the limits whose names others of the same request replace, and
// those that are unlimited and only replace.
func (c *call) dropReplaced(first int) {
	var replaced []string
	for _, m := range c.matched[first:] {
		replaced = append(replaced, m.limit.replaces...)
	}
	kept := slices.DeleteFunc(c.matched[first:], func(m match) bool {
		return m.limit.quotas == nil || m.limit.name != "" && slices.Contains(replaced, m.limit.name)
	})
	c.matched = c.matched[:first+len(kept)]
}

// ask makes the requests of what matched.
func (c *call) ask(units int64) {
	keys := string(c.keys)
	c.requests = slices.Grow(c.requests, len(c.matched))[:len(c.matched)]
	for i := range c.matched {
		m, r := &c.matched[i], &c.requests[i]
		r.Prefix, r.Quotas = keys[m.start:m.end], m.limit.quotas
		r.Requested, r.AllOrNothing = units, true
	}
}
