package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"

	"github.com/granule-limits/ratelimit/storage"
)

// Key is the Redis key of a counter:
//
//	<namespace>:{<prefix>}:<strategy>:<window>:<granularity>
//
// with times in µs, and :shared before the strategy for a quota with a
// PrefixOverride. The prefix is the hash tag, so all counters of a prefix are in
// one cluster slot. In it, all but letters, digits and -_.:@/ is written as %XX:
// nothing can end the tag early, and no two prefixes are written alike.
func (s *Store) Key(k storage.Key) string {
	b := make([]byte, 0, len(s.namespace)+3*len(k.Prefix)+64)
	return string(s.appendKey(b, &k))
}

func (s *Store) appendKey(b []byte, k *storage.Key) []byte {
	b = append(b, s.namespace...)
	b = append(b, ":{"...)
	if s.digest {
		sum := sha256.Sum256([]byte(k.Prefix))
		b = base64.RawURLEncoding.AppendEncode(b, sum[:])
	} else {
		b = appendEscaped(b, k.Prefix)
	}
	b = append(b, "}:"...)
	c := k.Counter.Value()
	if c.Shared {
		b = append(b, "shared:"...)
	}
	b = append(b, c.Strategy...)
	b = append(b, ':')
	b = strconv.AppendInt(b, c.Window, 10)
	b = append(b, ':')
	return strconv.AppendInt(b, c.Granularity, 10)
}

// keys are the keys of all cells of a call, in order.
func (s *Store) keys(c *storage.Call) []string {
	keys := make([]string, 0, c.Cells())
	b := make([]byte, 0, 256)
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			b = s.appendKey(b[:0], &c.Requests[i].Cells[j].Key)
			keys = append(keys, string(b))
		}
	}
	return keys
}

// plain are the bytes that stand for themselves.
var plain = func() (plain [256]bool) {
	for _, c := range "-_.:@/" {
		plain[c] = true
	}
	for c := '0'; c <= '9'; c++ {
		plain[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		plain[c], plain[c-'a'+'A'] = true, true
	}
	return plain
}()

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; plain[c] {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
