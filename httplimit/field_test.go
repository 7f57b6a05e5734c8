package httplimit

import (
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

func TestExhausted(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  int64
	}{
		{nil, 0},
		{[]string{""}, 0},
		{[]string{`"a";r=0;t=5`}, 5},
		{[]string{`  "a"; r=0;  t=5  `}, 5},
		{[]string{`"a";r=0;t=5`, `"b";r=0;t=7`}, 7},
		{[]string{`"a";r=0;t=5 ,	"b";r=9;t=7`}, 5},
		{[]string{`"a\"\\";r=0;t=5;x;y=?1;z=tok/en:*;n=-1.500;d=@1;b=:YQ==:;s="x"`}, 5},
		{[]string{`"a";r=0;t=5;t=6`}, 6},
		{[]string{`"a";r=0;r=1;t=5`}, 0},
		{[]string{`a;r=0;t=5`}, 0}, // a Token is no String
		{[]string{`"a";r=00;t=005`}, 5},
		{[]string{`"a";t=5`}, 0},
		// malformed, all of it
		{[]string{`"a";r=0;t=5,`}, 0},
		{[]string{`"a";r=0;t=5,,"b"`}, 0},
		{[]string{`,"a";r=0;t=5`}, 0},
		{[]string{`"a";r=0;t=5`, ``}, 0},
		{[]string{`"a" ;r=0;t=5`}, 0},
		{[]string{`"a";r =0;t=5`}, 0},
		{[]string{`"a";r=0;t=5;`}, 0},
		{[]string{`"a";R=0;t=5`}, 0},
		{[]string{`"a";r=0;t=-5`}, 0},
		{[]string{`"a";r=0;t=5.0`}, 0},
		{[]string{`"a";r=0;t="5"`}, 0},
		{[]string{`"a";r;t=5`}, 0},
		{[]string{`"a";r=0;t=9999999999999999`}, 0}, // sixteen digits
		{[]string{`"a\n";r=0;t=5`}, 0},
		{[]string{`"ä";r=0;t=5`}, 0},
		{[]string{`"a";r=0;t=5;b=:Y:`}, 0},
		{[]string{`"a";r=0;t=5;b=:YQ==`}, 0},
		{[]string{`"a;r=0;t=5`}, 0},
		{[]string{`("a");r=0;t=5`}, 0},
		{[]string{`"a";r=0;t=5 "b"`}, 0},
		{[]string{`"a";r=0;t=5`, `"b";r=0;t=`}, 0},
	} {
		require.Equal(t, time.Duration(tt.want)*time.Second, exhausted(tt.lines), "%q", tt.lines)
	}
	require.Equal(t, maxSeconds*time.Second, exhausted([]string{`"a";r=0;t=999999999999999`}))
}

// What we take for a pause, another parser reads too, and finds the same.
func FuzzRateLimit(f *testing.F) {
	for _, s := range []string{`"a";r=0;t=5`, `"a";r=0;t=5, "b";r=1`, `"\"";x=:YQ==:;r=0;t=1`, `"a";r=0;t=5,`, `a;d=@5;f=1.5;b=?0`, `("a" "b");r=0`, `"a";r=0;t=9;s=%"x"`, `"a";r=0;t=9;b=:A:`} {
		f.Add(s, "")
		f.Add(`"z";r=0;t=1`, s)
	}
	f.Fuzz(func(t *testing.T, line1, line2 string) {
		lines := []string{line1, line2}
		if line2 == "" {
			lines = lines[:1]
		}
		got := exhausted(lines)
		if got == 0 {
			return
		}
		list, err := httpsfv.UnmarshalList(lines)
		require.NoError(t, err)
		var longest int64
		for _, member := range list {
			item := member.(httpsfv.Item)
			_, isString := item.Value.(string)
			r, _ := item.Params.Get("r")
			if left, _ := item.Params.Get("t"); isString && r == int64(0) && left != nil {
				longest = max(longest, left.(int64))
			}
		}
		require.Equal(t, time.Duration(min(longest, maxSeconds))*time.Second, got)
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:59 UTC", "99999999999999999999"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := map[string][]string{"Retry-After": {value}, "Date": {date}}
		d, ok := retryAfter(h, time.Unix(1e9, 0))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.True(t, ok || d == 0)
	})
}
