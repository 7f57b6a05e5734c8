package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
)

// An outcome is what became of a command that failed.
type outcome int

const (
	// unsent: it was not executed, and may be sent again.
	unsent outcome = iota
	// unknown: its bytes may have left, and what came of them is not known.
	unknown
	// refused: it was not executed, and sending it again will not help.
	refused
)

// outcomeOf tells what became of a command, by its error and its ticket, if it has one.
// What was not sent can have been refused all the same, while the connection was made.
func outcomeOf(err error, t *ticket) outcome {
	o := outcomeByError(err)
	if o == unknown && t != nil && t.takeBack() {
		return unsent
	}
	return o
}

// outcomeByError does not know whether what may have been sent was.
func outcomeByError(err error) outcome {
	var dial *net.OpError
	var number *strconv.NumError
	isAnswer, passes := rediscall.Answer(err)
	switch {
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.Is(err, redis.TxFailedErr):
		return unsent
	case isAnswer && passes:
		return unsent
	case isAnswer:
		return refused
	case rediscall.IsConnection(err):
		return unknown
	case strings.HasPrefix(err.Error(), "redis: "), errors.As(err, &number): // no script of ours answers so
		return refused
	}
	return unknown
}

// of is the outcome for a call: what changes nothing charges nothing.
func (o outcome) of(op storage.Op) outcome {
	if o == unknown && op == storage.Check {
		return unsent
	}
	return o
}

// A joined is the errors of several commands of one call. It is of one class, the
// worst, or nobody could tell what it says of the charge, and wraps no other.
type joined struct {
	text string
	is   []error
}

func (e *joined) Error() string   { return e.text }
func (e *joined) Unwrap() []error { return e.is }

// join makes one error of several that have their class; nil if there is none.
func join(errs ...error) error {
	all := errors.Join(errs...)
	if all == nil {
		return nil
	}
	e := &joined{text: strings.ReplaceAll(all.Error(), "\n", "; ")}
	for _, class := range []error{storage.ErrIndeterminate, storage.ErrMisconfigured, storage.ErrUnavailable} {
		if errors.Is(all, class) {
			e.is = append(e.is, class)
			break
		}
	}
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(all, ended) {
			e.is = append(e.is, ended)
		}
	}
	return e
}

// failure is the error that a caller gets.
func failure(o outcome, err error) error {
	switch o {
	case unsent:
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	case refused:
		return fmt.Errorf("%w: %w", storage.ErrMisconfigured, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrIndeterminate, err)
}
