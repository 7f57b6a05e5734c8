// Package strictyaml reads settings from YAML, or from JSON, which is YAML too:
// mappings, sequences and plain scalars only. Each error has the line and the column,
// and names the field and its value.
package strictyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// The parser would take minutes, or all of the stack, for a text that is a million
	// deep, so such a text never reaches it.
	maxDepth = 32
	// The same goes for a mapping of many thousand keys.
	maxFields = 64
)

// A Fault is what is wrong, and where.
type Fault struct {
	Line, Column int // from 1
	Message      string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

func at(t *token.Token, message string) *Fault {
	return &Fault{Line: t.Position.Line, Column: t.Position.Column, Message: message}
}

// Parse reads one document. The error is a Fault. How large a text may be is the
// caller's to say.
func Parse(text string) (Value, error) {
	tokens := lexer.Tokenize(strings.TrimPrefix(text, "\ufeff"))
	if fault := checkTokens(tokens); fault != nil {
		return Value{}, fault
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return Value{}, syntaxFault(err)
	}
	var docs []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		return Value{}, &Fault{Line: 1, Column: 1, Message: "the text is empty"}
	case 1:
		return Value{node: docs[0]}, nil
	}
	return Value{}, Value{node: docs[1]}.Fault("a second document begins: write one")
}

// syntaxFault is an error of the parser, without the excerpt that it prints.
func syntaxFault(err error) *Fault {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		return at(syntax.Token, syntax.Message)
	}
	return &Fault{Line: 1, Column: 1, Message: err.Error()}
}

// unwanted are the parts of YAML that settings do not need, and that let a text mean
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
func checkTokens(tokens token.Tokens) *Fault {
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
