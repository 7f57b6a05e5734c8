package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

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

// passing are the answers of a server that did not execute the command and may
// soon: it loads, it fails over, it is busy or full.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "NOREPLICAS", "MISCONF",
	"max number of clients", "EXECABORT",
}

// outcomeOf tells by the error what became of a command. Of an answer only the
// code is looked at: servers put more behind it.
func outcomeOf(err error) outcome {
	var dial *net.OpError
	var answer redis.Error
	var number *strconv.NumError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.Is(err, errTakenBack), errors.Is(err, redis.TxFailedErr):
		return unsent
	case errors.As(err, &answer):
		if slices.ContainsFunc(passing, func(code string) bool { return redis.HasErrorPrefix(answer, code) }) {
			return unsent
		}
		return refused
	case isConnection(err):
		return unknown
	case strings.HasPrefix(err.Error(), "redis: "), errors.As(err, &number): // no script of ours answers so
		return refused
	}
	return unknown
}

func isConnection(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
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
