package redisstore

import (
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

// outcomeOf tells by the error what became of a command.
func outcomeOf(err error) outcome {
	var dial *net.OpError
	var number *strconv.NumError
	isAnswer, passes := rediscall.Answer(err)
	switch {
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.Is(err, errTakenBack), errors.Is(err, redis.TxFailedErr):
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
