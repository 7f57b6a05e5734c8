package rules

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A pattern is one of net/http's ServeMux: [METHOD ][HOST]/[PATH].
type pattern struct {
	text         string // with one space after the method
	method, host string // empty: any
	segments     []segment
	names        []string // of the wildcards, in order
}

// A segment of a pattern. A slash at the end of a path is the segment "/", and so is
// {$}; at the end of a pattern it is a multi wildcard without a name.
type segment struct {
	literal     string // unescaped
	wild, multi bool
}

// parsePattern refuses what no request is like, as their ports are taken off and their
// paths are cleaned. For the rest it leaves it to ServeMux to say what is a pattern, so
// that there is one syntax.
func parsePattern(text string) (p pattern, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	http.NewServeMux().Handle(text, http.NotFoundHandler()) // panics

	rest := text
	if i := strings.IndexAny(rest, " \t"); i >= 0 {
		p.method, rest = rest[:i], strings.TrimLeft(rest[i:], " \t")
		p.text = p.method + " "
	}
	p.text += rest
	slash := strings.IndexByte(rest, '/')
	p.host, rest = rest[:slash], rest[slash:]
	if host := hostOf(p.host); host != p.host {
		return pattern{}, fmt.Errorf("the host %q has a port, and requests are matched without theirs: write %q", p.host, host)
	}
	if clean := cleanPath(rest); clean != rest {
		return pattern{}, fmt.Errorf("%q is not as the paths of requests are, which are cleaned first: write %q", rest, clean)
	}
	for rest != "" {
		p.add(&rest)
	}
	return p, nil
}

// add takes a segment off the rest of a pattern that is known to be one.
func (p *pattern) add(rest *string) {
	if *rest == "/" {
		p.segments, *rest = append(p.segments, segment{multi: true}), ""
		return
	}
	text := (*rest)[1:]
	end := strings.IndexByte(text, '/')
	if end < 0 {
		end = len(text)
	}
	text, *rest = text[:end], text[end:]
	name, wild := strings.CutPrefix(text, "{")
	if !wild {
		p.segments = append(p.segments, segment{literal: unescape(text)})
		return
	}
	name, multi := strings.CutSuffix(strings.TrimSuffix(name, "}"), "...")
	if name == "$" {
		p.segments = append(p.segments, segment{literal: "/"})
		return
	}
	p.names = append(p.names, name)
	p.segments = append(p.segments, segment{wild: !multi, multi: multi})
}

// wilds is the number of wildcards for one segment.
func (p *pattern) wilds() (n int) {
	for _, s := range p.segments {
		if s.wild {
			n++
		}
	}
	return n
}

// unescape is what ServeMux does to segments: what is no escape stays.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	u, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return u
}

// cleanPath is what ServeMux does to the path of a request.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if p[len(p)-1] == '/' && clean != "/" {
		if len(p) == len(clean)+1 && strings.HasPrefix(p, clean) {
			return p
		}
		return clean + "/"
	}
	return clean
}

// hostOf is a host without its port.
func hostOf(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	h, _, err := net.SplitHostPort(host)
	if err != nil {
		return host
	}
	return h
}

// A pathNode is where patterns that begin alike part: each step down is a segment.
type pathNode struct {
	literal map[string]*pathNode
	wild    *pathNode
	multi   []*pathRule // end here, whatever follows
	named   bool        // one of these has a name for that
	leaf    []*pathRule // end here
}

func (n *pathNode) insert(r *pathRule) {
	for _, s := range r.segments {
		switch {
		case s.multi:
			n.multi = append(n.multi, r)
			n.named = n.named || len(r.names) > r.wilds()
			return
		case s.wild:
			if n.wild == nil {
				n.wild = new(pathNode)
			}
			n = n.wild
		default:
			if n.literal == nil {
				n.literal = make(map[string]*pathNode)
			}
			if n.literal[s.literal] == nil {
				n.literal[s.literal] = new(pathNode)
			}
			n = n.literal[s.literal]
		}
	}
	n.leaf = append(n.leaf, r)
}

// match finds all rules whose path matches. It visits a node once at most, so that no
// path costs more than all of the patterns.
func (n *pathNode) match(c *call, rest string) {
	if rest == "" {
		for _, r := range n.leaf {
			c.path(r)
		}
		return
	}
	n.matchMulti(c, rest)
	s, rest := firstSegment(rest)
	if child := n.literal[s]; child != nil {
		child.match(c, rest)
	}
	if n.wild != nil && s != "/" {
		c.wild = append(c.wild, s)
		n.wild.match(c, rest)
		c.wild = c.wild[:len(c.wild)-1]
	}
}

func (n *pathNode) matchMulti(c *call, rest string) {
	wild := len(c.wild)
	if n.named {
		c.wild = append(c.wild, unescape(rest[1:]))
	}
	for _, r := range n.multi {
		c.path(r)
	}
	c.wild = c.wild[:wild]
}

// firstSegment of a path, which begins with a slash, and what is left after it.
func firstSegment(p string) (s, rest string) {
	if p == "/" {
		return "/", ""
	}
	p = p[1:]
	if i := strings.IndexByte(p, '/'); i >= 0 {
		p, rest = p[:i], p[i:]
	}
	return unescape(p), rest
}
