package main

import (
	"strings"
	"testing"
	"time"

	"github.com/granule-limits/ratelimit"
)

func TestParseFlags(t *testing.T) {
	c, err := parseFlags(strings.Fields("-strategy hash -limit 3 -window 10s -granularity 2s -burst 4 -key path -storage redis -redis [::1]:6379 -json some.log"))
	if err != nil {
		t.Fatal(err)
	}
	want := ratelimit.Quota{Limit: 3, Window: 10 * time.Second, Granularity: 2 * time.Second, Burst: 4}
	if c.quota != want || c.key != "path" || c.storage != "redis" || c.redis != "[::1]:6379" || !c.json || c.file != "some.log" {
		t.Errorf("got %+v", c)
	}
	if len(c.strategies) != 1 || c.strategies[0].name != "hash" {
		t.Errorf("strategies %v", c.strategies)
	}
}

func TestParseFlagsDefaults(t *testing.T) {
	for _, args := range []string{"-limit 0", "-limit 0 -", "-limit 0 -- -"} {
		c, err := parseFlags(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if c.quota != (ratelimit.Quota{Window: time.Minute}) || c.key != "ip" || c.storage != "memory" || c.json || c.file != "-" {
			t.Errorf("%s: got %+v", args, c)
		}
		if len(c.strategies) != 1 || c.strategies[0].name != "sliding-window" {
			t.Errorf("%s: strategies %v", args, c.strategies)
		}
	}
}

// What is wrong is said in one line, with the flag and its value, and nothing is
// read.
func TestBadFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "-limit is missing: how many requests a window"},
		{"-limit -1", "-limit -1 is negative"},
		{"-limit ten", `invalid value "ten" for flag -limit: parse error`},
		{"-limit 1 -strategy leaky", `-strategy "leaky" is not one of ` + strings.Join(ratelimit.Strategies(), ", ") + ", all"},
		{"-limit 1 -key user", `-key "user" is not one of ip, path, ip+path`},
		{"-limit 1 -window 10", `invalid value "10" for flag -window: parse error`},
		{"-limit 1 -window 0s", "ratelimit: invalid quota: Window 0s is under 1ms"},
		{"-limit 1 -window 10s -granularity 3s", "ratelimit: invalid quota: Granularity 3s does not divide Window 10s into whole µs"},
		{"-limit 1 -burst -2", "ratelimit: invalid quota: Burst -2 is negative"},
		{"-limit 1 -storage disk", `-storage "disk" is not one of memory, redis`},
		{"-limit 1 -storage redis", "-storage redis needs -redis HOST:PORT"},
		{"-limit 1 -storage redis -redis localhost", `-redis "localhost" is not HOST:PORT`},
		{"-limit 1 -redis localhost:6379", `-redis "localhost:6379" needs -storage redis`},
		{"-limits 1", "flag provided but not defined: -limits"},
		{"-limit 1 a.log b.log", `"b.log" after the file "a.log": there is one file, and flags stand before it`},
		{"a.log -limit 1", `"-limit" after the file "a.log": there is one file, and flags stand before it`},
	} {
		stdout, stderr, status := replayOf(t, "not read", strings.Fields(tt.args)...)
		if status != 2 || stderr != "replay: "+tt.want+"\n" || stdout != "" {
			t.Errorf("%q: status %d, %q and %q, want %q", tt.args, status, stderr, stdout, tt.want)
		}
	}
}

// A quota can be good for all strategies but one.
func TestBadQuotaOfStrategy(t *testing.T) {
	args := []string{"-limit", "1000000000000", "-window", "1ms", "-strategy"}
	if _, _, status := replayOf(t, "", append(args, "simple")...); status != 0 {
		t.Errorf("simple: status %d", status)
	}
	for _, strategy := range []string{"token-bucket", "all"} {
		_, stderr, status := replayOf(t, "", append(args, strategy)...)
		if status != 2 || !strings.HasPrefix(stderr, "replay: -strategy token-bucket: ratelimit: invalid quota: Burst 1000000000000 is too large") {
			t.Errorf("%s: status %d, %q", strategy, status, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	stdout, stderr, status := replayOf(t, "", "-h")
	if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "usage: replay -limit N [flags] [FILE]\n") {
		t.Errorf("status %d, %q, %q", status, stderr, stdout)
	}
	for _, name := range []string{"burst", "granularity", "json", "key", "limit", "redis", "storage", "strategy", "window"} {
		if !strings.Contains(stdout, "\n  -"+name) {
			t.Errorf("nothing of -%s in\n%s", name, stdout)
		}
	}
}
