package tokens

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What has ended takes no memory, also that of accounts that nobody asks for again.
func TestMemoryKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		p, err := New("p", m, Fixed(2))
		require.NoError(t, err)
		for i := range 1000 {
			r, err := p.Reserve(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			if i%2 == 0 {
				require.NoError(t, r.Bind(t.Context(), fmt.Sprint("i-", i)))
			}
			if i%4 == 0 {
				_, err = p.Release(t.Context(), fmt.Sprint("i-", i))
				require.NoError(t, err)
			}
		}
		require.Len(t, m.accounts, 750)
		time.Sleep(5 * time.Minute)
		_, err = p.InUse(t.Context(), "another")
		require.NoError(t, err)
		require.Len(t, m.accounts, 250)
		require.Len(t, m.bound, 250)
		time.Sleep(8 * time.Hour)
		_, err = p.InUse(t.Context(), "another")
		require.NoError(t, err)
		require.Empty(t, m.accounts)
		require.Empty(t, m.bound)
		require.Empty(t, m.ends)
	})
}
