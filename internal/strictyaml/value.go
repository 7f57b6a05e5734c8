package strictyaml

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxTold is how many unknown fields of a mapping an error tells.
const maxTold = 20

// A Value is a node of the text and where it belongs: "limits[3].limit".
type Value struct {
	node   ast.Node // nil: a field that is missing
	path   string
	parent ast.Node
}

// Fault is an error at the place of the value, or of what it is missing in.
func (v Value) Fault(message string) error {
	if v.path != "" {
		message = v.path + ": " + message
	}
	return at(start(v.place()), message)
}

// Line is where the value stands, or what it is missing in.
func (v Value) Line() int { return start(v.place()).Position.Line }

func (v Value) place() ast.Node {
	if v.node == nil {
		return v.parent
	}
	return v.node
}

// start is the first token of a node: that of a mapping in block style is its first
// key's, not its first colon.
func start(node ast.Node) *token.Token {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return node.GetToken()
}

// quoted is a scalar as it is written, or what else there is.
func (v Value) quoted() string {
	switch n := v.node.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("%q", n.Value)
	}
	return v.node.GetToken().Value
}

// IsNull tells whether nothing is written where a value would stand, or null.
func (v Value) IsNull() bool {
	_, isNull := v.node.(*ast.NullNode)
	return isNull
}

func (v Value) missing() error {
	if v.node == nil {
		return v.Fault("is missing")
	}
	return nil
}

// Text reads a string. What YAML takes for a number or the like was hardly meant
// as one, nor was what others take for one: 0128 and 1e3.
func (v Value) Text() (string, error) {
	if err := v.missing(); err != nil {
		return "", err
	}
	s, ok := v.node.(*ast.StringNode)
	switch {
	case !ok:
		return "", v.Fault(fmt.Sprintf("%s is not text: put it in quotes", v.quoted()))
	case s.Token.Type == token.StringType && isNumber(s.Value):
		return "", v.Fault(fmt.Sprintf("%s is not text: put it in quotes", s.Value))
	}
	return s.Value, nil
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return strings.ContainsAny(text, "0123456789") && (err == nil || errors.Is(err, strconv.ErrRange))
}

// Scalar reads a string, or a number or a bool as it is written.
func (v Value) Scalar() (string, error) {
	switch n := v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode:
		return n.GetToken().Value, nil
	}
	return v.Text()
}

// Bool reads true or false.
func (v Value) Bool() (bool, error) {
	if err := v.missing(); err != nil {
		return false, err
	}
	b, ok := v.node.(*ast.BoolNode)
	if !ok {
		return false, v.Fault(fmt.Sprintf("%s is not true or false", v.quoted()))
	}
	return b.Value, nil
}

// Whole reads a number that is written in decimal digits and nothing else: 010,
// 0x10, 1_000 and 1e3 mean different numbers to different readers.
func (v Value) Whole() (int64, error) {
	if err := v.missing(); err != nil {
		return 0, err
	}
	text := v.node.GetToken().Value
	_, isNumber := v.node.(*ast.IntegerNode)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, v.Fault(fmt.Sprintf("%s is out of range", text))
	case !isNumber || err != nil || text != strconv.FormatInt(n, 10):
		return 0, v.Fault(fmt.Sprintf("%s is not a whole number in plain digits", v.quoted()))
	case n < 0:
		return 0, v.Fault(fmt.Sprintf("%d is negative", n))
	}
	return n, nil
}

// Duration reads one as time.ParseDuration does, above zero.
func (v Value) Duration() (time.Duration, error) {
	text, err := v.Text()
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, v.Fault(fmt.Sprintf("%q is not a duration such as 30s, 5m or 24h", text))
	}
	if d <= 0 {
		return 0, v.Fault(fmt.Sprintf("%s is not above zero", text))
	}
	return d, nil
}

// List reads a sequence.
func (v Value) List() ([]Value, error) {
	if err := v.missing(); err != nil {
		return nil, err
	}
	seq, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return nil, v.Fault(fmt.Sprintf("%s is not a list", v.quoted()))
	}
	list := make([]Value, len(seq.Values))
	for i, node := range seq.Values {
		list[i] = Value{node: node, path: fmt.Sprintf("%s[%d]", v.path, i)}
	}
	return list, nil
}

// Fields are the values of a mapping.
type Fields struct {
	of     Value
	byName map[string]Value
}

// Fields reads a mapping that has no other keys than these. With an error that tells
// of others, the fields of these names are there all the same, so that their faults can
// be told too; of what is no mapping there is nothing to tell, and ok is false. That no key
// is there twice the parser has seen to.
func (v Value) Fields(names ...string) (f Fields, ok bool, err error) {
	if err := v.missing(); err != nil {
		return Fields{of: Value{node: v.parent}}, false, err
	}
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return Fields{of: v}, false, v.Fault(fmt.Sprintf("%s is not a mapping with the fields %s", v.quoted(), strings.Join(names, ", ")))
	}
	f = Fields{of: v, byName: make(map[string]Value, len(m.Values))}
	var unknown []error
	for _, pair := range m.Values {
		name := pair.Key.GetToken().Value
		if !slices.Contains(names, name) {
			unknown = append(unknown, at(pair.Key.GetToken(), fmt.Sprintf("%s: unknown field; there are %s", f.path(name), strings.Join(names, ", "))))
			continue
		}
		f.byName[name] = Value{node: pair.Value, path: f.path(name), parent: m}
	}
	if more := len(unknown) - maxTold; more > 0 {
		unknown = append(unknown[:maxTold], v.Fault(fmt.Sprintf("and %d more unknown fields", more)))
	}
	return f, true, errors.Join(unknown...)
}

func (f Fields) path(name string) string {
	return strings.TrimPrefix(f.of.path+"."+name, ".")
}

// Get is a field that may be there.
func (f Fields) Get(name string) (Value, bool) {
	v, ok := f.byName[name]
	return v, ok
}

// Need is a field that has to be there: reading it says so if it is not.
func (f Fields) Need(name string) Value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return Value{path: f.path(name), parent: f.of.node}
}
