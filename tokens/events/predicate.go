package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDepth = 1000   // of predicates in each other
	maxSize  = 10_000 // predicates in all
)

// A Predicate tests an event. Is and Where look at the values at a path, And and Or
// join predicates, to a depth of 1,000 and a number of 10,000. The zero Predicate is
// true for every event. What is wrong with a predicate is said by NewManager.
type Predicate struct {
	test  func(event any) bool
	depth int
	size  int
	err   error
}

// Is tests whether a value at the path equals one of those given: strings, bools and
// numbers of any type. Numbers are compared by what they amount to, to the last digit:
// 1 is 1.0. A float is the number that Go writes for it; what has an exponent of more
// than 32 bits is no number here.
func Is(path string, oneOf ...any) Predicate {
	if len(oneOf) == 0 {
		return Predicate{err: fmt.Errorf("events.Is(%q): no values", path)}
	}
	wanted := make([]any, len(oneOf))
	for i, v := range oneOf {
		var ok bool
		if wanted[i], ok = plain(v); !ok {
			return Predicate{err: fmt.Errorf("events.Is(%q): %v is a %T, not a string, a bool or a number", path, v, v)}
		}
	}
	return leaf("events.Is", path, func(v any) bool {
		p, ok := plain(v)
		return ok && slices.Contains(wanted, p)
	})
}

// Where tests whether the function is true for a value at the path: a string, a bool,
// a json.Number or an object, which is a map[string]any. Where there is no value it
// is false, and the function not called. It may be called from several goroutines.
func Where(path string, test func(value any) bool) Predicate {
	if test == nil {
		return Predicate{err: fmt.Errorf("events.Where(%q): the function is nil", path)}
	}
	return leaf("events.Where", path, test)
}

func leaf(what, path string, test func(any) bool) Predicate {
	keys, err := parsePath(path)
	if err != nil {
		return Predicate{err: fmt.Errorf("%s: %w", what, err)}
	}
	return Predicate{
		test:  func(event any) bool { return slices.ContainsFunc(values(event, keys), test) },
		depth: 1,
		size:  1,
	}
}

// And is true if all of the predicates are; there must be one.
func And(predicates ...Predicate) Predicate {
	predicates = slices.Clone(predicates)
	return join("events.And", predicates, func(event any) bool {
		for _, p := range predicates {
			if !p.matches(event) {
				return false
			}
		}
		return true
	})
}

// Or is true if one of the predicates is; there must be one.
func Or(predicates ...Predicate) Predicate {
	predicates = slices.Clone(predicates)
	return join("events.Or", predicates, func(event any) bool {
		return slices.ContainsFunc(predicates, func(p Predicate) bool { return p.matches(event) })
	})
}

func join(what string, predicates []Predicate, test func(any) bool) Predicate {
	joined := Predicate{test: test, size: 1}
	if len(predicates) == 0 {
		joined.err = errors.New(what + ": no predicates")
	}
	for _, p := range predicates {
		joined.depth = max(joined.depth, p.depth)
		joined.size = min(joined.size+p.size, maxSize+1)
		if joined.err == nil {
			joined.err = p.err
		}
	}
	joined.depth++
	return joined
}

func (p Predicate) matches(event any) bool { return p.test == nil || p.test(event) }

func (p Predicate) check() error {
	switch {
	case p.err != nil:
		return p.err
	case p.depth > maxDepth:
		return fmt.Errorf("predicates are joined to a depth of %d, more than %d: give And and Or several at once", p.depth, maxDepth)
	case p.size > maxSize:
		return fmt.Errorf("more than %d predicates: give Is several values", maxSize)
	}
	return nil
}

// plain is a value that can be compared: a string, a bool or a decimal.
func plain(v any) (any, bool) {
	switch v := v.(type) {
	case string, bool:
		return v, true
	case json.Number:
		return number(v.String())
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return number(fmt.Sprint(v))
	case float32:
		return number(strconv.FormatFloat(float64(v), 'g', -1, 32))
	case float64:
		return number(strconv.FormatFloat(v, 'g', -1, 64))
	}
	return nil, false
}

// A decimal is a number, each in one form only: the digits have no zeros at either end,
// and zero has none.
type decimal struct {
	sign, digits string
	exponent     int64
}

// parts of a number: its sign, its digits before and after the point, its exponent.
var parts = regexp.MustCompile(`^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$`)

func number(text string) (any, bool) {
	m := parts.FindStringSubmatch(text)
	if m == nil {
		return nil, false
	}
	digits := strings.TrimLeft(m[2]+m[3], "0")
	if digits == "" {
		return decimal{}, true
	}
	var exponent int64
	if m[4] != "" {
		var err error
		if exponent, err = strconv.ParseInt(m[4], 10, 32); err != nil {
			return nil, false
		}
	}
	short := strings.TrimRight(digits, "0")
	return decimal{m[1], short, exponent - int64(len(m[3])) + int64(len(digits)-len(short))}, true
}
