package httplimit_test

import (
	"testing"

	"github.com/granule-limits/ratelimit/internal/docstest"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../docs/http.md", "example_test.go", "../examples/*/main.go")
	docstest.Complete(t, "../docs/http.md", docstest.Types, nil, "options.go", "key.go", "address.go", "headers.go", "transport.go", "pause.go")
}
