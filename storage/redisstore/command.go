package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/storage"
)

// A command is an EVALSHA or EVAL that answers in whole numbers, and that
// go-redis must not send again by itself: a script whose reply was lost has been
// executed, and sent four times it charges four times.
type command struct {
	*redis.IntSliceCmd
	ticket ticket

	// room for the arguments of most calls
	names   [2]string
	numbers [14]int64
	args    [20]any
}

// NoRetry is asked by go-redis, from 9.19 on.
func (*command) NoRetry() bool { return true }

// A ticket is the argument of a command that says what to do, and knows whether that
// was sent: go-redis asks it for its bytes when it writes them. Who will not wait any
// longer takes the ticket back, and then either the bytes may have left, or all that
// ever leaves is a check. It is not an error then: that would fail all commands that
// are written together with this one, which with an AutoPipeline are other callers'.
type ticket struct {
	text  []byte
	state atomic.Int32
}

const (
	waiting = iota
	written
	takenBack
)

// MarshalBinary is asked by go-redis's writer, just before the bytes leave.
func (t *ticket) MarshalBinary() ([]byte, error) {
	if t.state.CompareAndSwap(waiting, written) || t.state.Load() == written {
		return t.text, nil
	}
	return opText[storage.Check], nil
}

// takeBack reports whether the command was not sent, and never will be, but as a check.
func (t *ticket) takeBack() bool {
	return t.state.CompareAndSwap(waiting, takenBack) || t.state.Load() == takenBack
}

// A verb is what is done with a script, named by its digest or by its text.
type verb any

var evalsha, eval verb = "evalsha", "eval"

// newCommand puts a call into the arguments that scripts/README.md describes. It
// keeps nothing of the call: a command that was given up on may still be read.
func newCommand(ctx context.Context, v verb, script *string, keys []string, c *storage.Call) *command {
	cmd := new(command)
	cmd.ticket.text = opText[c.Op]
	if c.Together && c.Op != storage.Use {
		cmd.ticket.text = togetherText[c.Op]
	}
	numbers := slices.Grow(cmd.numbers[:0], 1+3*len(c.Requests)+4*len(keys))
	now := c.Now
	if c.OwnClock {
		now = -1
	}
	numbers = append(numbers, now)
	for i := range c.Requests {
		r := &c.Requests[i]
		how := number(r.AllOrNothing)
		if c.Op == storage.Use {
			how = r.Granted
		}
		numbers = append(numbers, r.Requested, how, int64(len(r.Cells)))
		for j := range r.Cells {
			cell := &r.Cells[j]
			numbers = append(numbers, cell.Limit, cell.Burst, cell.Window, cell.Granularity)
		}
	}
	args := slices.Grow(cmd.args[:0], 4+len(keys)+len(numbers))
	args = append(args, v, script, len(keys)) // by pointer: go-redis takes it, and it costs no allocation
	names := append(cmd.names[:0], keys...)
	for i := range names {
		args = append(args, &names[i])
	}
	args = append(args, &cmd.ticket)
	for i := range numbers {
		args = append(args, &numbers[i])
	}
	cmd.IntSliceCmd = redis.NewIntSliceCmd(ctx, args...)
	return cmd
}

// opText is how an operation is written in ARGV.
var opText = [...][]byte{
	storage.CheckAndUse: []byte("0"),
	storage.Check:       []byte("1"),
	storage.Use:         []byte("2"),
}

var togetherText = [...][]byte{
	storage.CheckAndUse: []byte("3"),
	storage.Check:       []byte("4"),
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// decode puts the reply of a script into the call. Whatever it says, nobody is granted
// more than he asked for.
func decode(reply []int64, c *storage.Call) error {
	if want := 1 + 5*c.Cells(); len(reply) != want {
		return fmt.Errorf("%w: the script answered %d numbers, not %d", storage.ErrMisconfigured, len(reply), want)
	}
	if reply[0] < 0 || reply[0] > storage.MaxTime {
		return fmt.Errorf("%w: the script answered that it is %d", storage.ErrMisconfigured, reply[0])
	}
	c.Now, reply = reply[0], reply[1:]
	for i := range c.Requests {
		r := &c.Requests[i]
		for j := range r.Cells {
			cell := &r.Cells[j]
			r.Granted, cell.Remaining, cell.Reached = reply[0], reply[1], reply[1] < 0
			if cell.Reached {
				cell.Remaining = -1 - reply[1]
			}
			if c.Op != storage.Use && (r.Granted < 0 || r.Granted > r.Requested) || cell.Remaining > cell.Burst {
				return fmt.Errorf("%w: the script answered %d to a request for %d units of %d", storage.ErrMisconfigured, reply[:5], r.Requested, cell.Burst)
			}
			cell.RetryAfter, cell.NextAfter, cell.ResetAfter = reply[2], reply[3], reply[4]
			reply = reply[5:]
		}
	}
	return nil
}
