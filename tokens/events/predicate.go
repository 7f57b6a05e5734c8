package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
// numbers of any type. Numbers are compared by what they amount to: 1 is 1.0.
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

// plain is a value that can be compared: a string, a bool, an int64 or, for numbers
// that are none, a float64.
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

func number(text string) (any, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) {
		return nil, false
	}
	if i := int64(f); math.Abs(f) < 1<<53 && float64(i) == f {
		return i, true
	}
	return f, true
}
