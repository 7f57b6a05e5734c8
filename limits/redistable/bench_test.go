package redistable_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/limits"
)

// A lookup without a cache.
func BenchmarkQuotas(b *testing.B) {
	table := newTable(b, redistest.Start(b).Client(b))
	load(b, table, "billing", limit("a", "", 1))
	for b.Loop() {
		_, err := table.Quotas(b.Context(), "a", "x")
		require.NoError(b, err)
	}
}

// A load of 20,000 limits of one resource; server-ms is the time of its script, in
// which the server does nothing else.
func BenchmarkLoad(b *testing.B) {
	client := redistest.Start(b).Client(b)
	table := newTable(b, client)
	lists := [2][]limits.Limit{}
	for i := range 20_000 {
		lists[0] = append(lists[0], limit("a", fmt.Sprint("acct-", i), 1))
		lists[1] = append(lists[1], limit("a", fmt.Sprint("acct-", i), 2))
	}
	for _, c := range []struct {
		name string
		list func(i int) []limits.Limit
	}{
		{"nothing to do", func(int) []limits.Limit { return lists[0] }},
		{"all change", func(i int) []limits.Limit { return lists[i%2] }},
		{"all come and go", func(i int) []limits.Limit { return lists[0][:len(lists[0])*(i%2)] }},
	} {
		b.Run(c.name, func(b *testing.B) {
			load(b, table, "billing", c.list(0)...)
			require.NoError(b, client.ConfigResetStat(b.Context()).Err())
			i := 0
			for b.Loop() {
				i++
				load(b, table, "billing", c.list(i)...)
			}
			var calls, usec float64
			info := client.InfoMap(b.Context(), "commandstats").Item("Commandstats", "cmdstat_eval")
			_, err := fmt.Sscanf(info, "calls=%g,usec=%g", &calls, &usec)
			require.NoError(b, err)
			b.ReportMetric(usec/calls/1000, "server-ms/op")
		})
	}
}
