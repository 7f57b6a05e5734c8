package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestReportText(t *testing.T) {
	text := logOf("192.0.2.7", 1, 2, 3) + logOf("192.0.2.10", 4, 5, 6) + logOf("192.0.2.9", 7) + logOf("192.0.2.8", 1, 2)
	got := must(t, text, "-limit", "1", "-granularity", "6s")
	const want = `sliding-window, 1 per 1m for each ip, granularity 6s

requests             9
admitted             4
refused              5  55.6%
malformed            0
keys                 4
limited keys         3

 refused  requests  most limited
       2         3  192.0.2.10
       2         3  192.0.2.7
       1         2  192.0.2.8
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestReportAll(t *testing.T) {
	text := logOf("192.0.2.1", 4, 8, 11, 14, 16, 19, 20, 22, 24, 3, 25) + logOf("192.0.2.2", 25)
	got := must(t, text, "-strategy", "all", "-limit", "2", "-window", "10s", "-granularity", "5s")
	const want = `2 per 10s for each ip, granularity 5s
12 requests, 2 keys, 0 malformed lines

strategy admitted refused limited keys most limited
hash 5 7 58.3% 1 192.0.2.1, 7 of 11 refused
list 6 6 50.0% 1 192.0.2.1, 6 of 11 refused
simple 7 5 41.7% 1 192.0.2.1, 5 of 11 refused
sliding-counter 5 7 58.3% 1 192.0.2.1, 7 of 11 refused
sliding-window 7 5 41.7% 1 192.0.2.1, 5 of 11 refused
token-bucket 7 5 41.7% 1 192.0.2.1, 5 of 11 refused
`
	if got := regexp.MustCompile(` +`).ReplaceAllString(got, " "); got != want {
		t.Errorf("got\n%s", got)
	}
}

// Ten keys, and which ones does not change from run to run.
func TestReportTop(t *testing.T) {
	var text, want strings.Builder
	for _, host := range strings.Fields("l k j i h g f e d c b a") {
		text.WriteString(logOf(host, 1, 2))
	}
	text.WriteString(logOf("z", 1, 2, 3))
	for _, host := range strings.Fields("z a b c d e f g h i") {
		want.WriteString(host)
	}
	for range 5 {
		r := parseJSON[result](t, must(t, text.String(), "-limit", "1", "-json"))
		var got string
		for _, k := range r.Top {
			got += k.Key
		}
		if got != want.String() || r.LimitedKeys != 13 {
			t.Errorf("got %s of %d keys, want %s", got, r.LimitedKeys, &want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Millisecond:          "1ms",
		10 * time.Second:          "10s",
		time.Minute:               "1m",
		10 * time.Minute:          "10m",
		90 * time.Second:          "1m30s",
		time.Hour:                 "1h",
		100 * time.Hour:           "100h",
		time.Hour + time.Second:   "1h0m1s",
		70 * time.Minute:          "1h10m",
		10*time.Minute + 10*1e9:   "10m10s",
		20*time.Hour + 30*60*1e9:  "20h30m",
		1500 * time.Millisecond:   "1.5s",
		time.Minute + time.Second: "1m1s",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for key, want := range map[string]string{
		"192.0.2.1 /a":           "192.0.2.1 /a",
		`/\"a\"`:                 `/\"a\"`,
		"/é":                     "/é",
		"/\x1b[31m":              `"/\x1b[31m"`,
		"/\xff":                  `"/\xff"`,
		"/\u202egnp":             `"/\u202egnp"`,
		strings.Repeat("é", 100): strings.Repeat("é", 100),
		strings.Repeat("é", 101): strings.Repeat("é", 100) + "…",
	} {
		if got := printable(key); got != want {
			t.Errorf("%q: got %s, want %s", key, got, want)
		}
	}
}
