package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/storage"
)

// A command is an EVALSHA or EVAL that answers in whole numbers, and that
// go-redis must not send again by itself: a script whose reply was lost has been
// executed, and sent four times it charges four times.
type command struct {
	*redis.IntSliceCmd
}

// NoRetry is asked by go-redis, from 9.19 on.
func (*command) NoRetry() bool { return true }

// newCommand puts a call into the arguments that scripts/README.md describes. It
// keeps nothing of the call: a command that was given up on may still be read.
func newCommand(ctx context.Context, name, script string, keys []string, c *storage.Call) *command {
	numbers := make([]int64, 0, 3+3*len(c.Requests)+4*len(keys))
	now := c.Now
	if c.OwnClock {
		now = -1
	}
	numbers = append(numbers, int64(c.Op), now, number(c.Together))
	for i := range c.Requests {
		r := &c.Requests[i]
		requested := r.Requested
		if c.Op == storage.Use {
			requested = r.Granted
		}
		numbers = append(numbers, requested, number(r.AllOrNothing), int64(len(r.Cells)))
		for j := range r.Cells {
			cell := &r.Cells[j]
			numbers = append(numbers, cell.Limit, cell.Burst, cell.Window, cell.Granularity)
		}
	}
	args := make([]any, 0, 3+len(keys)+len(numbers))
	args = append(args, name, script, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	for i := range numbers {
		args = append(args, &numbers[i]) // by pointer: go-redis takes it, and it costs no allocation
	}
	return &command{redis.NewIntSliceCmd(ctx, args...)}
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// decode puts the reply of a script into the call.
func decode(reply []int64, c *storage.Call) error {
	if want := 1 + len(c.Requests) + 5*c.Cells(); len(reply) != want {
		return fmt.Errorf("%w: the script answered %d numbers, not %d", storage.ErrMisconfigured, len(reply), want)
	}
	c.Now, reply = reply[0], reply[1:]
	for i := range c.Requests {
		r := &c.Requests[i]
		r.Granted, reply = reply[0], reply[1:]
		for j := range r.Cells {
			cell := &r.Cells[j]
			cell.Remaining, cell.Reached = reply[0], reply[1] == 1
			cell.RetryAfter, cell.NextAfter, cell.ResetAfter = reply[2], reply[3], reply[4]
			reply = reply[5:]
		}
	}
	return nil
}

// classify tells what became of a call that failed.
func classify(err error, op storage.Op) error {
	var answer redis.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &answer):
		for _, code := range []string{"WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "ERR"} {
			if strings.HasPrefix(answer.Error(), code) {
				return fmt.Errorf("%w: %w", storage.ErrMisconfigured, err)
			}
		}
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	case op == storage.Check, // what changes nothing cannot have charged
		errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrIndeterminate, err)
}
