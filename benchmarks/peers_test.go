package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
	"github.com/granule-limits/ratelimit/wrap"
)

// ten is a limit that a test can use up, in a window that does not end meanwhile.
var ten = limit{10, 1000 * time.Hour}

// admitsTen tells that of 20 calls of an item the first 10 are allowed, and that another
// item has a limit of its own.
func admitsTen[T any](t *testing.T, c contender[T], one, another T) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		b, err := c.open()
		require.NoError(t, err)
		if b.close != nil {
			defer b.close()
		}
		for i := range 20 {
			allowed, err := b.call(one)
			require.NoError(t, err)
			require.Equal(t, i < 10, allowed, "call %d", i+1)
		}
		allowed, err := b.call(another)
		require.NoError(t, err)
		require.True(t, allowed, "the other's first call")
	})
}

func TestMemoryAdmitsTen(t *testing.T) {
	cs := memoryPeers(ten)
	for _, s := range strategies {
		cs = append(cs, s.inMemory(ten, nil))
	}
	require.Len(t, cs, 5+5)
	for _, c := range cs {
		admitsTen(t, c, "a", "b")
	}
}

func TestRedisAdmitsTen(t *testing.T) {
	s := needRedis(t)
	args := fixedWindowArgs(ten)
	cs := []contender[string]{
		s.redisRate(ten, plainly), s.redisRate(ten, pipelined),
		s.ulule(ten, plainly), s.ulule(ten, pipelined),
		s.throttled(ten), s.rueidisScript(ten),
		s.script("fixed window", fixedWindow, ten, plainly, args[0], args[1]),
		s.wrapped("coalesced", ten, wrap.Coalesce), s.wrapped("deny cache", ten, denyCache),
	}
	for _, st := range strategies {
		cs = append(cs, s.ours(st, ten, plainly, 1, nil), s.ours(st, ten, pipelined, 2, nil))
	}
	for _, c := range cs {
		admitsTen(t, c, "a", "b")
	}
}

func TestMiddlewaresAdmitTen(t *testing.T) {
	for _, headers := range []bool{false, true} {
		for _, c := range middlewares(ten, headers) {
			e := exchanges(2)
			admitsTen(t, c, e[0], e[1])
			switch told := e[1].header.Values("X-RateLimit-Remaining"); {
			case headers:
				require.Equal(t, []string{"9"}, told, c.name)
				require.Len(t, e[0].header.Values("X-RateLimit-Remaining"), 1, "%s, after 20 answers", c.name)
			case c.name == thisLibrary || c.name == "httprate":
				require.Empty(t, e[1].header, c.name)
			}
		}
	}
}

// A filled key has a unit in each granule but the current one.
func TestFill(t *testing.T) {
	now := time.Now()
	for _, st := range []strategy{sliding, sliding.with(3600)} {
		policy, err := st.policy(memory.New(), highHour, 1)
		require.NoError(t, err)
		require.NoError(t, fill(policy, []string{"a"}, now, time.Hour/time.Duration(st.granules), st.granules))
		d, err := policy.Allow(t.Context(), "a", ratelimit.At(now))
		require.NoError(t, err)
		require.EqualValues(t, highHour.units-st.granules, d.Remaining)
		d, err = policy.Allow(t.Context(), "a", ratelimit.At(now.Add(time.Hour/2)))
		require.NoError(t, err)
		require.EqualValues(t, highHour.units-st.granules/2-1, d.Remaining, "a granule at a time expires")
	}
}

func TestGrantedOf(t *testing.T) {
	s := needRedis(t)
	granted, err := s.grantedOf(limit{100, 1000 * time.Hour}, 500)
	require.NoError(t, err)
	require.EqualValues(t, 100, granted)
}

// What a DenyCache would let through is counted.
func TestCountingDenials(t *testing.T) {
	s := needRedis(t)
	l := load[string]{items: userKeys(3), goroutines: 4, batch: 1}
	var asked worst
	_, err := runOnce(small(t), s.countingDenials(denyCache, 3, "cached", &asked), l)
	require.NoError(t, err)
	require.InDelta(t, 1, asked.ratio, 1e-9)

	nothing := func(limiter ratelimit.Limiter) ratelimit.Limiter { return limiter }
	_, err = runOnce(small(t), s.countingDenials(nothing, 3, "not cached", &asked), l)
	require.NoError(t, err)
	require.Greater(t, asked.ratio, 1.0)
	require.Equal(t, "not cached", asked.where)
}

func TestEvalStats(t *testing.T) {
	s := needRedis(t)
	b, err := s.script("empty", emptyScript, high, plainly).open()
	require.NoError(t, err)
	defer b.close()
	require.NoError(t, s.resetStats())
	calls, nanos, err := s.evalStats()
	require.NoError(t, err)
	require.Zero(t, calls)
	require.Zero(t, nanos)
	for range 3 {
		_, err := b.call("a")
		require.NoError(t, err)
	}
	calls, _, err = s.evalStats()
	require.NoError(t, err)
	require.EqualValues(t, 3, calls)
}
