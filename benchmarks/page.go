package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// save writes a report into the page, between the markers of its group, and its charts
// into their folder.
func save(o options, name string, r report) error {
	if o.plots != "" && len(r.charts) > 0 {
		if err := os.MkdirAll(o.plots, 0o755); err != nil {
			return err
		}
		for _, c := range r.charts {
			if err := os.WriteFile(filepath.Join(o.plots, c.name+".svg"), []byte(c.SVG()), 0o644); err != nil {
				return err
			}
		}
	}
	if o.docs == "" {
		return nil
	}
	page, err := os.ReadFile(o.docs)
	if err != nil {
		return err
	}
	dir, err := filepath.Rel(filepath.Dir(o.docs), o.plots)
	if err != nil {
		return err
	}
	text, err := replaceBetween(string(page), name, machine(o)+"\n\n"+r.Markdown(filepath.ToSlash(dir)))
	if err != nil {
		return fmt.Errorf("%s: %w", o.docs, err)
	}
	return os.WriteFile(o.docs, []byte(text), 0o644)
}

func markers(name string) (begin, end string) {
	return "<!-- table:" + name + " -->", "<!-- end:" + name + " -->"
}

// replaceBetween puts text between the markers of a name.
func replaceBetween(page, name, text string) (string, error) {
	begin, end := markers(name)
	before, rest, found := strings.Cut(page, begin)
	_, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		return "", fmt.Errorf("no %s … %s", begin, end)
	}
	return before + begin + "\n" + strings.TrimRight(text, "\n") + "\n" + end + after, nil
}

// machine is what the figures are of.
func machine(o options) string {
	return fmt.Sprintf("%s %s/%s, GOMAXPROCS %d; medians of %d runs of %v.%s",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), o.runs, o.time, versions())
}

// versions is the peers' versions.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	peers := map[string]string{
		"github.com/sethvargo/go-limiter":    "go-limiter",
		"github.com/ulule/limiter/v3":        "ulule/limiter",
		"github.com/throttled/throttled/v2":  "throttled",
		"github.com/go-chi/httprate":         "httprate",
		"golang.org/x/time":                  "x/time",
		"github.com/go-redis/redis_rate/v10": "redis_rate",
		"github.com/redis/rueidis":           "rueidis",
		"github.com/redis/go-redis/v9":       "go-redis",
	}
	var list []string
	for _, m := range info.Deps {
		if name, ok := peers[m.Path]; ok {
			list = append(list, name+" "+strings.TrimPrefix(m.Version, "v"))
		}
	}
	return " Beside " + strings.Join(list, ", ") + "."
}
