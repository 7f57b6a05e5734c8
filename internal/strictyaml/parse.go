// Package strictyaml reads settings from YAML, or from JSON, which is YAML too:
// mappings, sequences and plain scalars only. Each error has the line and the column,
// and names the field and its value.
package strictyaml

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
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
	return &Fault{Line: t.Position.Line, Column: t.Position.Column, Message: shortened(message)}
}

// shortened is a message without the middle of a long value.
func shortened(message string) string {
	const head, tail = 300, 200
	if len(message) <= head+tail {
		return message
	}
	return strings.ToValidUTF8(message[:head], "") + "…" + strings.ToValidUTF8(message[len(message)-tail:], "")
}

// lineEnds: the lexer would count some twice.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Parse reads one document. The error is a Fault. How large a text may be is the
// caller's to say.
func Parse(text string) (Value, error) {
	text = lineEnds.Replace(strings.TrimPrefix(text, "\ufeff"))
	if fault := checkText(text); fault != nil {
		return Value{}, fault
	}
	tokens := slices.DeleteFunc(lexer.Tokenize(text), func(t *token.Token) bool { return t.Type == token.CommentType })
	if fault := (&checker{tokens: tokens}).check(); fault != nil {
		return Value{}, fault
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return Value{}, syntaxFault(err)
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return Value{node: doc.Body}, nil
		}
	}
	return Value{}, &Fault{Line: 1, Column: 1, Message: "the text is empty"}
}

// syntaxFault is an error of the parser, without the excerpt that it prints.
func syntaxFault(err error) *Fault {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		return at(syntax.Token, syntax.Message)
	}
	return &Fault{Line: 1, Column: 1, Message: err.Error()}
}
