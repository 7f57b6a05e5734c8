package httplimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of docs/http.md is the code of examples, which are compiled and run.
func TestDocs(t *testing.T) {
	files, err := filepath.Glob("../examples/*/main.go")
	require.NoError(t, err)
	examples := ""
	for _, name := range append(files, "example_test.go") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		examples += undented(string(text)) + "\n"
	}
	doc, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(doc, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		if !strings.Contains(examples, undented(string(block[1]))) {
			t.Errorf("a block of docs/http.md is in no example:\n%s", block[1])
		}
	}
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}

// Every option and key function is in the docs.
func TestDocsAreComplete(t *testing.T) {
	doc, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	for _, file := range []string{"options.go", "key.go", "address.go", "headers.go", "transport.go", "pause.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`(?m)^(?:func|type) ([A-Z]\w+)`).FindAllSubmatch(text, -1) {
			require.Contains(t, string(doc), string(name[1]), "%s of %s", name[1], file)
		}
	}
}
