// Package docstest holds pages to the code: what they show is compiled, and what is
// exported is in them.
package docstest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What Complete looks for.
const (
	Functions = `(?m)^func ([A-Z]\w+)`
	Methods   = `(?m)^func (?:\(\w+ \*?[A-Z]\w*\) )?([A-Z]\w+)` // functions too
	Types     = `(?m)^(?:func|type) ([A-Z]\w+)`                 // functions too
	Variables = `(?m)^(?:func|var) ([A-Z]\w+)`                  // functions too
)

// Compiled holds that each block of Go on a page is in one of the files, which are
// named by patterns: examples, which are compiled and run.
func Compiled(t *testing.T, page string, patterns ...string) {
	t.Helper()
	var code strings.Builder
	for _, file := range files(t, patterns) {
		code.WriteString(undented(read(t, file)) + "\n")
	}
	for _, block := range Blocks(t, page, "go") {
		if !strings.Contains(code.String(), undented(block)) {
			t.Errorf("a block of %s is in no example:\n%s", page, block)
		}
	}
}

// Complete holds that what files have of a kind is named on a page, but for what
// users have no need to read there.
func Complete(t *testing.T, page, kind string, except []string, patterns ...string) {
	t.Helper()
	doc, names := read(t, page), regexp.MustCompile(kind)
	for _, file := range files(t, patterns) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range names.FindAllStringSubmatch(read(t, file), -1) {
			if !strings.Contains(doc, name[1]) && !slices.Contains(except, name[1]) {
				t.Errorf("%s has no word of %s in %s", page, name[1], file)
			}
		}
	}
}

// Blocks are the blocks of a language on a page, at least one.
func Blocks(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks, "%s has no block of %s", page, language)
	return blocks
}

func files(t *testing.T, patterns []string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		all = append(all, files...)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}
