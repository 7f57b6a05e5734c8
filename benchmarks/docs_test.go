package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Calls of many goroutines go to Redis together.
func Example_autoPipeline() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	pipeline, err := client.AutoPipeline()
	check(err)
	store, err := redisstore.New(pipeline)
	check(err)
	limiter := ratelimit.NewSlidingWindow(store)
	_ = limiter
}

// The page has a place for each group, its commands have flags that exist, its code is
// compiled above, and its pictures are there.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/performance.md")
	require.NoError(t, err)
	page := string(text)
	for _, g := range groups {
		_, err := replaceBetween(page, g.name, "")
		require.NoError(t, err)
	}
	commands := regexp.MustCompile(`(?m)^go run \.(.*?)(?:#.*)?$`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, commands)
	for _, command := range commands {
		_, err := parse(strings.Fields(command[1]), io.Discard)
		require.NoError(t, err, command[0])
	}
	code, err := os.ReadFile("docs_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, undented(string(code)), undented(block[1]))
	}
	for _, picture := range regexp.MustCompile(`!\[[^]]*\]\((.*?)\)`).FindAllStringSubmatch(page, -1) {
		require.FileExists(t, filepath.Join("../docs", picture[1]))
	}
}

// undented is text without the indentation of its lines.
func undented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(strings.TrimSpace(text), "")
}
