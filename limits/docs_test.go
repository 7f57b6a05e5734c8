package limits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/docstest"
	"github.com/granule-limits/ratelimit/limits"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../docs/limits.md", "example_test.go")
	docstest.Complete(t, "../docs/limits.md", docstest.Methods, []string{"String", "Sync", "Resources"}, "*.go", "redistable/*.go")
	for _, format := range []string{"yaml", "json"} {
		for _, block := range docstest.Blocks(t, "../docs/limits.md", format) {
			_, err := limits.Parse([]byte(block))
			require.NoError(t, err, block)
		}
	}
}
