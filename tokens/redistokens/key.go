package redistokens

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/granule-limits/ratelimit/tokens"
)

// Keys are
//
//	<namespace>:{<pool>:<account>}:deadlines
//	<namespace>:{<pool>:<account>}:resources
//	<namespace>:{<pool>:<resource>}:index
//
// The hash tag has the two keys of an account in one cluster slot. In it, all but
// letters, digits and -_.@/ is written as %XX, so that nothing can end the tag early
// and no two names are written alike.
func (s *Store) accountKeys(a tokens.Account) []string {
	tag := s.tag(a.Pool, a.Name)
	return []string{tag + ":deadlines", tag + ":resources"}
}

func (s *Store) indexKeys(pool, resource string) []string {
	return []string{s.tag(pool, resource) + ":index"}
}

func (s *Store) tag(pool, name string) string {
	return s.namespace + ":{" + escaped(short(pool)) + ":" + escaped(short(name)) + "}"
}

const (
	maxName  = 200 // bytes
	digested = "sha256:"
)

// short bounds what a name can cost: a long one is replaced by its digest, and so
// is one that could be taken for a digest.
func short(name string) string {
	if len(name) <= maxName && !strings.HasPrefix(name, digested) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return digested + hex.EncodeToString(sum[:])
}

func escaped(s string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// plain are the bytes that stand for themselves.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.@/", c) >= 0
}
