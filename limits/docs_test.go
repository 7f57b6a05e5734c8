package limits_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/limits"
)

// The code of docs/limits.md is the code of examples, which are compiled, its files
// can be read, and every exported function and option is in it.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/limits.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	for _, block := range blocks(t, doc, "go") {
		require.Contains(t, undented(string(examples)), undented(block), "a block of docs/limits.md is in no example")
	}
	for _, format := range []string{"yaml", "json"} {
		for _, block := range blocks(t, doc, format) {
			_, err := limits.Parse([]byte(block))
			require.NoError(t, err, block)
		}
	}
	inText := regexp.MustCompile(`(?m)^func (?:\(\w+ \*?[A-Z]\w*\) )?([A-Z]\w+)`)
	for _, pattern := range []string{"*.go", "redistable/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, name := range inText.FindAllSubmatch(text, -1) {
				if !plumbing[string(name[1])] {
					require.Contains(t, string(doc), string(name[1]), "%s of %s", name[1], file)
				}
			}
		}
	}
}

// plumbing is what users have no need to read about here.
var plumbing = map[string]bool{"String": true, "Sync": true, "Resources": true}

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
