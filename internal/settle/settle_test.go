package settle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/settle"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of all these
		now, read := 1, 1
		gone, broken := errors.New("gone"), errors.New("broken")
		var missing error
		var told []error
		loads := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- settle.Watch[int]{
				Every: time.Second,
				Stat: func() (int, error) {
					mu.Lock()
					defer mu.Unlock()
					return now, missing
				},
				Same: func(a, b int) bool { return a == b },
				Read: func() int {
					mu.Lock()
					defer mu.Unlock()
					return read
				},
				Load: func() error {
					mu.Lock()
					defer mu.Unlock()
					loads++
					if read = now; now == 13 {
						return broken
					}
					return nil
				},
				Told: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, err)
				},
			}.Run(ctx)
		}()
		set := func(n int, err error) {
			mu.Lock()
			defer mu.Unlock()
			now, missing = n, err
		}
		loaded := func() int {
			mu.Lock()
			defer mu.Unlock()
			return loads
		}
		wait := func(looks int) {
			time.Sleep(time.Duration(looks)*time.Second + time.Millisecond)
			synctest.Wait()
		}
		wait(3)
		require.Zero(t, loaded())
		set(2, nil)
		wait(1)
		require.Zero(t, loaded(), "it is not known yet whether it stays so")
		set(3, nil)
		wait(1)
		require.Zero(t, loaded(), "it did not")
		wait(1)
		require.Equal(t, 1, loaded())
		set(13, nil)
		wait(5)
		require.Equal(t, 2, loaded(), "once for each state")
		set(13, gone)
		wait(5)
		set(13, nil)
		wait(5)
		require.Equal(t, 2, loaded(), "it is back as it was")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, []error{nil, broken, gone}, told)
	})
}
