package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/granule-limits/ratelimit/storage"
)

// A Limiter asks whether work fits quotas, and records what was used. The six
// constructors of this package make one each; package wrap has Limiters around a
// Limiter.
//
// Each call is one atomic step and one round trip to the storage, however many
// requests and quotas it has: on a Redis Cluster, for each prefix. Requests are
// taken in order, and each sees what the ones before it were granted. Being
// limited is not an error: it is a grant. An error is bad input, refused before
// anything is sent, or a storage that failed; the errors of this package tell
// which, and whether anything may have been charged.
//
// Limiters are safe for concurrent use, and there is nothing to close.
type Limiter interface {
	// CheckAndUseQuotas grants each request what fits all of its quotas, and
	// records it. Grants are in the order of the requests.
	CheckAndUseQuotas(ctx context.Context, requests []RequestedQuota, opts ...CallOption) ([]GrantedQuota, error)
	// CheckWithinQuotas tells what would be granted, and at what time, and changes
	// nothing. Do the work, then hand the time and the grants, with Granted set to
	// what was really used, to UseQuotas.
	//
	// Between the two steps others may be granted the same units: use
	// CheckAndUseQuotas where a limit must not be passed.
	CheckWithinQuotas(ctx context.Context, requests []RequestedQuota, opts ...CallOption) (time.Time, []GrantedQuota, error)
	// UseQuotas records the Granted units of each grant, unconditionally, also
	// above a limit. The zero time means now, by the storage's clock. A negative
	// Granted gives back units that were recorded at that time, the At of the grant
	// that is taken back, which must be given, and never more than still count. A
	// token bucket gets less back, by what it was refilled since.
	UseQuotas(ctx context.Context, requests []RequestedQuota, grants []GrantedQuota, at time.Time) error
	// Reset forgets the counters that the requests' quotas name, shared ones too.
	// What was used before must not be given back afterwards: it would be taken from
	// what was used since.
	Reset(ctx context.Context, requests []RequestedQuota) error
}

// A CallOption changes one call.
type CallOption struct {
	at       time.Time
	set      bool // at is
	together bool
}

// At gives a call its time, from 1970 to 2112, instead of the storage's clock:
// for replays and tests. Times are taken in whole µs. For a counter time never
// goes backwards: a call stamped before the newest use recorded in it is judged,
// and recorded, at that use's time.
func At(t time.Time) CallOption { return CallOption{at: t, set: true} }

// Together grants all requests of a call in full, or none of them: a request that
// several policies must allow, each by a key of its own, is charged to all or to
// none. Of requests that are not granted, those that had room themselves have a
// RetryAfter of 0, and the others one after which all that the call asks of their
// counters has room.
func Together() CallOption { return CallOption{together: true} }

// Errors of bad input. Nothing was sent and nothing has changed.
var (
	// ErrInvalidQuota: a field of a Quota is out of bounds; see Quota.Validate.
	ErrInvalidQuota = errors.New("ratelimit: invalid quota")
	// ErrEmptyPrefix: a request has no Prefix, or a policy's call no key.
	ErrEmptyPrefix = errors.New("ratelimit: empty prefix")
	// ErrInvalidRequest: no requests, no quotas, two quotas of one request with
	// the same counter, a number or a time out of bounds, or grants that do not
	// match their requests.
	ErrInvalidRequest = errors.New("ratelimit: invalid request")
)

// Errors of a storage that failed.
var (
	// ErrUnavailable: the storage could not be reached or would not serve the
	// call; nothing was charged.
	ErrUnavailable = storage.ErrUnavailable
	// ErrIndeterminate: the call was sent and its answer lost; it may have been
	// charged, at most once.
	ErrIndeterminate = storage.ErrIndeterminate
	// ErrMisconfigured: asking again will not help until somebody changes the set-up:
	// no storage, a Redis key of another type, a missing permission. Nothing was
	// charged.
	ErrMisconfigured = storage.ErrMisconfigured
)

// core is a strategy over a storage: the one implementation behind all six
// constructors.
type core struct {
	store    storage.Storage
	strategy *strategy
}

func newLimiter(store storage.Storage, s *strategy) Limiter {
	return &core{store: store, strategy: s}
}

func (l *core) CheckAndUseQuotas(ctx context.Context, requests []RequestedQuota, opts ...CallOption) ([]GrantedQuota, error) {
	_, grants, err := l.check(ctx, storage.CheckAndUse, requests, opts)
	return grants, err
}

func (l *core) CheckWithinQuotas(ctx context.Context, requests []RequestedQuota, opts ...CallOption) (time.Time, []GrantedQuota, error) {
	return l.check(ctx, storage.Check, requests, opts)
}

func (l *core) check(ctx context.Context, op storage.Op, requests []RequestedQuota, opts []CallOption) (time.Time, []GrantedQuota, error) {
	c := newCall(op)
	defer c.free()
	if err := c.fill(l.strategy, requests, opts); err != nil {
		return time.Time{}, nil, err
	}
	if err := l.run(ctx, &c.Call); err != nil {
		return time.Time{}, nil, err
	}
	return time.UnixMicro(c.Now), c.grants(requests), nil
}

func (l *core) UseQuotas(ctx context.Context, requests []RequestedQuota, grants []GrantedQuota, at time.Time) error {
	c := newCall(storage.Use)
	defer c.free()
	var opts []CallOption
	if !at.IsZero() {
		opts = []CallOption{At(at)}
	}
	if err := c.fill(l.strategy, requests, opts); err != nil {
		return err
	}
	if err := c.fillGrants(requests, grants); err != nil {
		return err
	}
	return l.run(ctx, &c.Call)
}

func (l *core) Reset(ctx context.Context, requests []RequestedQuota) error {
	c := newCall(storage.Check)
	defer c.free()
	if err := c.fill(l.strategy, requests, nil); err != nil {
		return err
	}
	if err := l.missing(ctx); err != nil {
		return err
	}
	return l.store.Forget(ctx, c.keys())
}

func (l *core) run(ctx context.Context, c *storage.Call) error {
	if l.store == nil || ctx == nil {
		return l.missing(ctx)
	}
	return l.store.Run(ctx, l.strategy.script, c)
}

// missing tells what a call cannot go without.
func (l *core) missing(ctx context.Context) error {
	switch {
	case l.store == nil:
		return fmt.Errorf("%w: the storage is nil: give the limiter one, such as memory.New()", ErrMisconfigured)
	case ctx == nil:
		return fmt.Errorf("%w: the context is nil", ErrInvalidRequest)
	}
	return nil
}
