package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/granule-limits/ratelimit"
)

// A set is all rules of a folder, ready to be matched. It is never changed.
type set struct {
	hosts   map[string]*methods // "" is any
	domains map[string]*domain
}

// methods are the paths of one host.
type methods struct {
	any      pathNode
	byMethod map[string]*pathNode
}

func (s *set) insert(r *pathRule) {
	m := s.hosts[r.host]
	if m == nil {
		m = &methods{byMethod: make(map[string]*pathNode)}
		s.hosts[r.host] = m
	}
	if r.method == "" {
		m.any.insert(r)
		return
	}
	if m.byMethod[r.method] == nil {
		m.byMethod[r.method] = new(pathNode)
	}
	m.byMethod[r.method].insert(r)
}

// A pathRule is a path and what is counted there.
type pathRule struct {
	pattern
	start []byte // of its counters
	list  list
}

// A domain is a file of Envoy's.
type domain struct {
	start    []byte // of its counters
	list     list
	replaces bool // one of its limits does
}

// A list is descriptors that stand together, by their keys.
type list struct {
	keys  []*keyed
	byKey map[string]*keyed
}

// A keyed is the descriptors of one key, of which the most specific counts.
type keyed struct {
	key      string
	escaped  string
	exact    map[string]*node
	prefixes []prefixed // the longest first
	any      *node
}

type prefixed struct {
	prefix string
	node   *node
}

// A node is a descriptor, or several of one key and value.
type node struct {
	value  string // as in the file
	place  place  // of the first
	limits []*limit
	list   list
	shared bool // one counter for all values that match
	whole  bool // the key has no values
}

// A limit is what a descriptor counts.
type limit struct {
	rule     string // as reports have it
	place    place
	space    string            // what keys of counters begin with
	quotas   []ratelimit.Quota // one; none if it is unlimited
	strategy int               // an index of Engine.limiters
	shadow   bool
	detailed bool // reports have the value, which the file leaves open
	name     string
	replaces []string
	order    int // of the calls that limits are asked in
}

// The spaces of counters. None is one of a Policy, whose prefix begins with a name. Shadow
// rules have their own, so that a lower limit can be tried beside the one in force.
const (
	pathSpace         = ":path:"
	shadowPathSpace   = ":path-shadow:"
	domainSpace       = ":domain:"
	shadowDomainSpace = ":domain-shadow:"
)

// anyRequest is the key of a descriptor that counts all requests of a path together.
const anyRequest = "*"

// at is the node for a key and value, a new one if there is none.
func (l *list) at(key, value string, where place) (n *node, isNew bool) {
	k := l.byKey[key]
	if k == nil {
		k = &keyed{key: key, escaped: string(appendEscaped(nil, key)), exact: make(map[string]*node)}
		if l.byKey == nil {
			l.byKey = make(map[string]*keyed)
		}
		l.byKey[key] = k
		l.keys = append(l.keys, k)
	}
	if n := k.find(value); n != nil {
		return n, false
	}
	n = &node{value: value, place: where}
	k.add(n)
	return n, true
}

func (k *keyed) find(value string) *node {
	if value == "" {
		return k.any
	}
	if prefix, ok := strings.CutSuffix(value, "*"); ok {
		for _, p := range k.prefixes {
			if p.prefix == prefix {
				return p.node
			}
		}
		return nil
	}
	return k.exact[value]
}

func (k *keyed) add(n *node) {
	prefix, ok := strings.CutSuffix(n.value, "*")
	switch {
	case n.value == "":
		k.any = n
	case ok:
		k.prefixes = append(k.prefixes, prefixed{prefix, n})
		slices.SortStableFunc(k.prefixes, func(a, b prefixed) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	default:
		k.exact[n.value] = n
	}
}

// match is the most specific node for a value; nil if there is none.
func (k *keyed) match(value string) *node {
	if len(k.exact) > 0 {
		if n := k.exact[value]; n != nil {
			return n
		}
	}
	for _, p := range k.prefixes {
		if strings.HasPrefix(value, p.prefix) {
			return p.node
		}
	}
	return k.any
}

// appendEscaped writes a part of a counter's key so that no two lists of parts, joined
// by colons, are the same text. A star that remains is that of a shared node.
func appendEscaped(b []byte, part string) []byte {
	const hex = "0123456789ABCDEF"
	plain := 0 // from here to i nothing is to be escaped
	for i := range len(part) {
		if c := part[i]; c == '%' || c == ':' || c == '*' {
			b = append(append(b, part[plain:i]...), '%', hex[c>>4], hex[c&15])
			plain = i + 1
		}
	}
	return append(b, part[plain:]...)
}
