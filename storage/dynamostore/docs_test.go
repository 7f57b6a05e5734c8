package dynamostore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of docs/dynamodb.md is the code of examples, which are compiled, and
// every exported function is in it.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/dynamodb.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(doc, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, undented(string(examples)), undented(string(block[1])), "a block of docs/dynamodb.md is in no example")
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`(?m)^(?:func|var) ([A-Z]\w+)`).FindAllSubmatch(text, -1) {
			require.Contains(t, string(doc), string(name[1]), "%s of %s", name[1], file)
		}
	}
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}
