package main

import (
	"errors"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// An entry is what a line of an access log tells us.
type entry struct {
	host string
	path string // the target without its query string; "-" if there is none
	at   time.Time
}

// Why a line is malformed.
var (
	errTooLong   = errors.New("longer than 1 MB")
	errNoHost    = errors.New("does not begin with a host and a space")
	errNoTime    = errors.New("no time in brackets")
	errTime      = errors.New("the time is not like 17/May/2015:10:05:03 +0000")
	errTimeRange = errors.New("the time is not from 1970 to 2112")
	errNoRequest = errors.New("no request in quotes after the time")
)

// parseLine reads a line of the common log format, or of one that only adds to
// its end, as the combined format does:
//
//	host ident user [time] "request" …
//
// It relies on as little as it can. Host and ident have no spaces, but the user,
// whom clients name as they like, may have some.
func parseLine(line string) (entry, error) {
	if len(line) > maxLine {
		return entry{}, errTooLong
	}
	host, rest, ok := strings.Cut(line, " ")
	if !ok || host == "" {
		return entry{}, errNoHost
	}
	_, rest, ok = strings.Cut(rest, "[")
	stamp, rest, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return entry{}, errNoTime
	}
	at, err := parseTime(stamp)
	if err != nil {
		return entry{}, err
	}
	request, ok := quoted(strings.TrimLeft(rest, " "))
	if !ok {
		return entry{}, errNoRequest
	}
	return entry{host: host, path: pathOf(request), at: at}, nil
}

func parseTime(stamp string) (time.Time, error) {
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", stamp)
	if err != nil {
		return time.Time{}, errTime
	}
	if µs := at.UnixMicro(); µs < 0 || µs > storage.MaxTime {
		return time.Time{}, errTimeRange // limiters would refuse it, too
	}
	return at, nil
}

// quoted is what stands between the quote that s begins with and the next one
// that no backslash escapes. Escapes are left as they are.
func quoted(s string) (string, bool) {
	if s == "" || s[0] != '"' {
		return "", false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], true
		}
	}
	return "", false
}

// pathOf is the target of a request, "GET /a?b HTTP/1.1", without its query
// string. Requests can be anything that somebody sent: no version, spaces in the
// target, or nothing of the kind.
func pathOf(request string) string {
	_, target, _ := strings.Cut(request, " ")
	if i := strings.LastIndex(target, " HTTP/"); i >= 0 {
		target = target[:i]
	}
	path, _, _ := strings.Cut(target, "?")
	if path == "" {
		return "-"
	}
	return path
}
