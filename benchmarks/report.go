package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// atWorst is atMost for the worst of several cases.
func atWorst(what string, w worst, bound float64) bar {
	return atMost(what+", at worst ("+w.where+")", w.ratio, bound, " ×")
}

// A report is what a group of cases found out.
type report struct {
	tables []table
	bars   []bar
	charts []chart
}

// A table is one of Markdown: cases by contenders.
type table struct {
	caption string
	columns []string // without the first, of the rows' names
	rows    []row
}

type row struct {
	name  string
	cells []string
}

func (t *table) add(name string, cells ...string) { t.rows = append(t.rows, row{name, cells}) }

func (t table) String() string {
	var b strings.Builder
	if t.caption != "" {
		b.WriteString(t.caption + "\n\n")
	}
	line := func(name string, cells []string) {
		b.WriteString("| " + strings.Join(append([]string{name}, cells...), " | ") + " |\n")
	}
	line("", t.columns)
	b.WriteString("|---|" + strings.Repeat("---:|", len(t.columns)) + "\n")
	for _, r := range t.rows {
		line(r.name, r.cells)
	}
	return b.String()
}

// addCase adds what contenders did as a row: time, allocations, and the ratio of the time
// to that of the first.
func (t *table) addCase(name string, results []result) {
	cells := make([]string, len(results))
	t.columns = t.columns[:0]
	for i, r := range results {
		t.columns = append(t.columns, r.name)
		cells[i] = fmt.Sprintf("%s · %s · %s", duration(r.time()), allocations(r.allocs()), times(r.ratio(results[0])))
	}
	t.add(name, cells...)
}

// A bar is what a result is measured by.
type bar struct {
	what    string
	bound   string
	got     string
	reached bool
}

func atMost(what string, got, bound float64, unit string) bar {
	return bar{what, "at most " + figure(bound) + unit, figure(got) + unit, got <= bound}
}

func atLeast(what string, got, bound float64, unit string) bar {
	return bar{what, "at least " + figure(bound) + unit, figure(got) + unit, got >= bound}
}

func (b bar) String() string {
	verdict := "reached"
	if !b.reached {
		verdict = "**MISSED**"
	}
	return fmt.Sprintf("- %s: %s: %s (%s)\n", verdict, b.what, b.got, b.bound)
}

// Markdown is the whole report. Charts stand by their place under dir.
func (r report) Markdown(dir string) string {
	var parts []string
	for _, t := range r.tables {
		parts = append(parts, t.String())
	}
	for _, c := range r.charts {
		image := ""
		if dir != "" {
			image = fmt.Sprintf("![%s](%s/%s.svg)\n\n", c.title, dir, c.name)
		}
		parts = append(parts, image+c.table().String())
	}
	if len(r.bars) > 0 {
		var b strings.Builder
		for _, bar := range r.bars {
			b.WriteString(bar.String())
		}
		parts = append(parts, b.String())
	}
	return strings.Join(parts, "\n")
}

// duration is ns with three digits.
func duration(nanos float64) string {
	switch {
	case nanos < 1e3:
		return figure(nanos) + " ns"
	case nanos < 1e6:
		return figure(nanos/1e3) + " µs"
	}
	return time.Duration(nanos).Round(time.Microsecond * 10).String()
}

// allocations is a number a call. What is less than one in twenty calls is the
// machinery's.
func allocations(n float64) string {
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

func times(ratio float64) string { return figure(ratio) + " ×" }

// figure has three digits, and no more of a whole number than it has.
func figure(f float64) string {
	switch {
	case f == math.Trunc(f) && f < 1e15:
		return thousands(int(f))
	case f < 10:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 100:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return thousands(int(math.Round(f)))
}

// thousands is a number with its thousands apart.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
