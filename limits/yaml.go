package limits

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// Limits are nested four deep. The parser would take minutes, or all of the stack,
	// for a text that is a million deep, so such a text never reaches it.
	maxDepth = 16
	// The same goes for a mapping of many thousand keys. A quota has six.
	maxFields = 64
)

// parseYAML reads one document, of mappings, sequences and scalars only.
func parseYAML(text string) (value, error) {
	tokens := lexer.Tokenize(strings.TrimPrefix(text, "\ufeff"))
	if err := checkTokens(tokens); err != nil {
		return value{}, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return value{}, syntaxError(err)
	}
	var docs []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		return value{}, errors.New("the text is empty; for no limits write: limits: []")
	case 1:
		return value{node: docs[0]}, nil
	}
	return value{}, value{node: docs[1]}.fault("a second document begins: write one")
}

// syntaxError is an error of the parser, without the excerpt that it prints.
func syntaxError(err error) error {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		return at(syntax.Token, syntax.Message)
	}
	return err
}

func at(t *token.Token, message string) error {
	return fmt.Errorf("line %d, column %d: %s", t.Position.Line, t.Position.Column, message)
}

// unwanted are the parts of YAML that limits do not need, and that let a text mean
// other things than it seems to.
var unwanted = map[token.Type]string{
	token.AnchorType:     "an anchor",
	token.AliasType:      "an alias",
	token.TagType:        "a tag",
	token.MergeKeyType:   "a merge key",
	token.MappingKeyType: "a complex key",
	token.LiteralType:    "a block of text",
	token.FoldedType:     "a block of text",
	token.DirectiveType:  "a directive",
}

// checkTokens refuses what is unwanted, and what the parser could not bear.
func checkTokens(tokens token.Tokens) error {
	depth, entries, fields := 0, 0, 0
	for i, t := range tokens {
		if what, ok := unwanted[t.Type]; ok {
			return at(t, fmt.Sprintf("%s (%s) is not allowed", what, t.Value))
		}
		if i == 0 || t.Position.Line != tokens[i-1].Position.Line {
			entries = 0 // "- - -" nests within a line
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth, fields = depth+1, 0
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType:
			entries, fields = entries+1, 0
		case token.MappingValueType, token.CollectEntryType:
			fields++
		}
		switch {
		case depth > maxDepth || entries > maxDepth:
			return at(t, fmt.Sprintf("nested more than %d deep", maxDepth))
		case fields > maxFields:
			return at(t, fmt.Sprintf("more than %d fields", maxFields))
		}
	}
	return nil
}

// A value is a node of the text and where it belongs: "limits[3].limit".
type value struct {
	node   ast.Node // nil: a field that is missing
	path   string
	parent ast.Node
}

// fault is an error at the place of the value, or of what it is missing in.
func (v value) fault(message string) error {
	node := v.node
	if node == nil {
		node = v.parent
	}
	if v.path != "" {
		message = v.path + ": " + message
	}
	return at(start(node), message)
}

func (v value) line() int { return start(v.node).Position.Line }

// start is the first token of a node: that of a mapping in block style is its first
// key's, not its first colon.
func start(node ast.Node) *token.Token {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return node.GetToken()
}

// quoted is a scalar as it is written, or what else there is.
func (v value) quoted() string {
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

// text reads a string. What YAML takes for a number or the like was hardly meant
// as one.
func (v value) text() (string, error) {
	if v.node == nil {
		return "", v.fault("is missing")
	}
	s, ok := v.node.(*ast.StringNode)
	if !ok {
		return "", v.fault(fmt.Sprintf("%s is not text: put it in quotes", v.quoted()))
	}
	return s.Value, nil
}

func (v value) list() ([]value, error) {
	if v.node == nil {
		return nil, v.fault("is missing")
	}
	seq, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return nil, v.fault(fmt.Sprintf("%s is not a list", v.quoted()))
	}
	list := make([]value, len(seq.Values))
	for i, node := range seq.Values {
		list[i] = value{node: node, path: fmt.Sprintf("%s[%d]", v.path, i)}
	}
	return list, nil
}

// fields are the values of a mapping.
type fields struct {
	of     value
	byName map[string]value
}

// fields reads a mapping that has no other keys than these. That a key is there
// once the parser has seen to.
func (v value) fields(names ...string) (fields, error) {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return fields{}, v.fault(fmt.Sprintf("%s is not a mapping with the fields %s", v.quoted(), strings.Join(names, ", ")))
	}
	f := fields{of: v, byName: make(map[string]value, len(m.Values))}
	for _, pair := range m.Values {
		name := pair.Key.GetToken().Value
		if !slices.Contains(names, name) {
			return fields{}, at(pair.Key.GetToken(), fmt.Sprintf("%s: unknown field; there are %s", f.path(name), strings.Join(names, ", ")))
		}
		f.byName[name] = value{node: pair.Value, path: f.path(name)}
	}
	return f, nil
}

func (f fields) path(name string) string {
	return strings.TrimPrefix(f.of.path+"."+name, ".")
}

func (f fields) get(name string) (value, bool) {
	v, ok := f.byName[name]
	return v, ok
}

// need is a field that has to be there: reading it says so if it is not.
func (f fields) need(name string) value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return value{path: f.path(name), parent: f.of.node}
}
