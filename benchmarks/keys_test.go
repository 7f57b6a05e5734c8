package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each key of a flood is new, the hot key is asked for between them, and what it is let
// through is counted. Slow calls are found.
func TestFlood(t *testing.T) {
	seen := map[string]int{}
	f := flood{text: randomText(1000 + keyLength), allow: func(key string) (bool, error) {
		seen[key]++
		if key != "hot" && len(seen)%200 == 0 {
			time.Sleep(time.Millisecond)
		}
		return true, nil
	}}
	require.NoError(t, f.stretch(make([]uint32, 1000)))
	require.Len(t, seen, 1001)
	require.Equal(t, 10, seen["hot"])
	require.Equal(t, 10, f.admitted)
	require.GreaterOrEqual(t, f.tails[0], 1e6, "more than one call in a thousand took a ms")
	require.Less(t, f.medians[0], f.tails[0])
	require.Positive(t, f.heaps[0])
}

func TestHeapPerKey(t *testing.T) {
	var kept [][]byte
	c := contender[string]{name: "c", open: func() (bench[string], error) {
		kept = make([][]byte, 0, 1000)
		return bench[string]{call: func(string) (bool, error) {
			kept = append(kept, make([]byte, 4096))
			return true, nil
		}}, nil
	}}
	bytes, err := heapPerKey(c, 1000)
	require.NoError(t, err)
	require.InDelta(t, 4096+24, bytes, 300)
	require.Len(t, kept, 1000)
}
