package dynamostore

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/granule-limits/ratelimit/storage"
)

// The attributes of an item.
const (
	attrKey     = "key"     // S, the partition key
	attrState   = "state"   // B, a format and the words of the state
	attrVersion = "version" // B, the newest writes
	attrExpires = "expires" // N, seconds since 1970: the table's TTL attribute
)

const (
	format  = 1 // the first byte of a state
	maxItem = 400 << 10

	// DynamoDB's clock deletes what this process's clock says has expired: they may
	// be this far apart. It is also the good while for which the counters of calls
	// that bring their own time are kept longer.
	slack = time.Hour
)

type attributes = map[string]types.AttributeValue

// An item is a counter, as it is in the table and as it is to be.
type item struct {
	key     string
	version version // nil if it is not in the table
	state   []byte  // as in the table
	expires int64   // s since 1970

	words storage.State
}

// keyOf is the key of a counter, in the form that it has in Redis, too. No two
// counters have one: a namespace has no braces, and in the prefix they are
// escaped, and whatever is not text in UTF-8, as the key of an item must be.
func (s *Store) keyOf(k *storage.Key) string {
	b := make([]byte, 0, 128)
	b = append(b, s.namespace...)
	b = append(b, ":{"...)
	b = append(b, url.PathEscape(k.Prefix)...)
	b = append(b, "}:"...)
	c := k.Counter.Value()
	if c.Shared {
		b = append(b, "shared:"...)
	}
	b = append(b, c.Strategy...)
	b = append(b, ':')
	b = strconv.AppendInt(b, c.Window, 10)
	b = append(b, ':')
	return string(strconv.AppendInt(b, c.Granularity, 10))
}

func keyAttributes(key string) attributes {
	return attributes{attrKey: &types.AttributeValueMemberS{Value: key}}
}

// take sets what is in the table: no attributes are no item.
func (it *item) take(a attributes) error {
	it.version, it.state, it.expires, it.words = nil, nil, 0, nil
	if len(a) == 0 {
		return nil
	}
	state, _ := a[attrState].(*types.AttributeValueMemberB)
	v, _ := a[attrVersion].(*types.AttributeValueMemberB)
	expires, _ := a[attrExpires].(*types.AttributeValueMemberN)
	if state == nil || v == nil || expires == nil || len(v.Value) == 0 {
		return fmt.Errorf("the item %q has no %s, %s or %s of ours: another program wrote it", it.key, attrState, attrVersion, attrExpires)
	}
	it.state, it.version = state.Value, v.Value
	if _, err := decode(it.state); err != nil {
		return fmt.Errorf("the item %q: %w", it.key, err)
	}
	if n, err := strconv.ParseInt(expires.Value, 10, 64); err == nil {
		it.expires = n // what is none of ours expires anew
	}
	return nil
}

// reset puts the words back to what is in the table, for a step to change.
func (it *item) reset() { it.words, _ = decode(it.state) }

// changed is whether the words are no longer what is in the table.
func (it *item) changed() bool {
	if it.state == nil {
		return len(it.words) > 0
	}
	return !bytes.Equal(it.state, encode(it.words))
}

// keep has the item outlive a moment, in µs since 1970; nothing makes it go
// earlier.
func (it *item) keep(until int64) {
	const second = 1_000_000
	it.expires = max(it.expires, (until+slack.Microseconds()+second-1)/second)
}

// attributes are the item as it is to be, left by the write with the given id.
func (it *item) attributes(id writeID) (attributes, error) {
	state, v, expires := encode(it.words), it.version.next(id), strconv.FormatInt(it.expires, 10)
	size := len(attrKey) + len(it.key) + len(attrState) + len(state) + len(attrVersion) + len(v) + len(attrExpires) + len(expires)
	if size > maxItem {
		return nil, fmt.Errorf("the item %q would have %d bytes, and DynamoDB takes %d: a strategy that keeps less than the list, or a lower limit, fits", it.key, size, maxItem)
	}
	return attributes{
		attrKey:     &types.AttributeValueMemberS{Value: it.key},
		attrState:   &types.AttributeValueMemberB{Value: state},
		attrVersion: &types.AttributeValueMemberB{Value: v},
		attrExpires: &types.AttributeValueMemberN{Value: expires},
	}, nil
}

// condition is that the item is in the table as it was loaded.
func (it *item) condition() (expression *string, names map[string]string, values attributes) {
	if it.version == nil {
		return aws.String("attribute_not_exists(#key)"), map[string]string{"#key": attrKey}, nil
	}
	return aws.String("#version = :version"), map[string]string{"#version": attrVersion},
		attributes{":version": &types.AttributeValueMemberB{Value: it.version}}
}

// A writeID names one write for ever: no two have the same.
type writeID [8]byte

func newWriteID() (id writeID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// token is the id as DynamoDB takes it with a transaction.
func (id writeID) token() *string { return aws.String(hex.EncodeToString(id[:])) }

// A version is the ids of the writes that left an item, the newest first: the
// newest few, so that whose answer was lost can find whether his is among them.
type version []byte

const (
	idSize     = len(writeID{})
	maxVersion = 8 * idSize
)

func (v version) next(id writeID) version {
	return slices.Concat(id[:], v[:min(len(v), maxVersion-idSize)])
}

func (v version) has(id []byte) bool {
	for ; len(v) >= idSize; v = v[idSize:] {
		if bytes.Equal(v[:idSize], id) {
			return true
		}
	}
	return false
}

// reaches is whether the version still tells of all writes since another: since
// that one itself is in it, or else since the item was made.
func (v version) reaches(since version) bool {
	return len(v) < maxVersion || len(since) >= idSize && v.has(since[:idSize])
}

// encode is the words as varints, behind the format: half the size of words of 8
// bytes, and capacity is paid for by size.
func encode(words storage.State) []byte {
	b := make([]byte, 0, 1+5*len(words))
	b = append(b, format)
	for _, w := range words {
		b = binary.AppendVarint(b, w)
	}
	return b
}

func decode(b []byte) (storage.State, error) {
	if b == nil {
		return nil, nil
	}
	if len(b) == 0 || b[0] != format {
		return nil, errors.New("its state is in a format that this version does not know")
	}
	b = b[1:]
	words := make(storage.State, 0, len(b)/2)
	for len(b) > 0 {
		w, n := binary.Varint(b)
		if n <= 0 {
			return nil, errors.New("its state is cut off")
		}
		words, b = append(words, w), b[n:]
	}
	return words, nil
}
