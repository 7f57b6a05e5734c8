package rules_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// The code of docs/rules.md is the code of examples, which are compiled, its files can be
// read, and every exported function and option is in it.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	for _, block := range blocks(t, doc, "go") {
		require.Contains(t, undented(string(examples)), undented(block), "a block of docs/rules.md is in no example")
	}
	for _, block := range blocks(t, doc, "yaml") {
		_, err := rules.Open(folder(t, "doc.yaml", block), memory.New())
		require.NoError(t, err, block)
	}
	exported := regexp.MustCompile(`(?m)^func (?:\(\w+ \*?[A-Z]\w*\) )?([A-Z]\w+)`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range exported.FindAllSubmatch(text, -1) {
			require.Contains(t, string(doc), string(name[1]), "%s of %s", name[1], file)
		}
	}
}

func blocks(t *testing.T, doc []byte, language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(doc, -1) {
		blocks = append(blocks, string(m[1]))
	}
	require.NotEmpty(t, blocks, language)
	return blocks
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}
