package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/granule-limits/ratelimit/storage"
)

// An outcome is what became of a request that failed.
type outcome int

const (
	// unsent: it was not executed.
	unsent outcome = iota
	// stale: it was not executed, for what it was to change is no longer as it was
	// loaded.
	stale
	// busy: it was not executed, for a transaction, or another Region, has one of
	// its items.
	busy
	// throttled: it was not executed, for too many are.
	throttled
	// unknown: it may have been executed, or may be yet.
	unknown
	// untold: it may have been executed, and asking again will not tell.
	untold
	// refused: it was not executed, and sending it again will not help.
	refused
)

// A failure is why a round did not end a call.
type failure struct {
	outcome outcome
	err     error
	current attributes // the item that made a write stale, if the answer has it
}

var throttles = retry.IsErrorThrottles(retry.DefaultThrottles)

func failureOf(err error) *failure {
	f := &failure{outcome: unknown, err: err}
	var (
		condition *types.ConditionalCheckFailedException
		canceled  *types.TransactionCanceledException
		ours      *types.TransactionInProgressException
		conflict  *types.TransactionConflictException
		elsewhere *types.ReplicatedWriteConflictException
		answer    smithy.APIError
		dial      *net.OpError
	)
	switch {
	case neverSent(err):
		f.outcome = unsent
	case errors.As(err, &condition):
		f.outcome, f.current = stale, condition.Item
	case errors.As(err, &canceled):
		f.outcome = outcomeOf(canceled.CancellationReasons)
	case errors.As(err, &ours):
		// The SDK has it among the throttles. It says that this very transaction is
		// under way already: it was sent before, and may take effect.
	case errors.As(err, &conflict), errors.As(err, &elsewhere):
		f.outcome = busy
	case throttles.IsErrorThrottle(err) == aws.TrueTernary:
		f.outcome = throttled
	case errors.As(err, &answer):
		if !isServerError(err) {
			f.outcome = refused
		}
	case errors.As(err, &dial) && dial.Op == "dial":
		f.outcome = unsent
	}
	return f
}

// neverSent is whether the SDK failed before it sent anything, for want of
// credentials or a Region. What it has sent carries a response, be it empty; that of
// a service which it asked for credentials is in an operation within ours.
func neverSent(err error) bool {
	var sdk, inner *smithy.OperationError
	var response, its *awshttp.ResponseError
	if !errors.As(err, &sdk) || sdk.ServiceID != dynamodb.ServiceID {
		return false
	}
	return !errors.As(sdk.Err, &response) || errors.As(sdk.Err, &inner) && errors.As(inner.Err, &its) && its == response
}

// isServerError is whether DynamoDB itself failed: it may have written all the
// same.
func isServerError(err error) bool {
	var answer smithy.APIError
	var http interface{ HTTPStatusCode() int }
	return errors.As(err, &answer) && answer.ErrorFault() == smithy.FaultServer ||
		errors.As(err, &http) && http.HTTPStatusCode() >= 500
}

// outcomeOf tells why a transaction was canceled: each action has a reason of its
// own, or none.
func outcomeOf(reasons []types.CancellationReason) outcome {
	of := map[string]outcome{
		"ConditionalCheckFailed":        stale,
		"TransactionConflict":           busy,
		"ProvisionedThroughputExceeded": throttled,
		"ThrottlingError":               throttled,
		"RequestLimitExceeded":          throttled,
	}
	found := map[outcome]bool{}
	for _, r := range reasons {
		if o, ok := of[aws.ToString(r.Code)]; ok {
			found[o] = true
		}
	}
	for _, o := range []outcome{stale, busy, throttled} {
		if found[o] {
			return o
		}
	}
	return refused // too large an item, a permission that is missing
}

// error is what a caller gets. With lost, a write of his may have taken effect.
func (s *Store) error(ctx context.Context, f *failure, attempts int, lost bool) error {
	err := f.err
	switch {
	case f.outcome == stale, f.outcome == busy:
		err = fmt.Errorf("dynamostore: the counters are in demand, and others were faster in each of %d attempts: %w", attempts, err)
	case f.outcome == throttled && lost: // which is no ErrThrottled: something may be charged
		err = fmt.Errorf("%v, in attempt %d: %w", ErrThrottled, attempts, err)
	case f.outcome == throttled:
		err = fmt.Errorf("%w, in attempt %d: %w", ErrThrottled, attempts, err)
	}
	switch why := s.ended(ctx); {
	case why != nil && err == ctx.Err():
		err = why
	case why != nil:
		err = fmt.Errorf("%w: %w", why, err)
	}
	switch {
	case lost:
		return fmt.Errorf("%w: %w", storage.ErrIndeterminate, err)
	case f.outcome == refused:
		return fmt.Errorf("%w: %w", storage.ErrMisconfigured, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// ended is why a context ended, if it did. A cause that is not our own timeout is
// told, but is not what the error is: it can be any error, also one of ours, of
// another call.
func (s *Store) ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == s.timedOut || cause == err {
		return cause
	}
	return fmt.Errorf("%w: %v", err, cause)
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = 100 * time.Millisecond
)

// retry takes rounds until one ends the call, or no further one may.
func (s *Store) retry(ctx context.Context, round func(ctx context.Context) *failure, lost *bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, s.timedOut)
	defer cancel()
	for n := 1; ; n++ {
		f := round(ctx)
		if f == nil {
			return nil
		}
		if f.outcome == refused || f.outcome == untold || n == s.attempts || sleep(ctx, pause(n)) != nil {
			return s.error(ctx, f, n, *lost)
		}
	}
}

// pause is random, so that those who met once do not meet again.
func pause(attempt int) time.Duration {
	return rand.N(min(firstPause<<min(attempt-1, 10), longestPause))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
