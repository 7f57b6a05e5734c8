package redistokens

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
)

const (
	// An index is kept for this much longer than what it was written for: a server
	// that stalls carries out a Bind or a Renew later than the claim before it.
	indexSlack = 24 * time.Hour

	// maxClaims bounds how many claims of reservations that are gone a Bind replaces.
	maxClaims = 8
)

// A claim says in an index whose a resource is. In Redis it is
//
//	<length>:<reservation><length>:<account><nonce>
//
// with a nonce of each Bind: who deletes the claim that he read does not delete one
// of the same reservation that was made since.
type aClaim struct {
	tokens.Account
	reservation string
	nonce       string
}

func newClaim(a tokens.Account, reservation string) aClaim {
	return aClaim{a, reservation, rand.Text()}
}

// owner is the part that names the reservation. It tells by itself where it ends.
func (c aClaim) owner() string {
	return strconv.Itoa(len(c.reservation)) + ":" + c.reservation + strconv.Itoa(len(c.Name)) + ":" + c.Name
}

func (c aClaim) String() string { return c.owner() + c.nonce }

func parseClaim(pool, text string) (aClaim, error) {
	reservation, rest, ok1 := cutText(text)
	account, nonce, ok2 := cutText(rest)
	if !ok1 || !ok2 {
		return aClaim{}, fmt.Errorf("%w: %.200q in an index is no claim of redistokens", storage.ErrMisconfigured, text)
	}
	return aClaim{tokens.Account{Pool: pool, Name: account}, reservation, nonce}, nil
}

// cutText cuts off a text that has its length before it.
func cutText(s string) (text, rest string, ok bool) {
	length, rest, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n <= 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// claim writes into the index whose a resource is, and reports whether it could.
// Another's claim is replaced if that reservation is gone, or is another
// resource's, which it will stay.
func (s *Store) claim(b *rediscall.Bound, resource string, mine aClaim, d time.Duration) (bool, error) {
	gone := ""
	for range maxClaims {
		there, err := s.writeClaim(b, resource, mine, len(mine.owner()), gone, d)
		if err != nil || there == mine {
			return err == nil, err
		}
		found, _, err := s.at(b, look, there.Account, there.reservation, resource)
		if err != nil || found == held || found == bound {
			return false, err
		}
		gone = there.String()
	}
	return false, nil
}

// writeClaim replaces a claim that is the same in the first bytes, or that is gone,
// and returns the claim that is there then.
func (s *Store) writeClaim(b *rediscall.Bound, resource string, mine aClaim, same int, gone string, d time.Duration) (aClaim, error) {
	there, err := s.index(b, claim, mine.Pool, resource, mine.String(), same, gone, (d + indexSlack).Milliseconds())
	if err != nil {
		return aClaim{}, err
	}
	return parseClaim(mine.Pool, there)
}

// whose is the claim in an index, and whether there is one.
func (s *Store) whose(b *rediscall.Bound, pool, resource string) (aClaim, bool, error) {
	there, err := s.index(b, whose, pool, resource)
	if err != nil || there == "" {
		return aClaim{}, false, unchanged(err)
	}
	c, err := parseClaim(pool, there)
	return c, err == nil, err
}

// unclaim deletes a claim that is no token's. If that fails it does no harm.
func (s *Store) unclaim(b *rediscall.Bound, resource string, c aClaim) {
	_, _ = s.run(b, unclaim, s.indexKeys(c.Pool, resource), c.String())
}

// index runs a script that answers with a claim.
func (s *Store) index(b *rediscall.Bound, sc script, pool, resource string, args ...any) (string, error) {
	raw, err := s.run(b, sc, s.indexKeys(pool, resource), args...)
	if err != nil {
		return "", err
	}
	r := reply{values: raw}
	return r.text(), r.check()
}
