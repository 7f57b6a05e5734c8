package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/docstest"
	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../docs/rules.md", "example_test.go")
	docstest.Complete(t, "../docs/rules.md", docstest.Methods, nil, "*.go")
	for _, block := range docstest.Blocks(t, "../docs/rules.md", "yaml") {
		_, err := rules.Open(folder(t, "doc.yaml", block), memory.New())
		require.NoError(t, err, block)
	}
}
