package redistable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

const (
	// A connection on which nothing came for so long is pinged, and is lost if nothing
	// comes for as long again.
	quietAfter  = 3 * time.Second
	listenPause = 500 * time.Millisecond // before it is tried again
)

// Listen has a cache fetch anew what was changed in the table, at once. It returns
// when the context ends, with its error. While the connection is lost the cache
// sees changes by its age; when there is a new one, everything counts as changed.
func (t *Table) Listen(ctx context.Context, cache *limits.Cache) error {
	if cache == nil {
		return fmt.Errorf("%w: redistable.Table.Listen: the cache is nil", ratelimit.ErrMisconfigured)
	}
	for {
		err := t.listen(ctx, cache)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.onError(fmt.Errorf("redistable: listening on %s: %w", t.channel(), err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(listenPause):
		}
	}
}

// listen listens until the connection is lost.
func (t *Table) listen(ctx context.Context, cache *limits.Cache) error {
	sub := t.client.Subscribe(ctx, t.channel())
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // a read does not look at the context
	defer stop()
	pinged := false
	for {
		message, err := sub.ReceiveTimeout(ctx, quietAfter)
		switch {
		case isTimeout(err) && !pinged:
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			pinged = false
			t.heard(message, cache)
		}
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// A changed is the message of sync.lua.
type changed struct {
	Resource string   `json:"resource"`
	Accounts []string `json:"accounts"` // none: all of the resource, as with ""
}

func (t *Table) heard(message any, cache *limits.Cache) {
	switch m := message.(type) {
	case *redis.Subscription: // what was told before it is not known
		cache.InvalidateAll()
	case *redis.Message:
		var c changed
		if err := json.Unmarshal([]byte(m.Payload), &c); err != nil {
			cache.InvalidateAll()
			t.onError(fmt.Errorf("redistable: a message on %s: %w", m.Channel, err))
			return
		}
		if len(c.Accounts) == 0 {
			cache.Invalidate(c.Resource, "")
		}
		for _, account := range c.Accounts {
			cache.Invalidate(c.Resource, account)
		}
	}
}
