package httplimit

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		require.Zero(t, p.left("a"))
		p.add("a", 20*time.Second)
		p.add("a", 5*time.Second) // of an answer that was on its way meanwhile
		p.add("b", 0)
		require.Equal(t, 20*time.Second, p.left("a"))
		require.Zero(t, p.left("b"))
		time.Sleep(20 * time.Second)
		require.Zero(t, p.left("a"))
		require.Empty(t, p.until, "what is over is forgotten")
	})
}

// Pauses that nobody asks for again are forgotten, too, and others are not.
func TestPausesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		p.add("long", time.Hour)
		for i := range 10 * fewPauses {
			p.add(strconv.Itoa(i), time.Second)
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, len(p.until), fewPauses)
		require.Positive(t, p.left("long"))
	})
}
