package httplimit

import (
	"encoding/base64"
	"strings"
	"time"
)

// exhausted reads RateLimit in all its lines: for how long a quota of the other
// side has nothing left, at most; 0 if none says so. A field that is malformed is
// ignored, all of it.
func exhausted(lines []string) time.Duration {
	p := fieldParser{rest: strings.Trim(strings.Join(lines, ","), " ")}
	var longest int64
	for p.rest != "" {
		item, ok := p.item()
		if !ok {
			return 0
		}
		if item.isString && item.hasR && item.r == 0 {
			longest = max(longest, item.t)
		}
		if !p.next() {
			return 0
		}
	}
	return time.Duration(min(longest, maxSeconds)) * time.Second
}

// A fieldItem is a member of RateLimit, as far as a client needs it.
type fieldItem struct {
	isString bool
	hasR     bool
	r, t     int64
}

// A fieldParser reads a List of structured fields, RFC 9651, without inner lists,
// which RateLimit doesn't have. Each method takes what it reads off the front, and
// tells whether it could.
type fieldParser struct{ rest string }

// next is between two members; nothing follows the last one, and no comma is the
// last.
func (p *fieldParser) next() bool {
	p.space()
	if p.rest == "" {
		return true
	}
	if !p.take(',') {
		return false
	}
	p.space()
	return p.rest != ""
}

func (p *fieldParser) item() (item fieldItem, ok bool) {
	v, ok := p.bare()
	if !ok {
		return item, false
	}
	item.isString = v.kind == '"'
	for p.take(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		key := p.while(isKeyByte)
		if key == "" || !isLower(key[0]) && key[0] != '*' {
			return item, false
		}
		v := bareItem{kind: '?'} // a key alone is true
		if p.take('=') {
			if v, ok = p.bare(); !ok {
				return item, false
			}
		}
		if !item.set(key, v) {
			return item, false
		}
	}
	return item, true
}

// set takes a parameter; the last of equal ones counts.
func (i *fieldItem) set(key string, v bareItem) bool {
	if key != "r" && key != "t" {
		return true
	}
	if v.kind != '0' || v.number < 0 {
		return false
	}
	if key == "r" {
		i.hasR, i.r = true, v.number
	} else {
		i.t = v.number
	}
	return true
}

// A bareItem is a value; kind is '0' for an Integer, '"' for a String, and
// something else for what RateLimit only can have in parameters that we don't
// know.
type bareItem struct {
	kind   byte
	number int64
}

func (p *fieldParser) bare() (v bareItem, ok bool) {
	if p.rest == "" {
		return v, false
	}
	switch first := p.rest[0]; {
	case first == '"':
		return bareItem{kind: '"'}, p.str()
	case first == '-' || isDigit(first):
		return p.numeral()
	case first == ':':
		return bareItem{kind: ':'}, p.bytes()
	case first == '?':
		p.rest = p.rest[1:]
		return bareItem{kind: '?'}, p.take('0') || p.take('1')
	case first == '@':
		p.rest = p.rest[1:]
		v, ok = p.numeral()
		return bareItem{kind: '@'}, ok && v.kind == '0'
	case first == '*' || isAlpha(first):
		p.while(isTokenByte)
		return bareItem{kind: 'a'}, true
	}
	return v, false
}

func (p *fieldParser) str() bool {
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return true
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return false
			}
		case c < ' ' || c > '~':
			return false
		}
	}
	return false
}

// numeral is an Integer of up to 15 digits, or a Decimal of up to 12 and 3.
func (p *fieldParser) numeral() (v bareItem, ok bool) {
	negative := p.take('-')
	digits := p.while(isDigit)
	if p.take('.') {
		fraction := p.while(isDigit)
		return bareItem{kind: '.'}, digits != "" && len(digits) <= 12 && fraction != "" && len(fraction) <= 3
	}
	if digits == "" || len(digits) > 15 {
		return v, false
	}
	for _, d := range []byte(digits) {
		v.number = v.number*10 + int64(d-'0')
	}
	if negative {
		v.number = -v.number
	}
	v.kind = '0'
	return v, true
}

func (p *fieldParser) bytes() bool {
	p.take(':')
	_, err := base64.StdEncoding.DecodeString(p.while(func(c byte) bool { return c != ':' && c > ' ' }))
	return p.take(':') && err == nil
}

func (p *fieldParser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *fieldParser) while(is func(byte) bool) string {
	n := 0
	for n < len(p.rest) && is(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *fieldParser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

func isKeyByte(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isTokenByte(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
