package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	topKeys    = 10
	shownRunes = 100 // of a key, in text
)

// A result is what one strategy would have done.
type result struct {
	Strategy    string    `json:"strategy,omitempty"`
	Requests    int64     `json:"requests"`
	Admitted    int64     `json:"admitted"`
	Refused     int64     `json:"refused"`
	Malformed   int64     `json:"malformed"`
	Keys        int       `json:"keys"`
	LimitedKeys int       `json:"limited_keys"`
	Top         []limited `json:"top"`
}

// limited is a key of which requests were refused.
type limited struct {
	Key      string `json:"key"`
	Refused  int64  `json:"refused"`
	Requests int64  `json:"requests"`
}

// results are those of the strategies, in order.
func (r *replay) results() []result {
	var results []result
	for i, s := range r.strategies {
		results = append(results, r.result(i, s.name))
	}
	return results
}

func (r *replay) result(i int, strategy string) result {
	res := result{Strategy: strategy, Requests: r.requests, Malformed: r.malformed, Keys: len(r.keys)}
	top := []limited{} // in JSON [], not null
	for key, t := range r.keys {
		if n := t.refused[i]; n > 0 {
			res.Refused += n
			top = append(top, limited{Key: key, Refused: n, Requests: t.requests})
		}
	}
	res.Admitted = res.Requests - res.Refused
	res.LimitedKeys = len(top)
	slices.SortFunc(top, func(a, b limited) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Key, b.Key))
	})
	res.Top = top[:min(len(top), topKeys)]
	return res
}

func report(w io.Writer, c *config, results []result) error {
	switch all := c.strategy == allStrategies; {
	case c.json && all:
		return writeJSON(w, results)
	case c.json:
		results[0].Strategy = "" // the caller named it
		return writeJSON(w, results[0])
	case all:
		return writeTable(w, c, results)
	default:
		return writeText(w, c, results[0])
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func writeText(w io.Writer, c *config, r result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n\n", r.Strategy, describe(c))
	fmt.Fprintf(&b, "requests      %8d\n", r.Requests)
	fmt.Fprintf(&b, "admitted      %8d\n", r.Admitted)
	fmt.Fprintf(&b, "refused       %8d  %s\n", r.Refused, percent(r))
	fmt.Fprintf(&b, "malformed     %8d\n", r.Malformed)
	fmt.Fprintf(&b, "keys          %8d\n", r.Keys)
	fmt.Fprintf(&b, "limited keys  %8d\n", r.LimitedKeys)
	if len(r.Top) > 0 {
		fmt.Fprintf(&b, "\n%8s  %8s  most limited\n", "refused", "requests")
	}
	for _, k := range r.Top {
		fmt.Fprintf(&b, "%8d  %8d  %s\n", k.Refused, k.Requests, printable(k.Key))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTable compares the strategies, one to a line.
func writeTable(w io.Writer, c *config, results []result) error {
	var b strings.Builder
	r := results[0]
	fmt.Fprintf(&b, "%s\n%d requests, %d keys, %d malformed lines\n\n", describe(c), r.Requests, r.Keys, r.Malformed)
	fmt.Fprintf(&b, "%-15s  %8s  %8s  %6s  %12s  most limited\n", "strategy", "admitted", "refused", "", "limited keys")
	for _, r := range results {
		most := "-"
		if len(r.Top) > 0 {
			most = fmt.Sprintf("%s, %d of %d refused", printable(r.Top[0].Key), r.Top[0].Refused, r.Top[0].Requests)
		}
		fmt.Fprintf(&b, "%-15s  %8d  %8d  %6s  %12d  %s\n", r.Strategy, r.Admitted, r.Refused, percent(r), r.LimitedKeys, most)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe is the limit, in words.
func describe(c *config) string {
	s := fmt.Sprintf("%d per %s for each %s", c.quota.Limit, short(c.quota.Window), c.key)
	if c.quota.Granularity > 0 {
		s += ", granularity " + short(c.quota.Granularity)
	}
	if c.quota.Burst > 0 {
		s += fmt.Sprintf(", burst %d", c.quota.Burst)
	}
	return s
}

// short is a duration without the zeros at its end: 1m, not 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// percent is the part of the requests that were refused.
func percent(r result) string {
	return fmt.Sprintf("%.1f%%", 100*float64(r.Refused)/float64(max(1, r.Requests)))
}

// printable is a key as a terminal can show it, quoted if it must be: keys are
// what clients sent.
func printable(key string) string {
	if i := strings.IndexFunc(key, func(c rune) bool { return !strconv.IsPrint(c) }); i >= 0 || !utf8.ValidString(key) {
		key = strconv.Quote(key)
	}
	if runes := []rune(key); len(runes) > shownRunes {
		key = string(runes[:shownRunes]) + "…"
	}
	return key
}
