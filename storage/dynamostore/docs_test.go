package dynamostore_test

import (
	"testing"

	"github.com/granule-limits/ratelimit/internal/docstest"
)

func TestDocs(t *testing.T) {
	docstest.Compiled(t, "../../docs/dynamodb.md", "example_test.go")
	docstest.Complete(t, "../../docs/dynamodb.md", docstest.Variables, nil, "*.go")
}
