package strictyaml

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

const (
	// The parser would take minutes, or all of the stack, for a text that is a million
	// deep, so such a text never reaches it.
	maxDepth = 32
	// The same goes for a mapping of many thousand keys.
	maxFields = 64
	// Each node of the text has the names of all that it is in.
	maxFieldName = 64
	// Each value that is left empty has the parser move all tokens behind it.
	maxMoves = 1 << 28
	// Each tab in quotes has the lexer look at the rest of the line, each empty line at
	// the block of text that it ends, each < at those behind it.
	maxRun = 100
)

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

var manyLess = strings.Repeat("<", maxRun+1)

// checkText refuses what the lexer would misread or not bear.
func checkText(text string) *Fault {
	number, empty := 0, 0
	for line := range strings.Lines(text) {
		number++
		empty++
		if strings.TrimSpace(line) != "" {
			empty = 0
		}
		switch {
		case !utf8.ValidString(line):
			before := strings.IndexRune(line, utf8.RuneError)
			return &Fault{Line: number, Column: utf8.RuneCountInString(line[:before]) + 1, Message: "the text is not UTF-8"}
		case strings.Count(line, "\t") > maxRun:
			return &Fault{Line: number, Column: 1, Message: fmt.Sprintf("more than %d tabs in a line", maxRun)}
		case strings.Contains(line, manyLess):
			return &Fault{Line: number, Column: 1, Message: fmt.Sprintf("more than %d < in a row", maxRun)}
		case empty > maxRun:
			return &Fault{Line: number, Column: 1, Message: fmt.Sprintf("more than %d empty lines in a row", maxRun)}
		}
	}
	return checkEscapes(text)
}

const hex = "[0-9a-fA-F]"

// escapes finds the escapes of double-quoted text that have hex digits, those without
// them, and pairs of backslashes, which begin none.
var escapes = regexp.MustCompile(`\\(?:\\|u[dD][89abAB]` + hex + `{2}\\u[dD][c-fC-F]` + hex + `{2}|x` + hex + `{2}|u` + hex + `{4}|U` + hex + `{8}|[xuU])`)

// checkEscapes refuses escapes that are none: the lexer takes any letters for hex
// digits. Only the lexer knows what is in double quotes, so it is given the text with
// something in their place that it refuses there.
func checkEscapes(text string) *Fault {
	marked := escapes.ReplaceAllStringFunc(text, func(escape string) string {
		if isEscape(escape) {
			return escape
		}
		return `\?` + escape[2:]
	})
	if marked == text {
		return nil
	}
	for _, t := range lexer.Tokenize(marked) {
		if t.Type == token.InvalidType && strings.Contains(t.Error, "'?'") {
			fault := at(t, `the escape in the quoted text is no character: write \x and 2, \u and 4 or \U and 8 hex digits, and \\ for a backslash`)
			fault.Column-- // the lexer's is behind the backslash
			return fault
		}
	}
	return nil
}

func isEscape(escape string) bool {
	switch {
	case escape[1] == '\\':
		return true
	case len(escape) == len(`\ud83d\ude00`):
		return true
	}
	r, err := strconv.ParseUint(escape[2:], 16, 32)
	return err == nil && utf8.ValidRune(rune(r))
}

// A checker looks at the tokens before the parser does.
type checker struct {
	tokens token.Tokens // without comments
	nests  []nest
	empty  int // values
}

// A nest is a mapping or a list that is open.
type nest struct {
	kind   token.Type // of its opening bracket; without one that of its colons or dashes
	column int        // of its keys or dashes, without brackets
	fields int
}

// check refuses what is unwanted, and what the parser would misread or not bear.
func (c *checker) check() *Fault {
	for i, t := range c.tokens {
		if what, ok := unwanted[t.Type]; ok {
			return at(t, fmt.Sprintf("%s (%s) is not allowed", what, t.Value))
		}
		if i > 0 && (t.Type == token.DocumentHeaderType || c.tokens[i-1].Type == token.DocumentEndType) {
			return at(t, "a second document begins: write one")
		}
		if fault := c.scalar(i, t); fault != nil {
			return fault
		}
		if fault := c.structure(i, t); fault != nil {
			return fault
		}
		switch {
		case len(c.nests) > maxDepth:
			return at(t, fmt.Sprintf("nested more than %d deep", maxDepth))
		case c.top().fields > maxFields:
			return at(t, fmt.Sprintf("more than %d fields", maxFields))
		case c.empty*len(c.tokens) > maxMoves:
			return at(t, fmt.Sprintf("%d values before this one are left empty, which are too many", c.empty-1))
		}
	}
	return nil
}

func isScalar(t *token.Token) bool {
	return t.Indicator == token.NotIndicator || t.Indicator == token.QuotedScalarIndicator
}

// scalar refuses what stands without quotes and is hardly meant as it would be read:
// the lexer drops tabs, and takes "a":: "b" for the text : "b", {a: b c: d} for b c: d.
func (c *checker) scalar(i int, t *token.Token) *Fault {
	if t.Indicator != token.NotIndicator || t.Type == token.InvalidType {
		return nil
	}
	written := strings.TrimSpace(t.Origin)
	switch {
	case strings.Contains(written, "\t"):
		return at(t, fmt.Sprintf("%q has a tab in it: use a space, or put it in quotes", written))
	case strings.HasPrefix(t.Origin, ":") && c.is(i-1, token.MappingValueType), strings.HasPrefix(t.Value, `:"`), strings.HasSuffix(t.Value, ":"), strings.Contains(t.Value, ": "):
		return at(t, fmt.Sprintf("%s has a colon that could be a field's: put it in quotes if it is meant", t.Value))
	}
	return nil
}

func (c *checker) structure(i int, t *token.Token) *Fault {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		c.nests = append(c.nests, nest{kind: t.Type})
	case token.MappingEndType:
		return c.leave(i, token.MappingStartType)
	case token.SequenceEndType:
		return c.leave(i, token.SequenceStartType)
	case token.CollectEntryType:
		return c.flowField(i)
	case token.SequenceEntryType:
		if c.inBrackets() {
			return at(t, "a dash for a list within brackets: write [ ]")
		}
		c.enter(t.Type, t.Position.Column)
		c.countEmpty(i, t.Position.Column+1)
	case token.MappingValueType:
		return c.colon(i)
	}
	return nil
}

func (c *checker) top() nest {
	if len(c.nests) == 0 {
		return nest{}
	}
	return c.nests[len(c.nests)-1]
}

func (c *checker) inBrackets() bool {
	kind := c.top().kind
	return kind == token.MappingStartType || kind == token.SequenceStartType
}

// is tells whether a token, which need not be there, is of one of the types.
func (c *checker) is(i int, types ...token.Type) bool {
	return i >= 0 && i < len(c.tokens) && slices.Contains(types, c.tokens[i].Type)
}

// leave is a closing bracket.
func (c *checker) leave(i int, kind token.Type) *Fault {
	if c.top().kind != kind {
		return at(c.tokens[i], fmt.Sprintf("%s closes nothing that is open here", c.tokens[i].Value))
	}
	fault := c.flowField(i)
	c.nests = c.nests[:len(c.nests)-1]
	return fault
}

// flowField refuses a field in braces that has no colon, before its end.
func (c *checker) flowField(end int) *Fault {
	if c.top().kind == token.MappingStartType && isScalar(c.tokens[end-1]) && c.is(end-2, token.MappingStartType, token.CollectEntryType) {
		return at(c.tokens[end-1], fmt.Sprintf("%s: there is no colon, and no value", c.tokens[end-1].Value))
	}
	return nil
}

// enter is a key or a dash without brackets. It ends what stands further to the right,
// and a key the list whose dashes stand below it.
func (c *checker) enter(kind token.Type, column int) {
	for {
		top := c.top()
		if top.column > column || top.column == column && top.kind == token.SequenceEntryType && kind == token.MappingValueType {
			c.nests = c.nests[:len(c.nests)-1]
			continue
		}
		if top.column != column || top.kind != kind {
			c.nests = append(c.nests, nest{kind: kind, column: column})
		}
		return
	}
}

func (c *checker) colon(i int) *Fault {
	if i == 0 {
		return nil // the parser says so
	}
	key := c.tokens[i-1]
	switch {
	case len(key.Value) > maxFieldName:
		return at(key, fmt.Sprintf("%s: a field's name has %d bytes, at most %d", key.Value, len(key.Value), maxFieldName))
	case !c.inBrackets():
		c.enter(token.MappingValueType, key.Position.Column)
	case c.top().kind == token.SequenceStartType || !c.is(i-2, token.MappingStartType, token.CollectEntryType):
		return at(key, fmt.Sprintf("%s: a field is not expected here: write fields in { }, with commas between them", key.Value))
	}
	c.nests[len(c.nests)-1].fields++
	c.countEmpty(i, key.Position.Column)
	return nil
}

// countEmpty counts a value that is left empty behind a colon or a dash: what comes
// next stands left of the column, or is a key in it.
func (c *checker) countEmpty(i, column int) {
	if i+1 == len(c.tokens) {
		return
	}
	next := c.tokens[i+1]
	switch {
	case c.inBrackets():
		if c.is(i+1, token.CollectEntryType, token.MappingEndType) {
			c.empty++
		}
	case next.Position.Column < column, next.Position.Column == column && c.is(i, token.MappingValueType) && next.Type != token.SequenceEntryType:
		c.empty++
	}
}
