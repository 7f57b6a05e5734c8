package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

var noon = time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)

// ask is a request of n units for each of the prefixes.
func ask(n int64, prefixes ...string) (requests []ratelimit.RequestedQuota) {
	for _, p := range prefixes {
		requests = append(requests, ratelimit.RequestedQuota{Prefix: p, Requested: n, Quotas: []ratelimit.Quota{ratelimit.PerHour(1000)}})
	}
	return requests
}

// used is how many units were charged to the prefixes, of which all were charged
// the same.
func used(t *testing.T, limiter ratelimit.Limiter, prefixes ...string) int64 {
	t.Helper()
	_, grants, err := limiter.CheckWithinQuotas(t.Context(), ask(0, prefixes...), ratelimit.At(noon))
	require.NoError(t, err)
	for _, g := range grants {
		require.Equal(t, grants[0].Remaining, g.Remaining, "the counters were charged differently")
	}
	return 1000 - grants[0].Remaining
}

// first is a fault for the first request of an operation, others for those that
// follow, and the last for all further ones.
func first(op string, faults ...fault) func(string) fault {
	return func(got string) fault {
		if got != op {
			return fault{}
		}
		now := faults[0]
		if len(faults) > 1 {
			faults = faults[1:]
		}
		return now
	}
}

const always = -1

// classes are the errors that tell what became of a call. One does.
var classes = []error{ratelimit.ErrUnavailable, ratelimit.ErrIndeterminate, ratelimit.ErrMisconfigured}

func requireClass(t *testing.T, err, class error) {
	t.Helper()
	for _, c := range classes {
		require.Equal(t, c == class, errors.Is(err, c), "%v: %v", c, err)
	}
}

// patience is a timeout that no slow machine reaches or, where answers are waited
// for in vain, one that a test can wait for.
func patience(name string) dynamostore.Option {
	if name == noAnswer || name == late {
		return dynamostore.WithTimeout(6 * time.Second)
	}
	return dynamostore.WithTimeout(time.Minute)
}

const noAnswer, late = "no answer", "executed late"

// What goes wrong with a write is told apart, and charges once at most.
func TestFaultsOfWrites(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for op, prefixes := range map[string][]string{"PutItem": {"a"}, "TransactWriteItems": {"a", "b"}} {
		for i, c := range []struct {
			name    string
			fault   func(op string) fault
			is      error
			charged int64
		}{
			{"answer lost", first(op, fault{lose: true}, fault{}), nil, 1},
			{noAnswer, first(op, fault{hold: true}, fault{}), nil, 1},
			{late, first(op, fault{late: true}, fault{}), nil, 1},
			{"never arrived", first(op, fault{drop: true}, fault{}), nil, 1},
			{"server error", first(op, fault{code: "InternalServerError", status: 500}, fault{}), nil, 1},
			{"throttled once", first(op, fault{code: "ProvisionedThroughputExceededException"}, fault{}), nil, 1},
			{"in progress", first(op, fault{lose: true}, fault{code: "TransactionInProgressException"}, fault{}), nil, 1},
			{"in progress to the end", times(always, op, fault{code: "TransactionInProgressException"}), ratelimit.ErrIndeterminate, 0},
			{"answer lost, then in a transaction", first(op, fault{lose: true}, fault{code: "TransactionConflictException"}, fault{}), nil, 1},
			{"all answers lost", times(always, op, fault{lose: true}), ratelimit.ErrIndeterminate, 1},
			{"none arrived", times(always, op, fault{drop: true}), ratelimit.ErrIndeterminate, 0},
			{"server errors", times(always, op, fault{code: "InternalServerError", status: 500}), ratelimit.ErrIndeterminate, 0},
			{"answer lost, then throttled", first(op, fault{lose: true}, fault{code: "ThrottlingException"}), ratelimit.ErrIndeterminate, 1},
			{"answer lost, then refused", first(op, fault{lose: true}, fault{code: "AccessDeniedException"}), ratelimit.ErrIndeterminate, 1},
			{"throttled", times(always, op, fault{code: "ThrottlingException"}), dynamostore.ErrThrottled, 0},
			{"throttled", times(always, op, fault{code: "RequestLimitExceeded"}), ratelimit.ErrUnavailable, 0},
			{"conflicts", times(always, op, fault{code: "TransactionConflictException"}), ratelimit.ErrUnavailable, 0},
			{"conflicts", times(always, op, fault{code: "ReplicatedWriteConflictException"}), ratelimit.ErrUnavailable, 0},
			{"no permission", times(always, op, fault{code: "AccessDeniedException"}), ratelimit.ErrMisconfigured, 0},
			{"invalid", times(always, op, fault{code: "ValidationException"}), ratelimit.ErrMisconfigured, 0},
		} {
			t.Run(op+"/"+c.name, func(t *testing.T) {
				names := make([]string, len(prefixes))
				for j, p := range prefixes {
					names[j] = fmt.Sprintf("%s %s %d", op, p, i)
				}
				f.breaks(c.fault)
				broken := ratelimit.NewSlidingWindow(open(t, client, patience(c.name), dynamostore.WithMaxAttempts(3)))
				grants, err := broken.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
				f.busy.Wait() // for what is late
				sent := f.count(op)
				f.breaks(nil)
				if require.ErrorIs(t, err, c.is); err == nil {
					require.EqualValues(t, 1, grants[0].Granted)
					require.EqualValues(t, 999, grants[0].Remaining)
				}
				if errors.Is(err, dynamostore.ErrThrottled) {
					require.ErrorIs(t, err, ratelimit.ErrUnavailable, "as its doc says")
				}
				require.Equal(t, c.charged, used(t, limiter, names...))
				require.LessOrEqual(t, sent, 3, "more requests than attempts: the client tried again by itself")
				if errors.Is(err, ratelimit.ErrMisconfigured) {
					require.Equal(t, 1, sent, "asking again does not help")
				}
			})
		}
	}
}

// What goes wrong with a read charged nothing.
func TestFaultsOfReads(t *testing.T) {
	f, client := startFront(t)
	for op, prefixes := range map[string][]string{"GetItem": {"a"}, "TransactGetItems": {"a", "b"}} {
		for _, c := range []struct {
			name  string
			fault func(op string) fault
			is    error
			limit time.Duration
		}{
			{"answer lost", first(op, fault{lose: true}, fault{}), nil, time.Minute},
			{"answers lost", times(always, op, fault{lose: true}), ratelimit.ErrUnavailable, time.Minute},
			{"no answers", times(always, op, fault{hold: true}), ratelimit.ErrUnavailable, 600 * time.Millisecond},
			{"server errors", times(always, op, fault{code: "InternalServerError", status: 500}), ratelimit.ErrUnavailable, time.Minute},
			{"throttled", times(always, op, fault{code: "ProvisionedThroughputExceededException"}), dynamostore.ErrThrottled, time.Minute},
			{"no permission", times(always, op, fault{code: "AccessDeniedException"}), ratelimit.ErrMisconfigured, time.Minute},
		} {
			t.Run(op+"/"+c.name, func(t *testing.T) {
				f.breaks(c.fault)
				limiter := ratelimit.NewSlidingWindow(open(t, client, dynamostore.WithTimeout(c.limit), dynamostore.WithMaxAttempts(3)))
				_, _, err := limiter.CheckWithinQuotas(t.Context(), ask(1, prefixes...), ratelimit.At(noon))
				require.ErrorIs(t, err, c.is)
				f.breaks(c.fault)
				_, err = limiter.CheckAndUseQuotas(t.Context(), ask(0, prefixes...), ratelimit.At(noon))
				require.ErrorIs(t, err, c.is)
				require.Zero(t, f.count("PutItem")+f.count("TransactWriteItems"))
				f.breaks(nil)
			})
		}
	}
}

func TestFaultsOfForget(t *testing.T) {
	f, client := startFront(t)
	const op = "TransactWriteItems"
	for _, prefixes := range [][]string{{"a"}, {"a", "b"}} {
		for _, c := range []struct {
			name  string
			fault func(op string) fault
			is    error
			left  int64
		}{
			{"answer lost", first(op, fault{lose: true}, fault{}), nil, 0},
			{"never arrived", first(op, fault{drop: true}, fault{}), nil, 0},
			{"answers lost", times(always, op, fault{lose: true}), ratelimit.ErrIndeterminate, 0},
			{"none arrived", times(always, op, fault{drop: true}), ratelimit.ErrIndeterminate, 5},
			{"answer lost, then throttled", first(op, fault{lose: true}, fault{code: "ThrottlingException"}), ratelimit.ErrIndeterminate, 0},
			{"throttled", times(always, op, fault{code: "ThrottlingException"}), dynamostore.ErrThrottled, 5},
			{"no permission", times(always, op, fault{code: "AccessDeniedException"}), ratelimit.ErrMisconfigured, 5},
		} {
			t.Run(fmt.Sprint(prefixes, c.name), func(t *testing.T) {
				limiter := ratelimit.NewSlidingWindow(open(t, client, dynamostore.WithMaxAttempts(3)))
				require.NoError(t, limiter.Reset(t.Context(), ask(0, prefixes...)))
				_, err := limiter.CheckAndUseQuotas(t.Context(), ask(5, prefixes...), ratelimit.At(noon))
				require.NoError(t, err)
				f.breaks(c.fault)
				err = limiter.Reset(t.Context(), ask(0, prefixes...))
				f.breaks(nil)
				require.ErrorIs(t, err, c.is)
				if errors.Is(err, dynamostore.ErrThrottled) {
					require.ErrorIs(t, err, ratelimit.ErrUnavailable, "as its doc says")
				}
				require.Equal(t, c.left, used(t, limiter, prefixes...))
			})
		}
	}
}

// While the answer to a write is lost others write the same counter: as long as
// the item still tells, the caller learns what became of his.
func TestOvertaken(t *testing.T) {
	f, client := startFront(t)
	for _, c := range []struct {
		name   string
		fault  fault
		others int
		is     error
		used   int64
	}{
		{"charged, then 1 other", fault{lose: true}, 1, nil, 10 + 1 + 1},
		{"charged, then 7 others", fault{lose: true}, 7, nil, 10 + 1 + 7},
		{"charged, then 8 others", fault{lose: true}, 8, ratelimit.ErrIndeterminate, 10 + 1 + 8},
		{"not charged, then 1 other", fault{drop: true}, 1, nil, 10 + 1 + 1},
		{"not charged, then 7 others", fault{drop: true}, 7, nil, 10 + 1 + 7},
		{"not charged, then 8 others", fault{drop: true}, 8, ratelimit.ErrIndeterminate, 10 + 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Others do not pass the front.
			others := ratelimit.NewSlidingWindow(open(t, newClient(t, f.dynalite)))
			limiter := ratelimit.NewSlidingWindow(open(t, client))
			charge := func(n int) {
				for range n {
					_, err := others.CheckAndUseQuotas(t.Context(), ask(1, c.name), ratelimit.At(noon))
					require.NoError(t, err)
				}
			}
			charge(10) // so many that the item has forgotten its first writes
			lost := false
			f.breaks(func(op string) fault {
				switch {
				case op != "PutItem":
				case !lost:
					lost = true
					return c.fault
				default:
					charge(c.others)
					c.others = 0
				}
				return fault{}
			})
			grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, c.name), ratelimit.At(noon))
			f.breaks(nil)
			if require.ErrorIs(t, err, c.is); err == nil {
				require.EqualValues(t, 1, grants[0].Granted)
			}
			require.Equal(t, c.used, used(t, limiter, c.name))
		})
	}
}

// What was charged and then forgotten is not missed: it is charged again.
func TestForgottenMeanwhile(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for op, names := range map[string][]string{"PutItem": {"a"}, "TransactWriteItems": {"b", "c"}} {
		for _, lost := range []fault{{lose: true}, {drop: true}} {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(5, names...), ratelimit.At(noon))
			require.NoError(t, err)
			sent := 0
			f.breaks(times(1, op, lost))
			behind := ratelimit.NewSlidingWindow(open(t, &beforehand{Client: client, do: func() {
				if sent++; sent == 2 {
					require.NoError(t, limiter.Reset(t.Context(), ask(0, names...)))
					f.forget()
				}
			}}))
			grants, err := behind.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
			f.breaks(nil)
			require.NoError(t, err)
			require.EqualValues(t, 999, grants[0].Remaining)
			require.EqualValues(t, 1, used(t, limiter, names...))
		}
	}
}

// The answer to a transaction is lost, and one of its counters is forgotten: the
// others tell that it took effect.
func TestPartlyForgotten(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for _, gone := range []string{"a", "b"} {
		for _, known := range []bool{true, false} {
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(5, "a", "b"), ratelimit.At(noon))
			require.NoError(t, err)
			f.breaks(times(1, "TransactWriteItems", fault{lose: true}))
			sent := 0
			behind := ratelimit.NewSlidingWindow(open(t, &beforehand{Client: client, do: func() {
				if sent++; sent == 1 {
					return
				}
				require.NoError(t, limiter.Reset(t.Context(), ask(0, gone)))
				if !known {
					f.forget()
				}
			}}))
			grants, err := behind.CheckAndUseQuotas(t.Context(), ask(1, "a", "b"), ratelimit.At(noon))
			f.breaks(nil)
			require.NoError(t, err)
			require.EqualValues(t, 994, grants[0].Remaining)
			require.Equal(t, 2, sent)
			left := map[string]int64{"a": 6, "b": 6, gone: 0}
			require.Equal(t, left, map[string]int64{"a": used(t, limiter, "a"), "b": used(t, limiter, "b")})
			require.NoError(t, limiter.Reset(t.Context(), ask(0, "a", "b")))
		}
	}
}

// The first write of a new counter is under way for long. Meanwhile others make the
// counter, and it is forgotten: late, the write does not charge what the call has
// charged, or was refused, already.
func TestLateFirstWrite(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for _, names := range [][]string{{"a"}, {"b", "c"}} {
		for _, ended := range []bool{false, true} {
			held := &held{Client: client}
			held.then = func(n int) {
				if n == 1 {
					_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
					require.NoError(t, err)
				}
				if n == 2 && !ended {
					require.NoError(t, limiter.Reset(t.Context(), ask(0, names...)))
					f.forget()
					held.late()
				}
			}
			_, err := ratelimit.NewSlidingWindow(open(t, held)).CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
			require.NoError(t, err)
			charged := int64(1)
			if ended {
				require.NoError(t, limiter.Reset(t.Context(), ask(0, names...)))
				f.forget()
				held.late()
				charged = 0
			}
			require.Equal(t, charged, used(t, limiter, names...))
			for _, item := range items(t, client) {
				deleteItem(t, client, item)
			}
		}
	}
}

// A Reset that was sent again may arrive once more, late: what was charged since
// stays.
func TestLateReset(t *testing.T) {
	_, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for _, names := range [][]string{{"a"}, {"b", "c"}} {
		held := &held{Client: client}
		require.NoError(t, ratelimit.NewSlidingWindow(open(t, held)).Reset(t.Context(), ask(0, names...)))
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(5, names...), ratelimit.At(noon))
		require.NoError(t, err)
		held.late()
		require.EqualValues(t, 5, used(t, limiter, names...))
	}
}

// A held client keeps the first write, and says that it was lost. Before each
// further one it does what is to happen then.
type held struct {
	dynamostore.Client
	late func() // lets the first write arrive
	then func(n int)
	n    int
}

func (h *held) hold(write func() error) error {
	if h.late == nil {
		h.late = func() { _ = write() }
		return errors.New("connection reset")
	}
	if h.n++; h.then != nil {
		h.then(h.n)
	}
	return write()
}

func (h *held) PutItem(_ context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (out *dynamodb.PutItemOutput, err error) {
	err = h.hold(func() error {
		out, err = h.Client.PutItem(context.Background(), in, opts...)
		return err
	})
	return out, err
}

func (h *held) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (out *dynamodb.TransactWriteItemsOutput, err error) {
	err = h.hold(func() error {
		out, err = h.Client.TransactWriteItems(context.Background(), in, opts...)
		return err
	})
	return out, err
}

// An HTTP client or a proxy may send a request again without our knowing. What it
// then meets is the caller's own write.
func TestSentAgainBelow(t *testing.T) {
	f, direct := startFront(t)
	client := dynamodb.New(direct.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = again{o.HTTPClient}
	})
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for op, names := range map[string][]string{"PutItem": {"a"}, "TransactWriteItems": {"b", "c"}} {
		for n := range int64(2) { // a new counter, and one that is there
			f.breaks(times(1, op, fault{lose: true}))
			grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
			require.NoError(t, err)
			require.Equal(t, 2, f.count(op))
			f.breaks(nil)
			require.Equal(t, 999-n, grants[0].Remaining)
			require.Equal(t, n+1, used(t, limiter, names...))
		}
	}
}

// An again sends once more what had no answer.
type again struct{ dynamodb.HTTPClient }

func (a again) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if answer, err := a.HTTPClient.Do(r); err == nil || r.Context().Err() != nil {
			return answer, err
		}
	}
}

// Many callers, everything going wrong at random: nothing is charged that nobody
// was told of, and what was granted was charged, each unit to one caller.
func TestFaultsAtRandom(t *testing.T) {
	f, client := startFront(t)
	for _, c := range []struct {
		prefixes []string
		forget   func() // the tokens of transactions
	}{
		{[]string{"a"}, func() {}},
		{[]string{"b", "c"}, func() {}},
		{[]string{"d", "e"}, f.forget},
	} {
		prefixes := c.prefixes
		t.Run(fmt.Sprint(prefixes), func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			g := rand.New(rand.NewPCG(seed, 0))
			faults := []fault{
				{drop: true}, {lose: true}, {lose: true}, {hold: true}, {late: true},
				{code: "InternalServerError", status: 500}, {code: "ThrottlingException"}, {code: "TransactionConflictException"},
			}
			f.breaks(func(string) fault { // which is never called by two at once
				c.forget()
				if g.IntN(4) > 0 {
					return fault{}
				}
				return faults[g.IntN(len(faults))]
			})
			limiter := ratelimit.NewSlidingWindow(open(t, client, dynamostore.WithTimeout(3*time.Second), dynamostore.WithMaxAttempts(8)))
			var mu sync.Mutex
			var unclear int64
			remaining := make(map[int64]bool)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 15 {
						grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, prefixes...), ratelimit.At(noon))
						mu.Lock()
						switch {
						case err == nil:
							if remaining[grants[0].Remaining] {
								t.Errorf("two callers were granted the same unit: %d remain", grants[0].Remaining)
							}
							remaining[grants[0].Remaining] = true
						case errors.Is(err, ratelimit.ErrIndeterminate):
							unclear++
						case !errors.Is(err, ratelimit.ErrUnavailable):
							t.Errorf("an error of another kind: %v", err)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			f.busy.Wait()
			f.breaks(nil)
			charged, granted := used(t, ratelimit.NewSlidingWindow(open(t, client)), prefixes...), int64(len(remaining))
			t.Logf("granted %d, unclear %d, charged %d", granted, unclear, charged)
			require.Positive(t, granted)
			require.GreaterOrEqual(t, charged, granted)
			require.LessOrEqual(t, charged, granted+unclear)
		})
	}
}

// A server that is not there charges nothing, and says so.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	limiter := ratelimit.NewSlidingWindow(open(t, newClient(t, l.Addr().String()), dynamostore.WithMaxAttempts(2)))
	_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.ErrorIs(t, limiter.Reset(t.Context(), ask(1, "a")), ratelimit.ErrUnavailable)
}

// A client that can send nothing charges nothing, and says so.
func TestUnready(t *testing.T) {
	ready := newClient(t, "127.0.0.1:1").Options()
	for what, unready := range map[string]func(*dynamodb.Options){
		"no credentials": func(o *dynamodb.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no credentials")
			})
		},
		"Missing Region": func(o *dynamodb.Options) { o.Region, o.BaseEndpoint = "", nil },
	} {
		limiter := ratelimit.NewSlidingWindow(open(t, dynamodb.New(ready, unready), dynamostore.WithMaxAttempts(2)))
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
		requireClass(t, err, ratelimit.ErrUnavailable)
		err = limiter.Reset(t.Context(), ask(1, "a"))
		requireClass(t, err, ratelimit.ErrUnavailable)
		require.ErrorContains(t, err, what)
	}
}

// The cause of a context's end can be any error, also one of ours, of another
// call. What became of this call is told by one error alone, and by the context's.
func TestCauses(t *testing.T) {
	f, client := startFront(t)
	for _, cause := range append(classes, errors.New("gone"), fmt.Errorf("of another: %w", context.DeadlineExceeded)) {
		for op, class := range map[string]error{"GetItem": ratelimit.ErrUnavailable, "PutItem": ratelimit.ErrIndeterminate} {
			ctx, cancel := context.WithCancelCause(t.Context())
			f.breaks(func(got string) fault {
				if got == op {
					time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
				}
				return fault{hold: got == op}
			})
			_, err := ratelimit.NewSlidingWindow(open(t, client)).CheckAndUseQuotas(ctx, ask(1, "a"), ratelimit.At(noon))
			f.busy.Wait()
			f.breaks(nil)
			requireEnded(t, err, class, cause)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		pausing := &throttled{Client: client, then: func() { cancel(cause) }}
		_, err := ratelimit.NewSlidingWindow(open(t, pausing)).CheckAndUseQuotas(ctx, ask(1, "a"), ratelimit.At(noon))
		requireEnded(t, err, ratelimit.ErrUnavailable, cause)
	}
}

func requireEnded(t *testing.T, err, class, cause error) {
	t.Helper()
	requireClass(t, err, class)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, cause.Error())
}

// A throttled client reads nothing.
type throttled struct {
	dynamostore.Client
	then func()
}

func (c *throttled) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	c.then()
	return nil, &types.ThrottlingException{}
}

// A server that never answers takes no longer than the timeout, and the error
// names it.
func TestTimeout(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client, dynamostore.WithTimeout(100*time.Millisecond)))
	f.breaks(times(always, "GetItem", fault{hold: true}))
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.ErrorContains(t, err, "not done within dynamostore.WithTimeout(100ms)")
}
