package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	tab := table{caption: "A caption."}
	tab.addCase("1 key", []result{
		{"ours", []sample{{62, 0}, {60, 0}, {64, 0.01}}},
		{"peer", []sample{{124, 2}, {150, 2}, {128, 2}}},
	})
	require.Equal(t, "A caption.\n\n"+
		"|  | ours | peer |\n"+
		"|---|---:|---:|\n"+
		"| 1 key | 62 ns · 0 · 1 × | 128 ns · 2 · 2 × |\n", tab.String())
}

func TestFigures(t *testing.T) {
	for want, f := range map[string]float64{"0": 0, "1": 1, "0.12": 0.1234, "9.87": 9.871, "12.3": 12.34, "123": 123.4, "1,234,567": 1234567, "12": 12} {
		require.Equal(t, want, figure(f))
	}
	require.Equal(t, "71.5 ns", duration(71.5))
	require.Equal(t, "1.50 µs", duration(1500))
	require.Equal(t, "12.35ms", duration(12_345_678))
	require.Equal(t, []string{"0", "0.3", "12"}, []string{allocations(0.04), allocations(0.3), allocations(12.01)})
	require.Equal(t, []string{"999", "1,000", "1,000,000"}, []string{thousands(999), thousands(1000), thousands(1_000_000)})
}

// At the bound a bar is reached, and what is missed says so.
func TestBars(t *testing.T) {
	require.Equal(t, "- reached: x: 0.90 × (at most 0.90 ×)\n", atMost("x", 0.9, 0.9, " ×").String())
	require.Equal(t, "- **MISSED**: x: 0.91 × (at most 0.90 ×)\n", atMost("x", 0.91, 0.9, " ×").String())
	require.Equal(t, "- reached: x: 15 × (at least 15 ×)\n", atLeast("x", 15, 15, " ×").String())
	require.Equal(t, "- **MISSED**: x: 14.9 × (at least 15 ×)\n", atLeast("x", 14.9, 15, " ×").String())
	require.Equal(t, "- **MISSED**: x, at worst (1 key): 2 × (at most 1 ×)\n", atWorst("x", worst{2, "1 key"}, 1).String())
}

func TestReplaceBetween(t *testing.T) {
	page := "a\n<!-- table:x -->\nold\n<!-- end:x -->\nb\n<!-- table:y -->\n<!-- end:y -->\n"
	got, err := replaceBetween(page, "x", "new\n\n")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(page, "old", "new", 1), got)
	again, err := replaceBetween(got, "x", "new")
	require.NoError(t, err)
	require.Equal(t, got, again)
	_, err = replaceBetween(page, "z", "new")
	require.ErrorContains(t, err, "<!-- table:z -->")
	_, err = replaceBetween("<!-- table:z -->", "z", "new")
	require.Error(t, err)
}

func testChart(log bool) chart {
	return chart{name: "c", title: "A & B", x: "keys", y: "time", points: []float64{1, 10, 100}, log: log, lines: []line{
		{"<first>", []float64{1, 1.5, 0.3}},
		{"second", []float64{2, 7.1, 0.31}},
	}}
}

func TestChart(t *testing.T) {
	for _, log := range []bool{false, true} {
		c := testChart(log)
		svg := c.SVG()
		decoder := xml.NewDecoder(strings.NewReader(svg))
		var texts []string
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if s, ok := token.(xml.CharData); ok {
				texts = append(texts, string(s))
			}
		}
		for _, want := range []string{"A & B", "keys", "time", "1", "10", "100", "<first>", "second"} {
			require.Contains(t, texts, want)
		}
		require.Equal(t, 6, strings.Count(svg, "<circle"))
		require.Contains(t, svg, "prefers-color-scheme:dark")
		for _, l := range c.lines {
			for _, v := range l.values {
				require.GreaterOrEqual(t, c.yAt(v), float64(top))
				require.LessOrEqual(t, c.yAt(v), float64(chartHeight-bottom))
			}
		}
		places := c.labelPlaces()
		require.GreaterOrEqual(t, places[0]-places[1], 16.0, "names stand apart, in the order of the lines")
	}
	require.Greater(t, testChart(false).yAt(1), testChart(false).yAt(2), "more is higher")
}

func TestChartTable(t *testing.T) {
	require.Equal(t, "A & B: time, by keys.\n\n"+
		"|  | 1 | 10 | 100 |\n|---|---:|---:|---:|\n"+
		"| <first> | 1 | 1.50 | 0.30 |\n| second | 2 | 7.10 | 0.31 |\n", testChart(false).table().String())
}
