// Package settle watches something that can change at any moment, and tells when it
// has changed and then stayed as it is for a while: so what is being written is not read
// half.
package settle

import (
	"context"
	"time"
)

// A Watch looks once in every interval.
type Watch[T any] struct {
	Every time.Duration
	Stat  func() (T, error) // how it looks now
	Same  func(a, b T) bool // whether it has changed
	Read  func() T          // how it looked when it was last read
	Load  func() error      // reads it
	Told  func(error)       // is told of each Load, and once when Stat begins to fail; may be nil
}

// Run watches until the context ends, and returns its error. A change is loaded after
// two intervals, once for each state, also where that state is broken.
func (w Watch[T]) Run(ctx context.Context) error {
	ticker := time.NewTicker(w.Every)
	defer ticker.Stop()
	seen, there := w.Read(), true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			seen, there = w.look(seen, there)
		}
	}
}

func (w Watch[T]) look(before T, wasThere bool) (now T, there bool) {
	now, err := w.Stat()
	switch {
	case err != nil && wasThere:
		w.tell(err)
	case err == nil && wasThere && w.Same(now, before) && !w.Same(now, w.Read()):
		w.tell(w.Load())
	}
	return now, err == nil
}

func (w Watch[T]) tell(err error) {
	if w.Told != nil {
		w.Told(err)
	}
}
