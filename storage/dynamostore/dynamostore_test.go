package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

// items are all items of the table.
func items(t *testing.T, client *dynamodb.Client) []map[string]types.AttributeValue {
	t.Helper()
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table), ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	return out.Items
}

func deleteItem(t *testing.T, client *dynamodb.Client, item map[string]types.AttributeValue) {
	t.Helper()
	_, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: map[string]types.AttributeValue{"key": item["key"]}})
	require.NoError(t, err)
}

// A call reads once and writes once, of several counters too; a check and a
// refusal write nothing.
func TestRequests(t *testing.T) {
	f, client := startFront(t)
	for name, newLimiter := range limitertest.Strategies {
		limiter := newLimiter(open(t, client))
		one := []ratelimit.RequestedQuota{{Prefix: name, Requested: 5, Quotas: []ratelimit.Quota{ratelimit.PerHour(5)}}}
		two := []ratelimit.RequestedQuota{{Prefix: name + " twice", Requested: 5, Quotas: []ratelimit.Quota{ratelimit.PerHour(5), ratelimit.PerDay(9)}}}
		for _, c := range []struct {
			what                       string
			requests                   []ratelimit.RequestedQuota
			get, put, allGet, allWrite int
		}{
			{"one counter", one, 1, 1, 0, 0},
			{"one counter, refused", one, 1, 0, 0, 0},
			{"two counters", two, 0, 0, 1, 1},
			{"two counters, refused", two, 0, 0, 1, 0},
		} {
			f.breaks(nil)
			_, err := limiter.CheckAndUseQuotas(t.Context(), c.requests)
			require.NoError(t, err)
			require.Equal(t, []int{c.get, c.put, c.allGet, c.allWrite},
				[]int{f.count("GetItem"), f.count("PutItem"), f.count("TransactGetItems"), f.count("TransactWriteItems")}, "%s: %s", name, c.what)
			_, _, err = limiter.CheckWithinQuotas(t.Context(), c.requests)
			require.NoError(t, err)
			require.Equal(t, c.put+c.allWrite, f.count("PutItem")+f.count("TransactWriteItems"), "%s: check of %s", name, c.what)
		}
	}
}

// Who comes second need not load again: the answer has the item.
func TestConflict(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	others := ratelimit.NewSlidingWindow(open(t, newClient(t, f.dynalite)))
	use := func(limiter ratelimit.Limiter) int64 {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"), ratelimit.At(noon))
		require.NoError(t, err)
		return grants[0].Remaining
	}
	use(limiter)
	n := 0
	f.breaks(func(op string) fault {
		if op == "PutItem" {
			if n++; n <= 2 {
				use(others)
			}
		}
		return fault{}
	})
	require.EqualValues(t, 1000-4, use(limiter))
	require.Equal(t, 3, f.count("PutItem"))
	require.Equal(t, 1, f.count("GetItem"))
}

// A counter that a call only looked at must not have changed either when the
// others are written.
func TestConflictOnUnchanged(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	others := ratelimit.NewSlidingWindow(open(t, newClient(t, f.dynalite)))
	quotas := []ratelimit.Quota{{Limit: 5, Window: time.Hour}}
	requests := []ratelimit.RequestedQuota{
		{Prefix: "used", Requested: 1, Quotas: quotas},
		{Prefix: "looked at", Requested: 9, Quotas: quotas, AllOrNothing: true},
		{Prefix: "new", Requested: 9, Quotas: quotas, AllOrNothing: true},
	}
	for _, name := range []string{"looked at", "new"} {
		n := 0
		f.breaks(func(op string) fault {
			if n++; op == "TransactWriteItems" && n == 2 {
				_, err := others.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: name, Requested: 1, Quotas: quotas}}, ratelimit.At(noon))
				require.NoError(t, err)
			}
			return fault{}
		})
		grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, ratelimit.At(noon))
		require.NoError(t, err)
		require.Equal(t, 2, f.count("TransactWriteItems"), "the first was made void by %q", name)
		for _, g := range grants {
			if g.Prefix == name {
				require.EqualValues(t, 4, g.Remaining, "as it is now")
			}
		}
	}
}

// Where others are always faster a call ends, and charges nothing.
func TestInDemand(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client, dynamostore.WithMaxAttempts(4)))
	others := ratelimit.NewSlidingWindow(open(t, newClient(t, f.dynalite)))
	f.breaks(func(op string) fault {
		if op == "PutItem" {
			_, err := others.CheckAndUseQuotas(t.Context(), ask(1, "a"), ratelimit.At(noon))
			require.NoError(t, err)
		}
		return fault{}
	})
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"), ratelimit.At(noon))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.ErrorContains(t, err, "others were faster in each of 4 attempts")
	require.NotErrorIs(t, err, dynamostore.ErrThrottled)
	f.breaks(nil)
	require.EqualValues(t, 4, used(t, limiter, "a"))
}

// expires is when the only item of the table expires.
func expires(t *testing.T, client *dynamodb.Client) time.Time {
	t.Helper()
	all := items(t, client)
	require.Len(t, all, 1)
	seconds, err := strconv.ParseInt(all[0]["expires"].(*types.AttributeValueMemberN).Value, 10, 64)
	require.NoError(t, err)
	return time.Unix(seconds, 0)
}

// Items expire an hour after their counters are back to full, by this clock, or
// were forgotten.
func TestExpiry(t *testing.T) {
	_, client := startFront(t)
	for name, newLimiter := range limitertest.Strategies {
		limiter := newLimiter(open(t, client))
		for _, opts := range [][]ratelimit.CallOption{nil, {ratelimit.At(noon)}} {
			requests := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 3, Quotas: []ratelimit.Quota{ratelimit.PerMinute(5)}}}
			before := time.Now()
			grants, err := limiter.CheckAndUseQuotas(t.Context(), requests, opts...)
			require.NoError(t, err)
			at, resetAfter := expires(t, client), grants[0].ResetAfter
			require.False(t, at.Before(before.Add(resetAfter+time.Hour).Truncate(time.Microsecond)), "%s: %v", name, at)
			require.False(t, at.After(time.Now().Add(resetAfter+time.Hour+time.Second)), "%s: %v", name, at)
			require.NoError(t, limiter.Reset(t.Context(), requests))
			at = expires(t, client)
			require.WithinRange(t, at, time.Now().Add(time.Hour-time.Minute), time.Now().Add(time.Hour+time.Second), "%s, forgotten", name)
			deleteItem(t, client, items(t, client)[0])
		}
	}
}

// A counter that two limits use is kept for the slower one, whichever came last.
func TestExpiryOfTwoLimits(t *testing.T) {
	_, client := startFront(t)
	limiter := ratelimit.NewTokenBucket(open(t, client))
	var latest time.Time
	for _, perHour := range []int64{1, 3_600_000} {
		_, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerHour(perHour)}}})
		require.NoError(t, err)
		at := expires(t, client)
		require.False(t, at.Before(latest), "%v is before %v", at, latest)
		latest = at
	}
	require.True(t, latest.After(time.Now().Add(time.Hour+50*time.Minute)), "%v", latest)
}

// An expiry that is no number of ours, and would keep the item for ever, is not
// kept.
func TestForeignExpiry(t *testing.T) {
	_, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for _, n := range []string{"1e30", "1.5", "-5"} {
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
		require.NoError(t, err)
		item := items(t, client)[0]
		item["expires"] = &types.AttributeValueMemberN{Value: n}
		_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: item})
		require.NoError(t, err)
		_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
		require.NoError(t, err)
		require.WithinRange(t, expires(t, client), time.Now().Add(time.Hour), time.Now().Add(3*time.Hour))
	}
}

// What another program wrote, or a later version, is not ours to repair.
func TestForeignItems(t *testing.T) {
	_, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
	require.NoError(t, err)
	good := items(t, client)[0]
	for what, a := range map[string]map[string]types.AttributeValue{
		"no state":           {"state": nil},
		"no version":         {"version": nil},
		"no expires":         {"expires": nil},
		"state is a string":  {"state": &types.AttributeValueMemberS{Value: "x"}},
		"another format":     {"state": &types.AttributeValueMemberB{Value: []byte{99}}},
		"one word":           {"state": &types.AttributeValueMemberB{Value: []byte{1, 2}}},
		"a state cut off":    {"state": &types.AttributeValueMemberB{Value: []byte{1, 0x80}}},
		"version of a bool":  {"version": &types.AttributeValueMemberBOOL{Value: true}},
		"expires is no text": {"expires": &types.AttributeValueMemberS{Value: "1"}},
	} {
		item := map[string]types.AttributeValue{}
		for name, value := range good {
			item[name] = value
		}
		for name, value := range a {
			if item[name] = value; value == nil {
				delete(item, name)
			}
		}
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: item})
		require.NoError(t, err, what)
		_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, what)
		require.ErrorContains(t, err, `the item "ratelimit:{a}:sliding-window:3600000000:`, what)
		_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a", "b"))
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, what)
	}
	require.NoError(t, limiter.Reset(t.Context(), ask(0, "a")), "which forgets it")
	_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
	require.NoError(t, err)
}

// A call has room for 100 counters, as a transaction has.
func TestTooManyCounters(t *testing.T) {
	f, client := startFront(t)
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	var names []string
	for i := range 101 {
		names = append(names, fmt.Sprint("user ", i))
	}
	f.breaks(nil)
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, names...), ratelimit.At(noon))
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.ErrorContains(t, err, "a call over 101 counters")
	require.ErrorIs(t, limiter.Reset(t.Context(), ask(1, names...)), ratelimit.ErrMisconfigured)
	require.Zero(t, f.count("TransactGetItems")+f.count("TransactWriteItems"), "nothing was sent")

	_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, append(names[:100], names[:50]...)...), ratelimit.At(noon))
	require.NoError(t, err, "the 50 are counters that the call has already")
	require.NoError(t, limiter.Reset(t.Context(), ask(1, append(names[:100], names[:50]...)...)))
	require.Zero(t, used(t, limiter, names[:100]...))
}

// A state that has outgrown an item of DynamoDB is refused before it is sent.
func TestTooLarge(t *testing.T) {
	f, client := startFront(t)
	store := open(t, client)
	words := func(n int) *storage.Script {
		return &storage.Script{Name: "large", Valid: func(storage.State, *storage.Cell) bool { return true }, Step: func(_ *storage.Call, states []*storage.State) bool {
			*states[0] = make(storage.State, n)
			return true
		}}
	}
	call := func(n int) error {
		return store.Run(t.Context(), words(n), &storage.Call{OwnClock: true, Requests: []storage.Request{{
			Cells: []storage.Cell{{Key: storage.Key{Prefix: "a", Counter: unique.Make(storage.Counter{Strategy: "large", Window: 1})}}},
		}}})
	}
	largest := 400 << 10
	for largest > 0 && errors.Is(call(largest), storage.ErrMisconfigured) {
		largest--
	}
	require.Less(t, 400<<10-largest, 200, "the rest is %d bytes", 400<<10-largest)
	require.Len(t, items(t, client), 1, "DynamoDB takes what the store sends")
	f.breaks(nil)
	err := call(largest + 1)
	require.ErrorIs(t, err, storage.ErrMisconfigured)
	require.ErrorContains(t, err, "and DynamoDB takes 409600")
	require.Zero(t, f.count("PutItem"))
}

func TestNoTable(t *testing.T) {
	_, client := startFront(t)
	store, err := dynamostore.New(client, "another")
	require.NoError(t, err)
	limiter := ratelimit.NewSlidingWindow(store)
	_, err = limiter.CheckAndUseQuotas(t.Context(), ask(1, "a"))
	require.ErrorIs(t, err, ratelimit.ErrMisconfigured)
	require.ErrorContains(t, err, "ResourceNotFoundException")
	require.ErrorIs(t, limiter.Reset(t.Context(), ask(1, "a")), ratelimit.ErrMisconfigured)
}

func TestNewRefuses(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1"})
	for says, opts := range map[string][]dynamostore.Option{
		"WithTimeout: 0s":            {dynamostore.WithTimeout(0)},
		"WithMaxAttempts: 0 is not":  {dynamostore.WithMaxAttempts(0)},
		`WithNamespace: "" is empty`: {dynamostore.WithNamespace("")},
		`WithNamespace: "a{" is`:     {dynamostore.WithNamespace("a{")},
		`"\xff" is empty`:            {dynamostore.WithNamespace("\xff")},
		"longer than 255 bytes":      {dynamostore.WithNamespace(string(make([]byte, 256)))},
	} {
		_, err := dynamostore.New(client, table, opts...)
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorContains(t, err, says)
	}
	for _, none := range []dynamostore.Client{nil, (*dynamodb.Client)(nil)} {
		_, err := dynamostore.New(none, table)
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorContains(t, err, "the client is nil")
	}
	_, err := dynamostore.New(client, "")
	require.ErrorContains(t, err, "the table has no name")
	var none *dynamostore.Store
	require.ErrorIs(t, none.Run(t.Context(), nil, nil), storage.ErrMisconfigured)
	require.ErrorIs(t, none.Forget(t.Context(), nil), storage.ErrMisconfigured)
}

// Stores with different namespaces have no counter in common.
func TestNamespaces(t *testing.T) {
	_, client := startFront(t)
	for _, namespace := range []string{"a", "b", "a:b"} {
		limiter := ratelimit.NewSimpleLimiter(open(t, client, dynamostore.WithNamespace(namespace)))
		grants, err := limiter.CheckAndUseQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(1)}}})
		require.NoError(t, err)
		require.EqualValues(t, 1, grants[0].Granted)
	}
	var keys []string
	for _, item := range items(t, client) {
		keys = append(keys, item["key"].(*types.AttributeValueMemberS).Value)
	}
	require.ElementsMatch(t, []string{"a:{a}:simple:60000000:0", "b:{a}:simple:60000000:0", "a:b:{a}:simple:60000000:0"}, keys)
}

// Two calls of one process that met others at a counter go on one after the
// other.
func TestOneAfterTheOther(t *testing.T) {
	_, direct := startFront(t)
	others := ratelimit.NewSlidingWindow(open(t, direct))
	client := &beforehand{Client: direct}
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	use := func(limiter ratelimit.Limiter) {
		if _, err := limiter.CheckAndUseQuotas(context.Background(), ask(1, "a"), ratelimit.At(noon)); err != nil {
			t.Error(err)
		}
	}
	var mu sync.Mutex
	var second sync.WaitGroup
	n := 0
	client.do = func() {
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		switch now {
		case 1: // the first call meets others
			use(others)
		case 2: // and now has its turn: long enough for a second one, which meets others too
			second.Go(func() { use(limiter) })
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			if n > 3 {
				t.Error("the second call tries again before the first has ended")
			}
			mu.Unlock()
		case 3:
			use(others)
		}
	}
	use(limiter)
	second.Wait()
	require.EqualValues(t, 4, used(t, others, "a"))
}

// A beforehand client does something before each write.
type beforehand struct {
	dynamostore.Client
	do func()
}

func (b *beforehand) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	b.do()
	return b.Client.PutItem(ctx, in, opts...)
}

func (b *beforehand) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	b.do()
	return b.Client.TransactWriteItems(ctx, in, opts...)
}
