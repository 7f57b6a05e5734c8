package redistokens

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/granule-limits/ratelimit/internal/rediscall"
	"github.com/granule-limits/ratelimit/storage"
)

var (
	//go:embed account.lua
	accountLua string
	//go:embed reserve.lua
	reserveLua string
	//go:embed bind.lua
	bindLua string
	//go:embed renew.lua
	renewLua string
	//go:embed drop.lua
	dropLua string
	//go:embed look.lua
	lookLua string
	//go:embed count.lua
	countLua string
	//go:embed list.lua
	listLua string
	//go:embed claim.lua
	claimLua string
	//go:embed whose.lua
	whoseLua string
	//go:embed unclaim.lua
	unclaimLua string

	reserve = newScript(accountLua + reserveLua)
	bind    = newScript(accountLua + bindLua)
	renew   = newScript(accountLua + renewLua)
	drop    = newScript(accountLua + dropLua)
	look    = newScript(accountLua + lookLua)
	count   = newScript(accountLua + countLua)
	list    = newScript(accountLua + listLua)
	claim   = newScript(claimLua)
	whose   = newScript(whoseLua)
	unclaim = newScript(unclaimLua)
)

// A script has the name by which Redis knows it once it has run.
type script struct{ lua, hash string }

func newScript(lua string) script {
	sum := sha1.Sum([]byte(lua))
	return script{lua, hex.EncodeToString(sum[:])}
}

// run runs a script, teaching it to a server that does not know it. Every script
// answers with a list, and may be sent again after an answer was lost: go-redis
// does so by itself, for as long as the context lasts.
func (s *Store) run(b *rediscall.Bound, sc script, keys []string, args ...any) ([]any, error) {
	reply, sent, err := s.send(b, "evalsha", sc.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, sent, err = s.send(b, "eval", sc.lua, keys, args)
	}
	if err != nil {
		return nil, failure(err, sent)
	}
	return reply, nil
}

// send sends a command. It tells how many times the bytes may have left, and sees to
// it that after it has returned they do not any more.
func (s *Store) send(b *rediscall.Bound, name, text string, keys []string, args []any) ([]any, int, error) {
	t := &ticket{text: text, nothing: noName}
	if name == "eval" {
		t.nothing = noScript
	}
	all := append(make([]any, 0, 3+len(keys)+len(args)), name, t, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewSliceCmd(b, append(all, args...)...)
	err := rediscall.Do(b, s.client, cmd)
	sent := t.takeBack()
	if err != nil {
		return nil, sent, err
	}
	return cmd.Val(), sent, nil
}

// A ticket is an argument of a command that knows whether the command was sent:
// go-redis asks it for its bytes when it writes them. Who will not wait any longer
// takes the ticket back, and then all that ever leaves is a script that does nothing. It
// is not an error then: that would fail all commands that are written together with
// this one, which with an AutoPipeline are other callers'.
type ticket struct {
	text    string
	nothing string // instead of text
	mu      sync.Mutex
	sent    int
	taken   bool
}

// What does nothing in the place of a script and of a script's name.
const noScript, noName = "return {}", "0000000000000000000000000000000000000000"

// MarshalBinary is asked by go-redis's writer, just before the bytes leave.
func (t *ticket) MarshalBinary() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken {
		return []byte(t.nothing), nil
	}
	t.sent++
	return []byte(t.text), nil
}

func (t *ticket) takeBack() (sent int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = true
	return t.sent
}

// failure is the error that a caller gets. An answer to a command that was sent
// before says nothing of what became of it then.
func failure(err error, sent int) error {
	isAnswer, passes := rediscall.Answer(err)
	moves := redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") // more often than the client follows
	switch {
	case sent == 0, (passes || moves) && sent == 1:
		return &storeError{storage.ErrUnavailable, err}
	case isAnswer && !passes && !moves, !isAnswer && !isConnection(err): // or an answer that no script of ours gives
		return &storeError{storage.ErrMisconfigured, err}
	}
	return &storeError{storage.ErrIndeterminate, err}
}

// A storeError is one of the three errors of package storage, and why.
type storeError struct{ kind, cause error }

func (e *storeError) Error() string   { return e.kind.Error() + ": " + e.cause.Error() }
func (e *storeError) Unwrap() []error { return []error{e.kind, e.cause} }

// unchanged is the error of a step that takes, binds and gives back no place: if its
// answer was lost, nothing has happened.
func unchanged(err error) error {
	if e, ok := errors.AsType[*storeError](err); ok && e.kind == storage.ErrIndeterminate {
		return &storeError{storage.ErrUnavailable, e.cause}
	}
	return err
}

func isConnection(err error) bool {
	return rediscall.IsConnection(err) || errors.Is(err, redis.ErrPoolTimeout)
}
