package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A fault is a databaseStore that breaks one promise.
type fault struct {
	promise string
	name    string
	open    func() storage.Storage
}

var faults = []fault{
	{"Atomic", "requests one by one", withRun(requestsOneByOne)},
	{"Atomic", "saves key by key", withDatabase(func(t *table) database { return savesByKey{t} })},
	{"Atomic", "loads key by key", withDatabase(func(t *table) database { return loadsByKey{t} })},

	{"Shared", "ignores Shared", withKeys(withCounter(func(c *storage.Counter) { c.Shared = false }))},
	{"Shared", "ignores Window", withKeys(withCounter(func(c *storage.Counter) { c.Window = 0 }))},
	{"Shared", "ignores Granularity", withKeys(withCounter(func(c *storage.Counter) { c.Granularity = 0 }))},
	{"Shared", "ignores Strategy", withKeys(withCounter(func(c *storage.Counter) { c.Strategy = "" }))},
	{"Shared", "in lower case", withKeys(func(k *storage.Key) { k.Prefix = strings.ToLower(k.Prefix) })},
	{"Shared", "without spaces", withKeys(func(k *storage.Key) { k.Prefix = strings.TrimSpace(k.Prefix) })},
	{"Shared", "valid UTF-8", withKeys(func(k *storage.Key) { k.Prefix = strings.ToValidUTF8(k.Prefix, "\ufffd") })},
	{"Shared", "C strings", withKeys(func(k *storage.Key) { k.Prefix, _, _ = strings.Cut(k.Prefix, "\x00") })},
	{"Shared", "first hash tag", withKeys(func(k *storage.Key) { k.Prefix, _, _ = strings.Cut(k.Prefix, "}") })},
	{"Shared", "at most 199 bytes", withKeys(func(k *storage.Key) { k.Prefix = k.Prefix[:min(199, len(k.Prefix))] })},
	{"Shared", "shared by prefix", withKeys(sharedByPrefix)},
	{"Shared", "joined by colons", withKeys(joinedByColons)},
	{"Shared", "a copy for each cell", withRun(aCopyForEachCell)},

	{"SameAnswer", "words of 16 bits", withDatabase(func(t *table) database { return shortWords{t} })},
	{"SameAnswer", "one answer missing", after(func(c *storage.Call) { lastCell(c).NextAfter = 0 })},
	{"SameAnswer", "whole milliseconds", after(func(c *storage.Call) { lastCell(c).RetryAfter = lastCell(c).RetryAfter / 1000 * 1000 })},
	{"SameAnswer", "question changed", after(func(c *storage.Call) { lastCell(c).Limit = lastCell(c).Burst - lastCell(c).Remaining })},
	{"SameAnswer", "leftovers", withRun(leftovers)},
	{"SameAnswer", "a part of nothing", withRun(aPartOfNothing)},
	{"SameAnswer", "ignores Together", withRun(ignoresTogether)},

	{"Clock", "seconds", stamped(func(int64) int64 { return time.Now().Unix() })},
	{"Clock", "an hour fast", stamped(func(int64) int64 { return time.Now().Add(time.Hour).UnixMicro() })},
	{"Clock", "not stamped", stamped(func(now int64) int64 { return now })},
	{"Clock", "backwards", stamped(func(now int64) int64 { return time.Now().UnixMicro() - now%2*1000 })},
	{"Clock", "stamps all", withRun(stampsAll)},

	{"Untouched", "keeps a Check", withRun(keepsACheck)},
	{"Untouched", "keeps the time of a refusal", withRun(keepsARefusal)},

	{"Kept", "nanoseconds", expiring(func(_ *storage.Call, resetAfter, _ int64) int64 { return resetAfter / 1000 })},
	{"Kept", "caller's time", expiring(func(c *storage.Call, resetAfter, _ int64) int64 { return c.Now + resetAfter - time.Now().UnixMicro() })},
	{"Kept", "caller's time still", expiring(func(_ *storage.Call, resetAfter, _ int64) int64 { return resetAfter })},
	{"Kept", "first expiry", expiring(firstExpiry)},
	{"Kept", "expiry of the last cell", expiring(lastExpiry)},

	{"Forget", "nothing", withForget(func(*table, []storage.Key) {})},
	{"Forget", "the first only", withForget(func(t *table, keys []storage.Key) { t.remove(keys[:1]) })},
	{"Forget", "everything", withForget(forgetEverything)},
	{"Forget", "the whole prefix", withForget(forgetPrefix)},
	{"Forget", "but the time", withForget(forgetUnits)},

	{"Failure", "nothing charged, it says", interrupted(func(storage.Storage, *storage.Script, *storage.Call) error { return storage.ErrUnavailable })},
	{"Failure", "no word", interrupted(func(storage.Storage, *storage.Script, *storage.Call) error { return errors.New("broken pipe") })},
	{"Failure", "sends again", interrupted(func(next storage.Storage, s *storage.Script, c *storage.Call) error {
		return next.Run(context.Background(), s, c)
	})},

	{"Context", "ignored", withRun(func(next storage.Storage, _ context.Context, s *storage.Script, c *storage.Call) error {
		return next.Run(context.Background(), s, c)
	})},
	{"Context", "too late", withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		return errors.Join(next.Run(context.Background(), s, c), ctx.Err())
	})},
	{"Context", "not wrapped", withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		if ctx.Err() != nil {
			return storage.ErrUnavailable
		}
		return next.Run(ctx, s, c)
	})},
	{"Context", "indeterminate", withRun(func(next storage.Storage, ctx context.Context, s *storage.Script, c *storage.Call) error {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", storage.ErrIndeterminate, ctx.Err())
		}
		return next.Run(ctx, s, c)
	})},
	{"Context", "ignored by Forget", func() storage.Storage { return forgetsAlways{&databaseStore{newTable()}} }},

	{"Borrowed", "keeps the keys", withDatabase(func(t *table) database { return keepsKeys{t} })},
	{"Borrowed", "forgets later", func() storage.Storage { return &forgetsLater{Storage: &databaseStore{newTable()}} }},

	{"Concurrent", "saves blindly", withDatabase(func(t *table) database { return savesBlindly{t} })},
}
