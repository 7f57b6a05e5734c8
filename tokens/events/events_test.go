package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pool has a token for each of the resources.
func newPool(t testing.TB, resources ...string) *tokens.Pool {
	p, err := tokens.New("clusters", tokens.NewMemory(), tokens.Fixed(100))
	require.NoError(t, err)
	bind(t, p, resources...)
	return p
}

func bind(t testing.TB, p *tokens.Pool, resources ...string) {
	for _, resource := range resources {
		r, err := p.Reserve(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, r.Bind(t.Context(), resource))
	}
}

func inUse(t testing.TB, p *tokens.Pool) (resources []string) {
	places, err := p.List(t.Context(), "a")
	require.NoError(t, err)
	for _, place := range places {
		resources = append(resources, place.Resource)
	}
	return resources
}

func newManager(t testing.TB, processors ...events.Processor) *events.Manager {
	m, err := events.NewManager(processors)
	require.NoError(t, err)
	return m
}

func process(t testing.TB, m *events.Manager, event string) events.Result {
	t.Helper()
	r, err := m.Process(t.Context(), []byte(event))
	require.NoError(t, err)
	return r
}

// What a cluster says over its life, and its account gets a place back at the end.
func TestCluster(t *testing.T) {
	p := newPool(t, "j-1YONHTCP3YZKC", "j-2")
	m := newManager(t, events.Processor{
		Source: "aws.emr",
		Match:  events.And(events.Is("detail.state", "COMPLETED", "TERMINATED"), events.Where("detail.name", func(v any) bool { return !strings.Contains(v.(string), "debugging") })),
		IDPath: "detail.clusterId",
		Pool:   p,
	})
	const event = `{"source": "aws.emr", "detail-type": "EMR Cluster State Change", "detail": {"clusterId": "j-1YONHTCP3YZKC", "name": %q, "state": %q}}`
	for _, state := range []string{"STARTING", "RUNNING"} {
		require.Equal(t, events.Result{}, process(t, m, fmt.Sprintf(event, "nightly", state)))
	}
	require.False(t, process(t, m, fmt.Sprintf(event, "debugging", "TERMINATED")).Matched)
	require.Len(t, inUse(t, p), 2)
	r := process(t, m, fmt.Sprintf(event, "nightly", "TERMINATED"))
	require.Equal(t, events.Result{Matched: true, IDs: []string{"j-1YONHTCP3YZKC"}, Released: []string{"j-1YONHTCP3YZKC"}}, r)
	require.Equal(t, []string{"j-2"}, inUse(t, p))
	r = process(t, m, fmt.Sprintf(event, "nightly", "TERMINATED"))
	require.Equal(t, events.Result{Matched: true, IDs: []string{"j-1YONHTCP3YZKC"}}, r, "again, without an event id")
	require.Equal(t, []string{"j-2"}, inUse(t, p))
}

// The processor of the type, then that of the source, then none.
func TestProcessor(t *testing.T) {
	p := newPool(t, "typed", "any")
	m := newManager(t,
		events.Processor{Source: "s", IDPath: "any", Pool: p},
		events.Processor{Source: "s", DetailType: "State Change", IDPath: "typed", Pool: p},
		events.Processor{Source: "only", DetailType: "State Change", IDPath: "typed", Pool: p},
	)
	for event, want := range map[string][]string{
		`{"source": "s", "typed": "typed", "any": "any", "detail-type": "State Change"}`: {"typed"},
		`{"source": "s", "typed": "typed", "any": "any", "detail-type": "State change"}`: {"any"},
		`{"source": "s", "typed": "typed", "any": "any", "detail-type": 1}`:              {"any"},
		`{"source": "s", "typed": "typed", "any": "any"}`:                                {"any"},
	} {
		require.Equal(t, want, process(t, m, event).IDs, event)
	}
	for event, want := range map[string]error{
		`{"source": "only", "typed": "typed"}`:                        events.ErrUnhandled,
		`{"source": "only", "typed": "typed", "detail-type": "Else"}`: events.ErrUnhandled,
		`{"source": "S", "typed": "typed"}`:                           events.ErrUnhandled,
		`{"detail": {"state": "TERMINATED"}}`:                         events.ErrNoSource,
		`{"source": "", "typed": "typed"}`:                            events.ErrNoSource,
		`{"source": ["s"], "typed": "typed"}`:                         events.ErrNoSource,
		``:                                                            events.ErrInvalidEvent,
		`null`:                                                        events.ErrInvalidEvent,
		`[]`:                                                          events.ErrInvalidEvent,
		`"s"`:                                                         events.ErrInvalidEvent,
		`{"source": "s"`:                                              events.ErrInvalidEvent,
		`{"source": "s"} {}`:                                          events.ErrInvalidEvent,
		`{"source": "s", "any": ""}`:                                  events.ErrInvalidEvent,
		`{"source": "s", "any": {}}`:                                  events.ErrInvalidEvent,
		`{"source": "s", "any": []}`:                                  nil,
		`{"source": "s", "any": 1}`:                                   nil,
		`{"source": "s"}`:                                             nil,
		`{"source": "s", "any": null}`:                                nil,
		`{"source": "s", "any": ["x", true]}`:                         events.ErrInvalidEvent,
		`{"source": "s", "any": ["any", ""]}`:                         events.ErrInvalidEvent,
		strings.Repeat(`{"source":`, 20_000) + `"s"`:                  events.ErrInvalidEvent,
	} {
		before := inUse(t, p)
		r, err := m.Process(t.Context(), []byte(event))
		if want == nil {
			require.NoError(t, err, event)
		} else {
			require.ErrorIs(t, err, want, event)
			require.Equal(t, events.Result{}, r)
		}
		require.Equal(t, before, inUse(t, p), event)
	}
	_, err := m.Process(t.Context(), []byte(`{"source": "other", "detail-type": "x"}`))
	require.ErrorContains(t, err, `source "other", detail-type "x"`)
}

// Ids stand at a path, one or several, and are any text.
func TestIDs(t *testing.T) {
	for _, c := range []struct {
		path, event string
		want        []string
	}{
		{`id`, `{"id": "i-1"}`, []string{"i-1"}},
		{`detail.ids`, `{"detail": {"ids": ["i-1", "i-2", "i-1"]}}`, []string{"i-1", "i-2"}},
		{`detail.instances.id`, `{"detail": {"instances": [{"id": "i-1"}, {}, {"id": ["i-2", "i-3"]}, {"id": null}]}}`, []string{"i-1", "i-2", "i-3"}},
		{`detail.id`, `{"detail": {"id": 123456789012345678901234567890}}`, []string{"123456789012345678901234567890"}},
		{`detail.id`, `{"detail": {"id": 1.50}}`, []string{"1.50"}},
		{`detail.k8s\.io.id`, `{"detail": {"k8s.io": {"id": "i-1"}, "k8s": {"io": {"id": "i-2"}}}}`, []string{"i-1"}},
		{`a\\b`, `{"a\\b": "i-1"}`, []string{"i-1"}},
		{`détail. `, `{"détail": {" ": "\u0000{}"}}`, []string{"\x00{}"}},
		{`detail.id.id`, `{"detail": {"id": "i-1"}}`, nil},
		{`Detail.id`, `{"detail": {"id": "i-1"}}`, nil},
	} {
		p := newPool(t, c.want...)
		m := newManager(t, events.Processor{Source: "s", IDPath: c.path, Pool: p})
		r := process(t, m, `{"source": "s", `+c.event[1:])
		require.Equal(t, c.want, r.IDs, c.path)
		require.Equal(t, c.want, r.Released, c.path)
		require.Empty(t, inUse(t, p))
	}
}

func TestPredicates(t *testing.T) {
	const event = `{"source": "s", "id": "i", "b": true, "f": false, "t": "text", "e": "", "n": 7, "z": 0, "x": 1.50, "big": 9007199254740993,
		"max": 18446744073709551615, "point": 9007199254740993.0, "minus": -0.0e7, "beyond": 1e99999999999, "huge": 1e999999999, "null": null, "list": [1, "two", null, [3]], "deep": {"list": [{"a": 1}, {"a": 2}]}}`
	yes, no := events.Is("b", true), events.Is("b", false)
	for name, c := range map[string]struct {
		p    events.Predicate
		want bool
	}{
		"zero":                {events.Predicate{}, true},
		"bool":                {events.Is("b", true), true},
		"other bool":          {events.Is("b", false), false},
		"false is a value":    {events.Is("f", false), true},
		"text":                {events.Is("t", "text"), true},
		"text, to the case":   {events.Is("t", "Text"), false},
		"empty text":          {events.Is("e", ""), true},
		"one of":              {events.Is("t", "a", 1, "text"), true},
		"none of":             {events.Is("t", "a", 1, true), false},
		"number":              {events.Is("n", 7), true},
		"no text":             {events.Is("n", "7"), false},
		"uint8":               {events.Is("n", uint8(7)), true},
		"float":               {events.Is("n", 7.0), true},
		"zero number":         {events.Is("z", 0), true},
		"fraction":            {events.Is("x", 1.5), true},
		"json.Number":         {events.Is("x", json.Number("15e-1")), true},
		"beyond a double":     {events.Is("big", int64(9007199254740993)), true},
		"one less":            {events.Is("big", int64(9007199254740992)), false},
		"huge":                {events.Is("huge", math.MaxInt64), false},
		"huge, the same":      {events.Is("huge", json.Number("0.1E+1000000000")), true},
		"huge, one less":      {events.Is("huge", json.Number("1e999999998")), false},
		"beyond an int64":     {events.Is("max", uint64(math.MaxUint64)), true},
		"one less than that":  {events.Is("max", uint64(math.MaxUint64-1)), false},
		"beyond, as float":    {events.Is("max", float64(math.MaxUint64)), false},
		"with a fraction":     {events.Is("point", int64(9007199254740993)), true},
		"minus zero":          {events.Is("minus", 0), true},
		"not minus":           {events.Is("n", -7), false},
		"no exponent of ours": {events.Is("beyond", 1), false},
		"missing":             {events.Is("missing", "text"), false},
		"null is no value":    {events.Where("null", func(any) bool { return true }), false},
		"where":               {events.Where("t", func(v any) bool { return v == "text" }), true},
		"where, false":        {events.Where("t", func(any) bool { return false }), false},
		"where, number":       {events.Where("n", func(v any) bool { return v == json.Number("7") }), true},
		"where, missing":      {events.Where("missing", func(any) bool { panic("called") }), false},
		"in a list":           {events.Is("list", "two"), true},
		"in a list's list":    {events.Is("list", 3), true},
		"not in a list":       {events.Is("list", 2), false},
		"in objects":          {events.Is("deep.list.a", 2), true},
		"and":                 {events.And(yes, yes, yes), true},
		"and, first false":    {events.And(no, yes, yes), false},
		"and, last false":     {events.And(yes, yes, no), false},
		"or":                  {events.Or(yes, no), true},
		"or, last true":       {events.Or(no, no, yes), true},
		"or, all false":       {events.Or(no, no), false},
		"and of ors":          {events.And(events.Or(no, yes), events.Or(yes, no)), true},
		"or of ands":          {events.Or(events.And(no, yes), events.And(yes, no)), false},
		"and of one":          {events.And(yes), true},
		"deep":                {deep(999, yes), true},
		"deep, false":         {deep(999, no), false},
		"many, as one of":     {events.Or(slices.Repeat([]events.Predicate{no}, 9998)...), false},
		"the zero in an and":  {events.And(events.Predicate{}, yes), true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, events.Processor{Source: "s", IDPath: "id", Match: c.p, Pool: newPool(t)})
			require.Equal(t, c.want, process(t, m, event).Matched)
		})
	}
}

func deep(n int, p events.Predicate) events.Predicate {
	for i := range n {
		if i%2 == 0 {
			p = events.And(p)
		} else {
			p = events.Or(p)
		}
	}
	return p
}

// Any tree of predicates is true where a plain evaluation is.
func TestPredicateTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := make(map[string]any)
		for _, k := range []string{"a", "b", "c"} {
			event[k] = rapid.Bool().Draw(t, k)
		}
		p, want := drawTree(t, event, 6)
		maps.Copy(event, map[string]any{"source": "s"})
		text, err := json.Marshal(event)
		require.NoError(t, err)
		m, err := events.NewManager([]events.Processor{{Source: "s", IDPath: "id", Match: p, Pool: nothing{}}})
		require.NoError(t, err)
		r, err := m.Process(context.Background(), text)
		require.NoError(t, err)
		require.Equal(t, want, r.Matched)
	})
}

func drawTree(t *rapid.T, event map[string]any, depth int) (events.Predicate, bool) {
	kind := rapid.IntRange(0, 2).Draw(t, "kind")
	if depth == 0 || kind == 0 {
		k := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		v := rapid.Bool().Draw(t, "value")
		return events.Is(k, v), event[k] == v
	}
	var all []events.Predicate
	some, every := false, true
	for range rapid.IntRange(1, 3).Draw(t, "children") {
		p, is := drawTree(t, event, depth-1)
		all, some, every = append(all, p), some || is, every && is
	}
	if kind == 1 {
		return events.And(all...), every
	}
	return events.Or(all...), some
}

// Numbers are the same where they amount to the same, however they are written.
func TestNumbers(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,2}0{0,3})(\.[0-9]{1,3}0{0,3})?([eE][+-]?0?[0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "the same") {
			mantissa, exponent := a, ""
			if i := strings.IndexAny(a, "eE"); i >= 0 {
				mantissa, exponent = a[:i], a[i:]
			}
			if !strings.Contains(mantissa, ".") {
				mantissa += "."
			}
			b = mantissa + "0" + exponent
		}
		one, _ := new(big.Rat).SetString(a)
		other, _ := new(big.Rat).SetString(b)
		m, err := events.NewManager([]events.Processor{{Source: "s", IDPath: "id", Match: events.Is("n", json.Number(a)), Pool: nothing{}}})
		require.NoError(t, err)
		r, err := m.Process(context.Background(), fmt.Appendf(nil, `{"source": "s", "n": %s}`, b))
		require.NoError(t, err)
		require.Equal(t, one.Cmp(other) == 0, r.Matched)
	})
}

// Nobody changes a predicate by the slice that it was made of.
func TestPredicatesAreKept(t *testing.T) {
	for _, join := range []func(...events.Predicate) events.Predicate{events.And, events.Or} {
		is := []events.Predicate{events.Is("n", 1), events.Is("n", 1)}
		m := newManager(t, events.Processor{Source: "s", IDPath: "id", Match: join(is...), Pool: nothing{}})
		is[0], is[1] = events.Predicate{}, events.Predicate{}
		require.False(t, process(t, m, `{"source": "s", "n": 2}`).Matched)
	}
}

type nothing struct{}

func (nothing) Release(context.Context, string) (bool, error) { return false, nil }

func TestBadInput(t *testing.T) {
	good := events.Processor{Source: "s", IDPath: "detail.id", Pool: nothing{}}
	with := func(change func(*events.Processor)) []events.Processor {
		p := good
		change(&p)
		return []events.Processor{p}
	}
	match := func(p events.Predicate) []events.Processor {
		return with(func(g *events.Processor) { g.Match = p })
	}
	path := func(path string) []events.Processor {
		return with(func(g *events.Processor) { g.IDPath = path })
	}
	is := events.Is("a", 1)
	double := is
	for range 40 {
		double = events.And(double, double)
	}
	for says, processors := range map[string][]events.Processor{
		"no processors":                   nil,
		"the Source is empty":             with(func(p *events.Processor) { p.Source = "" }),
		"the Pool is nil":                 with(func(p *events.Processor) { p.Pool = nil }),
		`there is another for DetailType`: {good, good},
		"IDPath: the path is empty":       path(""),
		`path "." has an empty key`:       path("."),
		`path "a..b" has an empty key`:    path("a..b"),
		`path ".a" has an empty key`:      path(".a"),
		`path "a." has an empty key`:      path("a."),
		`path "a\\" has a backslash`:      path(`a\`),
		`path "a\\b" has a backslash`:     path(`a\b`),
		"has 1025 bytes, more than 1024":  path(strings.Repeat("a", 1025)),
		`events.Is("a"): no values`:       match(events.Is("a")),
		"<nil> is a <nil>, not a string":  match(events.Is("a", nil)),
		"[] is a []string":                match(events.Is("a", []string{})),
		"NaN is a float64":                match(events.Is("a", math.NaN())),
		"+Inf is a float64":               match(events.Is("a", math.Inf(1))),
		"0x1 is a json.Number":            match(events.Is("a", json.Number("0x1"))),
		"1e99999999999 is a json.Number":  match(events.Is("a", json.Number("1e99999999999"))),
		`events.Is: path "a..b"`:          match(events.Is("a..b", 1)),
		`events.Where: the path is empty`: match(events.Where("", func(any) bool { return true })),
		"the function is nil":             match(events.Where("a", nil)),
		"events.And: no predicates":       match(events.And()),
		"events.Or: no predicates":        match(events.And(is, events.Or(is, events.Or()))),
		"to a depth of 1001":              match(deep(1000, is)),
		"more than 10000 predicates":      match(events.Or(slices.Repeat([]events.Predicate{is}, 10_000)...)),
		"more than 10000":                 match(double),
	} {
		_, err := events.NewManager(processors)
		require.ErrorIs(t, err, events.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	for _, o := range []events.Option{events.WithRemembered(-1), events.WithMaxBody(0), events.WithOnError(nil)} {
		_, err := events.NewManager([]events.Processor{good}, o)
		require.ErrorIs(t, err, events.ErrInvalid)
	}
}

// An event that has released is not processed again, also if its resource's id is
// used again. One that has not, because its resource was not bound yet, is.
func TestDeliveredTwice(t *testing.T) {
	p := newPool(t, "i-1")
	m := newManager(t, events.Processor{Source: "s", IDPath: "detail.id", Pool: p})
	const event = `{"id": "e-1", "source": "s", "detail": {"id": "i-1"}}`
	require.Equal(t, []string{"i-1"}, process(t, m, event).Released)
	bind(t, p, "i-1")
	require.Equal(t, events.Result{Matched: true, Duplicate: true, IDs: []string{"i-1"}}, process(t, m, event))
	require.Equal(t, []string{"i-1"}, inUse(t, p))
	require.Equal(t, []string{"i-1"}, process(t, m, strings.Replace(event, "e-1", "e-2", 1)).Released)

	const early = `{"id": "e-3", "source": "s", "detail": {"id": "i-3"}}`
	require.Empty(t, process(t, m, early).Released)
	bind(t, p, "i-3")
	require.Equal(t, []string{"i-3"}, process(t, m, early).Released)
}

// What is remembered is bounded, and the oldest is forgotten first.
func TestRemembered(t *testing.T) {
	p := newPool(t)
	event := func(i int) []byte { return fmt.Appendf(nil, `{"id": "e-%d", "source": "s", "detail": "i"}`, i) }
	for _, bound := range []int{0, 1, 3} {
		m, err := events.NewManager([]events.Processor{{Source: "s", IDPath: "detail", Pool: p}}, events.WithRemembered(bound))
		require.NoError(t, err)
		for i := range 10 {
			bind(t, p, "i")
			r, err := m.Process(t.Context(), event(i))
			require.NoError(t, err)
			require.Len(t, r.Released, 1)
		}
		bind(t, p, "i")
		for i := 9; i >= 0; i-- {
			r, err := m.Process(t.Context(), event(i))
			require.NoError(t, err)
			require.Equal(t, i > 9-bound, r.Duplicate, "%d of %d", i, bound)
			if !r.Duplicate {
				require.Equal(t, []string{"i"}, r.Released)
				break
			}
		}
	}
}

// failing fails for one resource, a few times.
type failing struct {
	events.Pool
	resource string
	times    int
}

func (f *failing) Release(ctx context.Context, resource string) (bool, error) {
	if resource == f.resource && f.times > 0 {
		f.times--
		return false, fmt.Errorf("%w: 10.0.0.1 is down", storage.ErrUnavailable)
	}
	return f.Pool.Release(ctx, resource)
}

// The others are released, and the event can be processed again.
func TestReleaseFails(t *testing.T) {
	p := newPool(t, "1", "2", "3")
	m := newManager(t, events.Processor{Source: "s", IDPath: "ids", Pool: &failing{p, "2", 1}})
	const event = `{"id": "e", "source": "s", "ids": ["1", "2", "3"]}`
	r, err := m.Process(t.Context(), []byte(event))
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, `releasing "2"`)
	require.Equal(t, []string{"1", "3"}, r.Released)
	require.Equal(t, []string{"2"}, inUse(t, p))
	r, err = m.Process(t.Context(), []byte(event))
	require.NoError(t, err)
	require.Equal(t, []string{"2"}, r.Released)
}

// What a part of an event released is not released again when the event is sent again,
// by then it may be bound anew; what was not there is.
func TestReleaseFailsInPart(t *testing.T) {
	p := newPool(t, "1", "2")
	m := newManager(t, events.Processor{Source: "s", IDPath: "ids", Pool: &failing{p, "2", 2}})
	const event = `{"id": "e", "source": "s", "ids": ["1", "2", "3"]}`
	r, err := m.Process(t.Context(), []byte(event))
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.Equal(t, []string{"1"}, r.Released)
	bind(t, p, "1", "3")
	r, err = m.Process(t.Context(), []byte(event))
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.Equal(t, []string{"3"}, r.Released)
	bind(t, p, "3")
	require.Equal(t, []string{"2"}, process(t, m, event).Released)
	require.ElementsMatch(t, []string{"1", "3"}, inUse(t, p))
	require.True(t, process(t, m, event).Duplicate)

	m = newManager(t, events.Processor{Source: "s", IDPath: "ids", Pool: &failing{p, "2", 1}})
	_, err = m.Process(t.Context(), []byte(event))
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.Empty(t, process(t, m, event).Released)
	require.True(t, process(t, m, event).Duplicate, "it has released something, if not the last time")
	bind(t, p, "1", "3")
	require.Equal(t, []string{"1", "3"}, process(t, m, strings.Replace(event, `"e"`, `"f"`, 1)).Released)
}

// One event, many deliveries at once: one releases.
func TestAtTheSameTime(t *testing.T) {
	p := newPool(t, "1", "2")
	m := newManager(t, events.Processor{Source: "s", IDPath: "ids", Pool: p})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var released []string
	for range 32 {
		wg.Go(func() {
			r, err := m.Process(context.Background(), []byte(`{"id": "e", "source": "s", "ids": ["1", "2"]}`))
			mu.Lock()
			defer mu.Unlock()
			released = append(released, r.Released...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(released)
	require.Equal(t, []string{"1", "2"}, released)
}

func TestEndedContext(t *testing.T) {
	p := newPool(t, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newManager(t, events.Processor{Source: "s", IDPath: "id", Pool: p}).Process(ctx, []byte(`{"source": "s", "id": "1"}`))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, errors.Is(err, events.ErrInvalidEvent))
}

func FuzzProcess(f *testing.F) {
	f.Add(`{"id": "e", "source": "s", "detail": {"ids": ["1", 2]}}`, "detail.ids")
	f.Add(`{"source": "s", "a": [[[]]]}`, `a\.b.c`)
	f.Fuzz(func(t *testing.T, event, path string) {
		m, err := events.NewManager([]events.Processor{{Source: "s", IDPath: path, Match: events.Where("a", func(any) bool { return true }), Pool: nothing{}}})
		if err != nil {
			require.ErrorIs(t, err, events.ErrInvalid)
			return
		}
		r, err := m.Process(t.Context(), []byte(event))
		if err == nil {
			require.NotContains(t, r.IDs, "")
			require.Empty(t, r.Released)
		}
	})
}
