// Package rediscall is what the stores on Redis have in common: to wait for a
// command no longer than its context lasts, and to tell what a failure says.
package rediscall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Client is what sends commands.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// results are channels on which one result was received, and no other will be sent.
var results = sync.Pool{New: func() any { return make(chan error, 1) }}

// Do sends a command and waits for its answer or the end of the call: by itself
// go-redis looks at neither a deadline nor a cancellation while it reads. A command
// that is given up on is left to the client's own time limits, and may still be sent.
func Do(b *Bound, client Client, cmd redis.Cmder) error {
	result := results.Get().(chan error)
	go func() { result <- send(b, client, cmd) }()
	err, answered := b.Wait(result)
	if answered {
		results.Put(result)
	}
	if cluster, ok := client.(interface{ ReloadState(ctx context.Context) }); ok && IsConnection(err) {
		// A replica may have taken over. The client looks for it by itself only when it
		// may send a command again.
		cluster.ReloadState(b)
	}
	return err
}

// send sends a command. A client that panics on a reply that it can't have meant
// must not end the program, which no caller could prevent in this goroutine.
func send(ctx context.Context, client Client, cmd redis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	return client.Process(ctx, cmd)
}

// IsConnection tells whether it was the connection that failed, or the time that
// ended, and not the server that answered.
func IsConnection(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// passing are the answers of a server that did not execute the command and may
// soon: it loads, it fails over, it is busy or full.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "NOREPLICAS", "MISCONF",
	"max number of clients", "EXECABORT",
}

// Answer tells whether an error is a server's answer, and whether that will pass.
// Only the code is looked at: servers put more behind it, and before version 7, when it
// is a script's, also before it.
func Answer(err error) (isAnswer, passes bool) {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false, false
	}
	if strings.Contains(answer.Error(), "Script killed by user") { // which can be done only before it has written
		return true, true
	}
	inScript := strings.HasPrefix(answer.Error(), "ERR Error running script")
	return true, slices.ContainsFunc(passing, func(code string) bool {
		return redis.HasErrorPrefix(answer, code) || inScript && strings.Contains(answer.Error(), ": -"+code+" ")
	})
}
