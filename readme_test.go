package ratelimit_test

import (
	"testing"

	"github.com/granule-limits/ratelimit/internal/docstest"
)

// The code of the README is the code of the examples, which are compiled and run.
func TestREADME(t *testing.T) {
	docstest.Compiled(t, "README.md", "example_test.go")
}
