package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unique"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit/storage"
)

func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := storage.State(rapid.SliceOf(rapid.Int64()).Draw(t, "words"))
		b := encode(words)
		got, err := decode(b)
		require.NoError(t, err)
		require.Len(t, got, len(words))
		for i := range words {
			require.Equal(t, words[i], got[i])
		}
		if len(words) > 0 {
			cut, err := decode(b[:len(b)-1])
			require.True(t, err != nil || len(cut) < len(words), "what is cut off is not taken for whole")
		}
	})
}

// Different counters have different keys, and no key is longer than DynamoDB
// takes.
func TestKeys(t *testing.T) {
	s, err := New(new(noClient), "t", WithNamespace(strings.Repeat("n", maxNamespace)))
	require.NoError(t, err)
	awkward := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "A", "{", "}", "}:", "}:simple", "%7D", "%", ":", "a b", "a+b", "\x00", "\xff", "é", "}:shared:simple:1:0"}),
		rapid.StringN(1, -1, 200),
	)
	key := rapid.Custom(func(t *rapid.T) storage.Key {
		return storage.Key{Prefix: awkward.Draw(t, "prefix"), Counter: unique.Make(storage.Counter{
			Strategy: rapid.SampledFrom([]string{"simple", "list", "shared"}).Draw(t, "strategy"), Shared: rapid.Bool().Draw(t, "shared"),
			Window: rapid.Int64Range(1, storage.MaxSpan).Draw(t, "window"), Granularity: rapid.Int64Range(0, 12).Draw(t, "granularity"),
		})}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		if rapid.Bool().Draw(t, "same counter") {
			b.Counter = a.Counter
		}
		require.Equal(t, a == b, s.keyOf(&a) == s.keyOf(&b), "%q %q", a, b)
		require.LessOrEqual(t, len(s.keyOf(&a)), 2048)
		require.Regexp(t, "^[!-~]+$", s.keyOf(&a), "only what every encoding leaves as it is")
	})
}

type noClient struct{ Client }

// A version tells of a write until it has forgotten it, and then does not say
// that there was none.
func TestVersions(t *testing.T) {
	var ids []writeID
	versions := []version{nil}
	for i := range 30 {
		ids = append(ids, newWriteID())
		versions = append(versions, versions[i].next(ids[i]))
	}
	for i, now := range versions {
		require.LessOrEqual(t, len(now), maxVersion)
		for j, id := range ids {
			require.Equal(t, j < i && i-j <= 8, now.has(id[:]), "write %d in version %d", j, i)
		}
		for j, was := range versions[:i] {
			written := i - j // since
			require.Equal(t, written < 8 || i < 8, now.reaches(was), "from version %d to %d", j, i)
		}
	}
	require.True(t, version(nil).reaches(versions[9]), "of what is no more nothing is charged")
	require.False(t, versions[9].reaches(nil))
}

func TestTransactionOutcomes(t *testing.T) {
	for _, c := range []struct {
		codes []string
		want  outcome
	}{
		{[]string{"None", "ConditionalCheckFailed"}, stale},
		{[]string{"TransactionConflict", "ConditionalCheckFailed", "ThrottlingError"}, stale},
		{[]string{"TransactionConflict", "None"}, busy},
		{[]string{"None", "ProvisionedThroughputExceeded"}, throttled},
		{[]string{"ThrottlingError"}, throttled},
		{[]string{"ValidationError", "None"}, refused},
		{[]string{"ItemCollectionSizeLimitExceeded"}, refused},
		{nil, refused},
	} {
		var reasons []types.CancellationReason
		for _, code := range c.codes {
			reasons = append(reasons, types.CancellationReason{Code: aws.String(code)})
		}
		f := failureOf(&smithy.OperationError{Err: &types.TransactionCanceledException{CancellationReasons: reasons}})
		require.Equal(t, c.want, f.outcome, "%v", c.codes)
	}
}

// An answer of 5xx may have been written all the same, whatever its code.
func TestServerErrors(t *testing.T) {
	answered := func(status int, err error) error {
		return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}
	}
	other := &smithy.GenericAPIError{Code: "Other"}
	require.Equal(t, unknown, failureOf(answered(503, other)).outcome)
	require.Equal(t, unknown, failureOf(answered(500, &types.InternalServerError{})).outcome)
	require.Equal(t, unknown, failureOf(errors.New("broken pipe")).outcome)
	require.Equal(t, refused, failureOf(answered(400, other)).outcome)
	require.Equal(t, refused, failureOf(answered(400, &types.ResourceNotFoundException{})).outcome)
}

// What failed before it was sent did nothing. But only the SDK tells, and not of
// what it got no answer to.
func TestNeverSent(t *testing.T) {
	operation := func(service string, err error) error {
		return &smithy.OperationError{ServiceID: service, OperationName: "Do", Err: err}
	}
	sent := func(status int, err error) error {
		return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}}
	}
	other := errors.New("other")
	for _, c := range []struct {
		want outcome
		err  error
	}{
		{unsent, operation("DynamoDB", fmt.Errorf("no credentials: %w", other))},
		{unsent, operation("DynamoDB", fmt.Errorf("no credentials: %w", operation("STS", sent(500, &smithy.GenericAPIError{Code: "Throttling"}))))},
		{unsent, operation("DynamoDB", fmt.Errorf("no credentials: %w", operation("ec2imds", sent(0, &smithy.CanceledError{Err: context.DeadlineExceeded}))))},
		{unknown, operation("DynamoDB", sent(0, &smithyhttp.RequestSendError{Err: other}))},
		{unknown, operation("DynamoDB", sent(0, &smithy.CanceledError{Err: context.Canceled}))},
		{unknown, operation("DynamoDB", sent(0, operation("STS", sent(500, other))))},
		{unknown, operation("DynamoDB", sent(200, &smithy.DeserializationError{Err: other}))},
		{unknown, operation("dax", other)},
		{unknown, other},
	} {
		require.Equal(t, c.want, failureOf(c.err).outcome, "%v", c.err)
	}
}
