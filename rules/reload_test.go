package rules_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/rules"
	"github.com/granule-limits/ratelimit/storage/memory"
)

func limitOf(n string) string {
	return "rules: [{path: /, descriptors: [{key: ip, unit: minute, requests_per_unit: " + n + "}]}]"
}

var fromOne = rules.Request{Path: "/", Values: values("ip", "1")}

// A new limit holds at once, and what was used stays used. A broken folder changes
// nothing.
func TestReload(t *testing.T) {
	dir := folder(t, "rules.yaml", limitOf("2"))
	e, err := rules.Open(dir, memory.New())
	require.NoError(t, err)
	require.True(t, decide(t, e, start, fromOne).Allowed)
	require.True(t, decide(t, e, start, fromOne).Allowed)
	require.False(t, decide(t, e, start, fromOne).Allowed)

	write(t, dir, "rules.yaml", limitOf("3"))
	require.False(t, decide(t, e, start, fromOne).Allowed)
	require.NoError(t, e.Reload())
	require.True(t, decide(t, e, start, fromOne).Allowed)
	require.False(t, decide(t, e, start, fromOne).Allowed)

	write(t, dir, "rules.yaml", limitOf("100"))
	write(t, dir, "broken.yaml", limitOf("-1"))
	err = e.Reload()
	require.ErrorIs(t, err, rules.ErrInvalidRules)
	require.ErrorContains(t, err, "broken.yaml:1:76: rules[0].descriptors[0].requests_per_unit: -1 is negative")
	require.False(t, decide(t, e, start, fromOne).Allowed, "nothing of a broken folder is taken")
	require.NoError(t, os.RemoveAll(dir))
	require.Error(t, e.Reload())
	require.False(t, decide(t, e, start, fromOne).Allowed)
}

// Whole sets are swapped under those who decide.
func TestReloadWhileDeciding(t *testing.T) {
	dir := folder(t, "a.yaml", path("/a"), "b.yaml", path("/b"))
	e, err := rules.Open(dir, nothing{})
	require.NoError(t, err)
	both := "rules:\n" + path("/{x}")[7:] + path("/{y}")[7:]
	write(t, dir, "b.yaml", both)
	require.NoError(t, e.Reload())
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				d, err := e.Decide(context.Background(), rules.Request{Path: "/b", Values: values("k", "v")})
				if err != nil || d.Matched != 1 && d.Matched != 2 {
					t.Errorf("%+v %v", d, err)
					return
				}
			}
		})
	}
	for i := range 50 {
		write(t, dir, "b.yaml", []string{path("/b"), both, "{"}[i%3])
		require.Equal(t, i%3 == 2, e.Reload() != nil)
	}
	close(done)
	wg.Wait()
}

// Watch reads again what has changed and stayed so, and tells once of what is broken.
func TestWatch(t *testing.T) {
	dir := folder(t, "rules.yaml", limitOf("1"))
	synctest.Test(t, func(t *testing.T) {
		e, err := rules.Open(dir, memory.New())
		require.NoError(t, err)
		var mu sync.Mutex
		var all []error
		told := func() []error {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- e.Watch(ctx, time.Second, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			})
		}()
		remaining := func() int64 {
			time.Sleep(3*time.Second + time.Millisecond)
			synctest.Wait()
			return decide(t, e, start, rules.Request{Path: "/", Values: values("ip", time.Now().String())}).Remaining
		}
		require.EqualValues(t, 0, remaining())
		require.Empty(t, told())
		write(t, dir, "rules.yaml", limitOf("11"))
		require.EqualValues(t, 10, remaining())
		require.Equal(t, []error{nil}, told())

		write(t, dir, "more.yaml", "{")
		require.EqualValues(t, 10, remaining())
		require.EqualValues(t, 10, remaining())
		require.Len(t, told(), 2)
		require.ErrorContains(t, told()[1], "more.yaml:1:1")
		require.NoError(t, os.Remove(filepath.Join(dir, "more.yaml")))
		require.EqualValues(t, 10, remaining())
		require.Len(t, told(), 3)
		require.NoError(t, told()[2])

		require.NoError(t, os.Rename(dir, dir+".gone"))
		require.EqualValues(t, 10, remaining())
		require.Len(t, told(), 4)
		require.ErrorIs(t, told()[3], os.ErrNotExist)
		require.NoError(t, os.Rename(dir+".gone", dir))
		require.EqualValues(t, 10, remaining())
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorContains(t, e.Watch(t.Context(), 0, nil), "the interval 0s is not above zero")
	})
}

// A mounted ConfigMap is a folder of links, of which one is swapped.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "..v"+version), 0o700))
		write(t, filepath.Join(dir, "..v"+version), "rules.yaml", limitOf(version))
	}
	require.NoError(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
	e, err := rules.Open(dir, memory.New())
	require.NoError(t, err)
	require.EqualValues(t, 0, decide(t, e, start, fromOne).Remaining)
	require.NoError(t, os.Symlink("..v2", filepath.Join(dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	require.NoError(t, e.Reload())
	require.True(t, decide(t, e, start, fromOne).Allowed)
}
