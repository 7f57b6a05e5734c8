package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

var screenshot = flag.Bool("screenshot", false, "write docs/httpserver.png")

// The page, run by a browser: it fires by itself, and what it has drawn is what
// the server did.
func TestPage(t *testing.T) {
	const limit, count = 5, 12
	for _, name := range ratelimit.Strategies() {
		t.Run(name, func(t *testing.T) {
			url := serve(t, memory.New(), ratelimit.PerDay(limit))
			// Virtual time goes on only while the network is idle: its 20 seconds are more
			// than enough, however slow the machine is, and take none.
			dom := browse(t, "--virtual-time-budget=20000", "--dump-dom", fmt.Sprintf("%s/?strategy=%s&count=%d&gap=5&fire", url, name, count))
			for _, want := range []string{
				fmt.Sprintf(`data-done="%d"`, count),
				fmt.Sprintf(`<output id="yes" class="yes">%d</output>`, limit),
				fmt.Sprintf(`<output id="no" class="no">%d</output>`, count-limit),
				fmt.Sprintf(`<code>"%s";q=%d;w=86400</code>`, name, limit),
				fmt.Sprintf(`<code>"%s";r=0;t=`, name),
				"<code>429</code>",
				"refused, try again in ",
			} {
				if !strings.Contains(dom, want) {
					t.Errorf("no %s", want)
				}
			}
			for class, want := range map[string]int{"yes": limit, "no": count - limit} {
				if got := strings.Count(dom, fmt.Sprintf(`<circle class="%s"`, class)); got != want {
					t.Errorf("%d dots %s, want %d", got, class, want)
				}
			}
			if !regexp.MustCompile(`id="left" d="M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){11}"`).MatchString(dom) {
				t.Error("no line of what was left")
			}
			if t.Failed() {
				t.Log(dom)
			}
		})
	}
}

// TestScreenshot keeps a picture of the page, when asked:
//
//	go test ./examples/httpserver -run TestScreenshot -screenshot
func TestScreenshot(t *testing.T) {
	if !*screenshot {
		t.Skip("no -screenshot: none is taken")
	}
	limited, err := newHandler(memory.New(), ratelimit.Per(10, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	// The picture is taken when all is loaded. That is here when a picture of nothing
	// comes, while the requests are made at the pace at which they are limited.
	mux := http.NewServeMux()
	mux.Handle("/", limited)
	mux.HandleFunc("/frame", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<body style="margin:0;overflow:hidden"><iframe style="border:0;width:100%;height:620px" src="/?count=1000&gap=250&fire"></iframe><img src="/late">`)
	})
	mux.HandleFunc("/late", func(http.ResponseWriter, *http.Request) { time.Sleep(22 * time.Second) })
	server := httptest.NewServer(mux)
	defer server.Close()
	file, err := filepath.Abs("../../docs/httpserver.png")
	if err != nil {
		t.Fatal(err)
	}
	browse(t, "--timeout=30000", "--screenshot="+file, "--window-size=860,620", server.URL+"/frame")
	if picture, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Errorf("no picture: %v", err)
	}
}

// browse runs a headless Chromium until the page has nothing more to do, and
// returns what it printed. Without one the test is skipped or, with
// RATELIMIT_REQUIRE_CHROMIUM=1, fails.
func browse(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_CHROMIUM") == "1" {
			t.Fatal("no chromium on the PATH, and RATELIMIT_REQUIRE_CHROMIUM=1")
		}
		t.Skip("no chromium on the PATH: the page is not tested in a browser")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// No sandbox: tests may run as root, and the page is ours.
	cmd := exec.CommandContext(ctx, path, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir=" + t.TempDir()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, &stderr)
	}
	return stdout.String()
}
