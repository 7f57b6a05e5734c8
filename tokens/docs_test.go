package tokens_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of docs/tokens.md is the code of examples, which are compiled and run, and
// every exported function of the packages is in it.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/tokens.md")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range []string{"example_test.go", "events/example_test.go", "../examples/semaphore/worker.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(doc, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, undented(code.String()), undented(string(block[1])), "a block of docs/tokens.md is in no example")
	}
	for _, pattern := range []string{"*.go", "redistokens/*.go", "events/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, name := range regexp.MustCompile(`(?m)^func (?:\(p \*Pool\) )?([A-Z]\w+)`).FindAllSubmatch(text, -1) {
				require.Contains(t, string(doc), string(name[1]), "%s of %s", name[1], file)
			}
		}
	}
}

// The permissions of docs/tokens.md are those that the tests' user has.
func TestDocumentedPermissions(t *testing.T) {
	doc, err := os.ReadFile("../docs/tokens.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(doc)), " "), permissions)
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}
