package rules_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// exampleFolder is a folder for an example, with one file.
func exampleFolder(text string) string {
	dir, err := os.MkdirTemp("", "rules")
	check(err)
	check(os.WriteFile(filepath.Join(dir, "api.yaml"), []byte(text), 0o600))
	return dir
}

func Example() {
	dir := exampleFolder(`
rules:
  - path: /
    descriptors:
      - {key: address, unit: minute, requests_per_unit: 60}
  - path: POST /api/{rest...}
    descriptors:
      - {key: account, unit: minute, requests_per_unit: 1}
      - {key: account, value: acme, unit: minute, requests_per_unit: 5000}
`)
	defer os.RemoveAll(dir)
	ctx := context.Background()

	engine, err := rules.Open(dir, memory.New())
	check(err)
	request := rules.Request{
		Method: "POST",
		Path:   "/api/users",
		Values: map[string]string{"address": "192.0.2.1", "account": "small"},
	}
	for range 2 {
		d, err := engine.Decide(ctx, request)
		check(err)
		fmt.Println(d.Allowed)
		for _, refused := range d.Refused {
			fmt.Println("refused by", refused.Rule)
		}
	}
	// Output:
	// true
	// false
	// refused by POST /api/{rest...} account
}

func ExampleEngine_Middleware() {
	engine, err := rules.Open("testdata/none", memory.New())
	if err != nil {
		fmt.Println("no such folder")
		return
	}
	values := func(r *http.Request) map[string]string {
		return map[string]string{"account": r.Header.Get("X-Account")}
	}
	report := func(r *http.Request, d rules.Decision, err error) {
		for _, h := range d.Shadow {
			log.Println("would be refused by", h.Rule, "at", h.Place)
		}
	}
	limit := engine.Middleware(values, rules.WithReport(report), rules.WithFailOpen())
	check(http.ListenAndServe("localhost:8080", limit(http.DefaultServeMux)))
	// Output: no such folder
}

func ExampleEngine_Watch() {
	dir := exampleFolder("rules: []")
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()

	engine, err := rules.Open(dir, memory.New())
	check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = engine.Watch(ctx, time.Second, func(err error) { log.Println("rules read again:", err) })
	}()
	<-done
	// Output:
}

func ExampleEngine_Decide_envoy() {
	dir := exampleFolder(`
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - {key: to_number, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: to_number, rate_limit: {unit: day, requests_per_unit: 100}}
`)
	defer os.RemoveAll(dir)
	ctx := context.Background()
	engine, err := rules.Open(dir, memory.New())
	check(err)

	request := rules.Request{Domain: "messaging", Descriptors: []rules.Descriptor{
		{{Key: "message_type", Value: "marketing"}, {Key: "to_number", Value: "2061234567"}},
		{{Key: "to_number", Value: "2061234567"}},
	}}
	for range 2 {
		d, err := engine.Decide(ctx, request)
		check(err)
		fmt.Println(d.Allowed, d.Matched)
	}
	// Output:
	// true 2
	// false 2
}
