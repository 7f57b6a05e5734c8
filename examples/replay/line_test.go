package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseLine(t *testing.T) {
	noon := time.Date(2015, time.May, 17, 12, 0, 0, 0, time.UTC)
	const stamp = `[17/May/2015:12:00:00 +0000]`
	for _, tt := range []struct {
		name, line string
		want       entry
	}{
		{"common", `192.0.2.1 - - ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon}},
		{"combined", `192.0.2.1 - - ` + stamp + ` "GET /a HTTP/1.1" 200 5 "http://x/" "Mozilla/5.0 [en]"`, entry{"192.0.2.1", "/a", noon}},
		{"more than combined", `192.0.2.1 - - ` + stamp + ` "GET /a HTTP/1.1" 200 5 "-" "-" 0.003 [x]`, entry{"192.0.2.1", "/a", noon}},
		{"nothing after the request", `192.0.2.1 - - ` + stamp + ` "GET /a HTTP/1.1"`, entry{"192.0.2.1", "/a", noon}},
		{"IPv6", `2001:db8::1 - - ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"2001:db8::1", "/a", noon}},
		{"IPv6 in brackets", `[2001:db8::1] - - ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"[2001:db8::1]", "/a", noon}},
		{"host name", `crawler.example.com - - ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"crawler.example.com", "/a", noon}},
		{"user", `192.0.2.1 - frank ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon}},
		{"user with spaces and quotes", `192.0.2.1 - Frank "the" Tank ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon}},
		{"empty user", `192.0.2.1 -  ` + stamp + ` "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon}},
		{"zone east", `192.0.2.1 - - [17/May/2015:17:30:00 +0530] "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon}},
		{"zone west", `192.0.2.1 - - [16/May/2015:23:59:59 -1200] "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon.Add(-time.Second)}},
		{"parts of a second", `192.0.2.1 - - [17/May/2015:12:00:00.25 +0000] "GET /a HTTP/1.1" 200 5`, entry{"192.0.2.1", "/a", noon.Add(time.Second / 4)}},
		{"first instant", `h - - [01/Jan/1970:00:00:00 +0000] "GET /a"`, entry{"h", "/a", time.Unix(0, 0)}},
		{"1970 by its zone", `h - - [31/Dec/1969:23:00:00 -0100] "GET /a"`, entry{"h", "/a", time.Unix(0, 0)}},
		{"leap day", `h - - [29/Feb/2016:00:00:00 +0000] "GET /a"`, entry{"h", "/a", time.Date(2016, 2, 29, 0, 0, 0, 0, time.UTC)}},

		{"query string", `h - - ` + stamp + ` "GET /a?b=/c?d HTTP/1.1" 200 5`, entry{"h", "/a", noon}},
		{"only a query string", `h - - ` + stamp + ` "GET ?b HTTP/1.1" 200 5`, entry{"h", "-", noon}},
		{"no version", `h - - ` + stamp + ` "GET /a" 200 5`, entry{"h", "/a", noon}},
		{"no version but a query string", `h - - ` + stamp + ` "GET /a?b HTTP" 200 5`, entry{"h", "/a", noon}},
		{"space in the target", `h - - ` + stamp + ` "GET /a b HTTP/1.1" 400 5`, entry{"h", "/a b", noon}},
		{"version in the target", `h - - ` + stamp + ` "GET /a HTTP/1.1 b HTTP/1.1" 400 5`, entry{"h", "/a HTTP/1.1 b", noon}},
		{"absolute target", `h - - ` + stamp + ` "GET http://x/a?b HTTP/1.1" 200 5`, entry{"h", "http://x/a", noon}},
		{"star", `h - - ` + stamp + ` "OPTIONS * HTTP/1.0" 200 5`, entry{"h", "*", noon}},
		{"escaped quote", `h - - ` + stamp + ` "GET /\"a\" HTTP/1.1" 200 5 "-" "x"`, entry{"h", `/\"a\"`, noon}},
		{"escaped backslash at the end", `h - - ` + stamp + ` "GET /a\\" 200 5 "-" "x"`, entry{"h", `/a\\`, noon}},
		{"a target like a line", `h - - ` + stamp + ` "GET /[01/Jan/2000:00:00:00] HTTP/1.1" 200 5`, entry{"h", "/[01/Jan/2000:00:00:00]", noon}},
		{"no request", `h - - ` + stamp + ` "-" 408 -`, entry{"h", "-", noon}},
		{"empty request", `h - - ` + stamp + ` "" 400 0`, entry{"h", "-", noon}},
		{"method alone", `h - - ` + stamp + ` "GET" 400 0`, entry{"h", "-", noon}},
		{"TLS to a plain port", `h - - ` + stamp + ` "\x16\x03\x01" 400 0`, entry{"h", "-", noon}},
		{"bytes that are no text", "h - - " + stamp + " \"GET /\xff\x00 HTTP/1.1\" 400 0", entry{"h", "/\xff\x00", noon}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLine(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			if got.host != tt.want.host || got.path != tt.want.path || !got.at.Equal(tt.want.at) {
				t.Errorf("got %q %q %v, want %q %q %v", got.host, got.path, got.at, tt.want.host, tt.want.path, tt.want.at)
			}
		})
	}
}

func TestParseLineMalformed(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       error
	}{
		{"empty", ``, errNoHost},
		{"one word", `192.0.2.1`, errNoHost},
		{"begins with a space", ` - - [17/May/2015:12:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errNoHost},
		{"no time", `h - - "GET /a HTTP/1.1" 200 5`, errNoTime},
		{"time without an end", `h - - [17/May/2015:12:00:00 +0000 "GET /a HTTP/1.1" 200 5`, errNoTime},
		{"time without a beginning", `h - - 17/May/2015:12:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errNoTime},
		{"empty time", `h - - [] "GET /a HTTP/1.1" 200 5`, errTime},
		{"time of another kind", `h - - [2015-05-17T12:00:00Z] "GET /a HTTP/1.1" 200 5`, errTime},
		{"no zone", `h - - [17/May/2015:12:00:00] "GET /a HTTP/1.1" 200 5`, errTime},
		{"no such day", `h - - [31/Feb/2015:12:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errTime},
		{"no such hour", `h - - [17/May/2015:25:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errTime},
		{"bracket in the user", `h - a[b [17/May/2015:12:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errTime},
		{"before 1970", `h - - [31/Dec/1969:23:59:59 +0000] "GET /a HTTP/1.1" 200 5`, errTimeRange},
		{"before 1970 by its zone", `h - - [01/Jan/1970:00:00:00 +0100] "GET /a HTTP/1.1" 200 5`, errTimeRange},
		{"after 2112", `h - - [01/Jan/2113:00:00:00 +0000] "GET /a HTTP/1.1" 200 5`, errTimeRange},
		{"far after 2112", `h - - [31/Dec/9999:23:59:59 +0000] "GET /a HTTP/1.1" 200 5`, errTimeRange},
		{"cut off after the time", `h - - [17/May/2015:12:00:00 +0000]`, errNoRequest},
		{"cut off in the request", `h - - [17/May/2015:12:00:00 +0000] "GET /a`, errNoRequest},
		{"cut off after a backslash", `h - - [17/May/2015:12:00:00 +0000] "GET /a\`, errNoRequest},
		{"the last quote is escaped", `h - - [17/May/2015:12:00:00 +0000] "GET /a\"`, errNoRequest},
		{"no quotes", `h - - [17/May/2015:12:00:00 +0000] GET /a HTTP/1.1 200 5`, errNoRequest},
		{"too long", `h - - [17/May/2015:12:00:00 +0000] "GET /` + strings.Repeat("a", maxLine) + `"`, errTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if e, err := parseLine(tt.line); !errors.Is(err, tt.want) {
				t.Errorf("got %v and error %v, want error %v", e, err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{
		``,
		`192.0.2.1 - - [17/May/2015:12:00:00 +0000] "GET /a?b HTTP/1.1" 200 5 "http://x/" "Mozilla/5.0"`,
		`2001:db8::1 - a user [17/May/2015:12:00:00 -0730] "-" 408 -`,
		`h - - [31/Dec/1969:23:59:59 +0000] "GET /\"a\" b" 200 5`,
		`h [] "\`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseLine(line)
		if err != nil {
			if e != (entry{}) {
				t.Errorf("%v, and still %v", err, e)
			}
			return
		}
		switch {
		case e.host == "" || strings.Contains(e.host, " ") || !strings.HasPrefix(line, e.host+" "):
			t.Errorf("host %q", e.host)
		case e.path == "" || strings.Contains(e.path, "?"):
			t.Errorf("path %q", e.path)
		case e.at.Unix() < 0 || e.at.UTC().Year() > 2112:
			t.Errorf("time %v", e.at)
		}
	})
}
