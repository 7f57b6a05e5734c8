package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
)

// The log of a counter that is always in use does not grow: the room of what expired
// is used again.
func TestLogStaysShort(t *testing.T) {
	const alive = 60
	c := storage.Cell{Limit: 1000, Burst: 1000, Window: time.Minute.Microseconds(), Granularity: 1}
	var s storage.State
	g := &granules{}
	for i := range int64(2000) {
		at := i * time.Second.Microseconds()
		s = g.Use(s, &c, at, 1)
		require.EqualValues(t, min(i+1, alive), g.Count(s, &c, at))
		require.LessOrEqual(t, len(s), wordLog+2*entryWords*alive)
	}
	require.LessOrEqual(t, cap(s), 4*entryWords*alive)
}
