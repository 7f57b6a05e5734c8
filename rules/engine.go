package rules

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/settle"
	"github.com/granule-limits/ratelimit/storage"
)

// An Engine decides by the rules of a folder. Engines are safe for concurrent use, and
// there is nothing to close. A decision is made by the rules as they were when it
// began.
type Engine struct {
	dir string
	set atomic.Pointer[set]

	strategies []string
	limiters   []ratelimit.Limiter // of the strategies

	mu   sync.Mutex // of those who read
	read []file     // last
}

// Open reads a folder: its files *.yaml, *.yml and *.json, but not those of folders in it, nor
// those whose names begin with a dot. Links may not lead out of it. The counters are in
// the storage.
//
// The error wraps ErrInvalidRules if the folder is broken, and has the file, the line, the
// column and the field of each fault.
func Open(dir string, store storage.Storage) (*Engine, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the storage is nil: give the engine one, such as memory.New()", ratelimit.ErrMisconfigured)
	}
	e := &Engine{dir: dir, strategies: ratelimit.Strategies()}
	for _, name := range e.strategies {
		limiter, err := ratelimit.NewLimiter(name, store)
		if err != nil {
			return nil, err
		}
		e.limiters = append(e.limiters, limiter)
	}
	if err := e.Reload(); err != nil {
		return nil, err
	}
	return e, nil
}

// Reload reads the folder now, and takes all of it or nothing: with an error, the rules
// stay as they were.
func (e *Engine) Reload() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	files, err := lookAt(e.dir) // before reading: what changes meanwhile is read again
	if err != nil {
		return err
	}
	e.read = files
	l := newLoader()
	if err := l.readFolder(e.dir, files); err != nil {
		return err
	}
	e.set.Store(l.finish())
	return nil
}

// Watch looks at the folder once in every interval, and reloads it when a file was added,
// taken away or changed, and nothing has changed for an interval after that: so what is
// being written is not read half. A change is there after two intervals.
//
// Each time the folder was read, or could not be, told is called, unless it is nil, with the
// error of Reload; once for each state of the folder. Watch returns when the context ends,
// with its error.
func (e *Engine) Watch(ctx context.Context, every time.Duration, told func(error)) error {
	if every <= 0 {
		return fmt.Errorf("rules: Engine.Watch: the interval %v is not above zero", every)
	}
	return settle.Watch[[]file]{
		Every: every,
		Stat:  func() ([]file, error) { return lookAt(e.dir) },
		Same:  sameFiles,
		Read:  e.lastRead,
		Load:  e.Reload,
		Told:  told,
	}.Run(ctx)
}

func (e *Engine) lastRead() []file {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read
}
