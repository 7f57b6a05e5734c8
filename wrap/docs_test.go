package wrap_test

import (
	"testing"

	"github.com/granule-limits/ratelimit/internal/docstest"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../docs/wrap.md", "example_test.go")
	docstest.Complete(t, "../docs/wrap.md", docstest.Functions, nil, "*.go")
}
