package tokens_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/docstest"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../docs/tokens.md", "example_test.go", "events/example_test.go", "../examples/semaphore/worker.go")
	docstest.Complete(t, "../docs/tokens.md", docstest.Functions, nil, "*.go", "redistokens/*.go", "events/*.go")
	docstest.Complete(t, "../docs/tokens.md", docstest.Methods, nil, "pool.go")
}

// The permissions of docs/tokens.md are those that the tests' user has.
func TestDocumentedPermissions(t *testing.T) {
	doc, err := os.ReadFile("../docs/tokens.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(doc)), " "), permissions)
}
