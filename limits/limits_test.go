package limits_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/limits"
)

// newRandom is a source whose seed is printed when the test fails, and which
// RATELIMIT_LIMITS_SEED replays.
func newRandom(t testing.TB) *rand.Rand {
	seed := uint64(rand.Uint32())
	if n, err := strconv.ParseUint(os.Getenv("RATELIMIT_LIMITS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with RATELIMIT_LIMITS_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func TestMemory(t *testing.T) {
	m, err := limits.NewMemory(
		limits.Limit{Resource: "r", Quotas: perMinute(10)},
		limits.Limit{Resource: "r", Account: "own", Quotas: perMinute(20)},
		limits.Limit{Resource: "r", Account: "blocked", Quotas: perMinute(0)},
		limits.Limit{Resource: "no default", Account: "own", Quotas: perMinute(30)},
	)
	require.NoError(t, err)
	for account, want := range map[string]int64{"own": 20, "blocked": 0, "someone": 10, "": 10, "OWN": 10} {
		require.Equal(t, want, limitOf(t, m, account), account)
		quotas, err := m.Source("r").Quotas(t.Context(), account)
		require.NoError(t, err)
		require.Equal(t, perMinute(want), quotas)
	}
	quotas, err := m.Quotas(t.Context(), "no default", "own")
	require.NoError(t, err)
	require.Equal(t, perMinute(30), quotas)
	_, err = m.Quotas(t.Context(), "no default", "someone")
	require.ErrorIs(t, err, limits.ErrUnknownResource)
	require.EqualError(t, err, `limits: unknown resource: "no default" has no default, and account "someone" no limit of its own`)
	_, err = m.Quotas(t.Context(), "nothing", "own")
	require.ErrorIs(t, err, limits.ErrUnknownResource)

	mine := perMinute(40)
	require.NoError(t, m.Replace([]limits.Limit{{Resource: "r", Quotas: mine}, {Resource: "r", Account: "own", Quotas: mine}}))
	mine[0].Limit = 50
	require.EqualValues(t, 40, limitOf(t, m, "someone"))
	require.EqualValues(t, 40, limitOf(t, m, "own"), "the quotas are copied")
}

func TestMemoryRefuses(t *testing.T) {
	m, err := limits.NewMemory(limits.Limit{Resource: "r", Quotas: perMinute(10)})
	require.NoError(t, err)
	good := limits.Limit{Resource: "r", Quotas: perMinute(99)}
	for want, bad := range map[string]limits.Limit{
		"the resource is empty":                                        {Quotas: perMinute(1)},
		`the default of resource "r" is there twice`:                   good,
		`resource "r", account "a": there are no quotas`:               {Resource: "r", Account: "a"},
		`invalid quota: Limit -1 is negative`:                          {Resource: "r", Account: "a", Quotas: perMinute(-1)},
		`Window 0s is under 1ms`:                                       {Resource: "r", Account: "a", Quotas: []ratelimit.Quota{{Limit: 1}}},
		`two quotas have the Window 1m0s`:                              {Resource: "r", Account: "a", Quotas: append(perMinute(1), ratelimit.Quota{Limit: 2, Window: time.Minute, Granularity: time.Second})},
		`Burst 5 with Limit 0`:                                         {Resource: "r", Account: "a", Quotas: []ratelimit.Quota{{Window: time.Minute, Burst: 5}}},
		`the account "\xff" is not UTF-8`:                              {Resource: "r", Account: "\xff", Quotas: perMinute(1)},
		`Name "\xff" or PrefixOverride "" is not UTF-8`:                {Resource: "r", Account: "a", Quotas: []ratelimit.Quota{{Name: "\xff", Window: time.Minute}}},
		`the resource "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"… has`: {Resource: strings.Repeat("x", 257), Quotas: perMinute(1)},
	} {
		err := m.Replace([]limits.Limit{good, bad})
		require.ErrorIs(t, err, limits.ErrInvalidLimit)
		require.ErrorContains(t, err, want)
		require.EqualValues(t, 10, limitOf(t, m, "a"), "nothing has changed")
		_, err = limits.NewMemory(good, bad)
		require.ErrorContains(t, err, want)
	}
	shared := ratelimit.Quota{Limit: 2, Window: time.Minute, PrefixOverride: "all"}
	require.NoError(t, m.Replace([]limits.Limit{{Resource: "r", Quotas: append(perMinute(1), shared)}}), "not one counter")
}

// Who does not import this package compiles no YAML.
func TestYAMLStaysHere(t *testing.T) {
	deps := func(packages ...string) string {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...).Output()
		require.NoError(t, err)
		return string(out)
	}
	require.NotContains(t, deps("..", "../wrap", "../httplimit", "../storage/memory", "../storage/redisstore"), "yaml")
	require.Contains(t, deps("."), "goccy/go-yaml")
}

func fileOf(limit int) string {
	return "limits:\n- resourceName: r\n  limit: " + strconv.Itoa(limit) + "\n  windowSec: 60\n"
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	_, err := limits.OpenFile(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, path, "limits: 5")
	_, err = limits.OpenFile(path)
	require.ErrorIs(t, err, limits.ErrInvalidLimit)
	write(t, path, fileOf(1))
	f, err := limits.OpenFile(path)
	require.NoError(t, err)
	require.EqualValues(t, 1, limitOf(t, f, "a"))
	source := f.Source("r")

	write(t, path, fileOf(2))
	require.EqualValues(t, 1, limitOf(t, f, "a"))
	require.NoError(t, f.Reload())
	require.EqualValues(t, 2, limitOf(t, f, "a"))
	quotas, err := source.Quotas(t.Context(), "a")
	require.NoError(t, err)
	require.EqualValues(t, 2, quotas[0].Limit)

	write(t, path, fileOf(3)+"  windowMs: 5\n")
	require.EqualError(t, f.Reload(), path+": limits: invalid limit: line 5, column 3: limits[0].windowMs: unknown field; there are resourceName, accountId, limit, windowSec, quotas")
	require.EqualValues(t, 2, limitOf(t, f, "a"), "the old one stays")
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, f.Reload(), os.ErrNotExist)
	require.EqualValues(t, 2, limitOf(t, f, "a"))
}

// The file is real, the clock is not.
func TestFileWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		mtime := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		change := func(text string) {
			write(t, path, text)
			mtime = mtime.Add(time.Second)
			require.NoError(t, os.Chtimes(path, mtime, mtime))
		}
		change(fileOf(1))
		f, err := limits.OpenFile(path)
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
			ended <- f.Watch(ctx, time.Second, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			})
		}()
		look := func(looks int) {
			time.Sleep(time.Duration(looks) * time.Second)
			synctest.Wait()
		}
		look(3)
		require.Empty(t, told())

		change(fileOf(2))
		look(1)
		require.Empty(t, told(), "seen, and left to settle")
		look(1)
		require.Equal(t, []error{nil}, told())
		require.EqualValues(t, 2, limitOf(t, f, "a"))
		look(5)
		require.Len(t, told(), 1)

		for range 5 { // it is written all the time
			change(fileOf(3) + "  broken\n")
			look(1)
		}
		require.Len(t, told(), 1)
		look(5)
		require.Len(t, told(), 2, "told once")
		require.ErrorIs(t, told()[1], limits.ErrInvalidLimit)
		require.EqualValues(t, 2, limitOf(t, f, "a"))

		require.NoError(t, os.Remove(path))
		look(5)
		require.Len(t, told(), 3)
		require.ErrorIs(t, told()[2], os.ErrNotExist)
		require.EqualValues(t, 2, limitOf(t, f, "a"))

		change(fileOf(4))
		look(2)
		require.Len(t, told(), 4)
		require.NoError(t, told()[3])
		require.EqualValues(t, 4, limitOf(t, f, "a"))

		// Another file of the same size and time is moved into its place.
		write(t, path+".new", fileOf(5))
		require.NoError(t, os.Chtimes(path+".new", mtime, mtime))
		require.NoError(t, os.Rename(path+".new", path))
		look(2)
		require.EqualValues(t, 5, limitOf(t, f, "a"))

		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorContains(t, f.Watch(t.Context(), 0, nil), "interval 0s")
	})
}

func TestFileWatchTellsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, fileOf(1))
	f, err := limits.OpenFile(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- f.Watch(ctx, time.Millisecond, nil) }()
	write(t, path, fileOf(22))
	require.Eventually(t, func() bool { return limitOf(t, f, "a") == 22 }, time.Minute, time.Millisecond)
	cancel()
	<-ended
}
