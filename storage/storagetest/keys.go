package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

// A counter is one that a request with one quota names.
type counter struct {
	strategy strategy
	request  ratelimit.RequestedQuota
}

// neighbors are counters with keys that differ from the first one's, and from
// each other's, in as little as can be.
func neighbors(prefix string) []counter {
	q := perHour(1000)
	wider, coarser := q, q
	wider.Window = 2 * time.Hour
	coarser.Granularity = 2 * time.Minute
	counters := []counter{
		{sliding, want(prefix, 1, q)},
		{sliding, want(prefix, 1, sharedAs(prefix, q))},
		{sliding, want(prefix, 1, wider)},
		{sliding, want(prefix, 1, coarser)},
		{sliding, want(prefix+"x", 1, q)},
	}
	for _, s := range strategies {
		if s.name != sliding.name {
			counters = append(counters, counter{s, want(prefix, 1, q)}, counter{s, want(prefix, 1, sharedAs(prefix, q))})
		}
	}
	return counters
}

// awkward are prefixes that could be taken for one another, for the end of a key,
// or for something that a language in between has its own idea of.
var awkward = slices.Concat([]string{
	"a", "A", "b", "aa", "a ", " a", " ", "a\t", "a\n", "0", "00", "-1", "1e0", "nil", "é", "e\u0301",
	"{", "}", "{}", "}{", "{{", "}}", "}x", "x}", "{a}", "a}b", "a{b", "{a", "a}", "ab", "{}a",
	":", "::", "a:", ":a", "a:b", "a::b", "/", "..", "a/b", "a.b", "a,b", "a|b", "a\\", `a\\`, "a'", `a"`, "`", "$1", "a;b",
	"*", "?", "[a]", "%", "%s", "%d", "%7D", "%7d", "a%7Db", "a%7db", "a%b", "%25",
	"\x00", "\x00\x00", "a\x00", "a\x00b", "\x01", "\r\n", "a\r\n", "a\r\n1", "\x7f", "\x80", "\xff", "\xfe", "\xff\xff", "\xc3", "\xc3\x28", "\ufffd",
	"shared", "shared:a", "a:shared", "a}:shared", "a}:simple:3600000000:0", "a}:shared:simple:3600000000:0", ":simple:3600000000:0",
}, long("x"), long("\xff"), long("}"))

// long is two prefixes as long as they get, different at the end, and one
// different at the start.
func long(s string) []string {
	most := strings.Repeat(s, 200)
	return []string{most, most[:199] + "y", "y" + most[1:]}
}

func testShared(t *test) {
	t.part("prefixes", sharedNever)
	t.part("neighbors", sharedByNone)
	t.part("within a call", sharedWithinCall)
}

// sharedNever uses each awkward prefix once, by itself and as the prefix of a
// shared quota, and then looks at all of them.
func sharedNever(t *test) {
	a := t.asker(simple)
	ask := func(do func(time.Time, ...ratelimit.RequestedQuota) []ratelimit.GrantedQuota) {
		for i, prefix := range awkward {
			do(epoch, want(prefix, int64(i+1), perHour(1000)))
			do(epoch, want("somebody", int64(i+101), sharedAs(prefix, perHour(1000))))
		}
	}
	ask(a.take)
	ask(a.check)
}

// sharedByNone does the same for counters of one prefix.
func sharedByNone(t *test) {
	for _, c := range neighbors("a") {
		t.asker(c.strategy).take(epoch, c.request)
	}
	for _, c := range neighbors("a") {
		t.asker(c.strategy).check(epoch, c.request)
	}
}

// sharedWithinCall names counters several times in one call.
func sharedWithinCall(t *test) {
	all := sharedAs("all", perHour(10))
	calls := [][]ratelimit.RequestedQuota{
		{want("a", 4, perHour(10)), want("a", 4, perHour(10)), want("a", 4, perHour(10))},
		{want("a", 3, perHour(10), all), want("b", 3, perHour(10), all), want("all", 3, perHour(10), all)},
		{want("a", 2, all), want("b", 2, perHour(10)), want("b", 2, all), want("a", 2, perHour(10), all), want("b", 5, all)},
		{want("a", 1, perHour(5)), want("a", 3, perHour(10)), want("a", 1, perHour(20))}, // other limits, one counter
	}
	for _, s := range strategies {
		a := t.asker(s)
		for i, requests := range calls {
			at := epoch.Add(time.Duration(i) * time.Minute)
			a.check(at, requests...)
			a.take(at, requests...)
			a.use(at, requests...)
			for _, r := range requests {
				a.check(at, r)
			}
			a.reset(requests...)
			a.take(at, requests...)
		}
		a.reset(slices.Concat(calls...)...)
	}
}

func testForget(t *test) {
	t.part("one", forgetOne)
	t.part("many", forgetMany)
	t.part("time", forgetTime)
}

// forgetOne forgets one counter after the other, and looks at all of them each
// time.
func forgetOne(t *test) {
	counters := slices.Concat(neighbors("a"), neighbors("}"))
	for _, c := range counters {
		t.asker(c.strategy).take(epoch, c.request)
	}
	for _, c := range counters {
		t.asker(c.strategy).reset(c.request)
		for _, c := range counters {
			t.asker(c.strategy).check(epoch, c.request)
		}
	}
}

// forgetMany forgets several counters at once: shared ones, some twice, and some
// that were never used.
func forgetMany(t *test) {
	a := t.asker(sliding)
	var requests []ratelimit.RequestedQuota
	for i := range 20 {
		requests = append(requests, want(fmt.Sprint("user", i), 1, perHour(10), sharedAs("all", perHour(1000))))
	}
	a.take(epoch, requests...)
	a.reset(requests[3], requests[4], want("nobody", 1, perHour(10)), requests[3])
	a.check(epoch, requests...)
	a.reset(want("nobody", 1, perHour(10)))
	a.check(epoch, requests...)
	a.reset(requests...)
	a.take(epoch, requests...)
}

// forgetTime asks a forgotten counter about a time before it was used.
func forgetTime(t *test) {
	for _, s := range strategies {
		a, r := t.asker(s), want("a", 3, perHour(10))
		a.take(epoch, r)
		a.reset(r)
		a.take(epoch.Add(-24*time.Hour), r)
		a.take(epoch.Add(-24*time.Hour), r)
	}
}

// testBorrowed lends everything to the storage, overwrites it when the storage
// returns, and looks at what was kept, also by the overwritten name.
func testBorrowed(t *test) {
	for _, s := range strategies {
		requests := []ratelimit.RequestedQuota{
			want("lent to it", 2, perHour(10), sharedAs("lent to all", perHour(10))),
			want("somebody else", 2, perHour(10)),
		}
		look := func() {
			t.asker(s).check(epoch, requests...)
			t.asker(s).check(epoch, want("XXXXXXXXXX", 1, perHour(10)))
		}
		for _, op := range []storage.Op{storage.Check, storage.CheckAndUse, storage.Use, storage.CheckAndUse} {
			t.twin.lend(s, op, requests[:1]...)
			look()
			t.twin.lend(s, op, requests...)
			look()
		}
		t.twin.lendKeys(s, requests[0])
		look()
		t.twin.lend(s, storage.CheckAndUse, requests...)
		look()
	}
}

// lend makes a call of which nothing is left when it has returned.
func (w *twin) lend(s strategy, op storage.Op, requests ...ratelimit.RequestedQuota) {
	script, c := callOf(s, epoch, requests...)
	c.Op = op
	var lent []loan
	for i := range c.Requests {
		c.Requests[i].Granted = 1 // of a Use
		for j := range c.Requests[i].Cells {
			lent = append(lent, lendKey(&c.Requests[i].Cells[j].Key))
		}
	}
	w.t.must(w.Run(w.t.Context(), script, &c))
	for i := range c.Requests {
		for j := range c.Requests[i].Cells {
			c.Requests[i].Cells[j] = storage.Cell{Limit: 1, Burst: 1, Window: 1, Granularity: 1, Remaining: 1}
		}
		c.Requests[i] = storage.Request{Requested: 7, Granted: 7}
	}
	c = storage.Call{Op: storage.Use, Now: 1}
	takeBack(lent)
}

// lendKeys forgets counters by keys of which nothing is left afterwards.
func (w *twin) lendKeys(s strategy, requests ...ratelimit.RequestedQuota) {
	_, c := callOf(s, epoch, requests...)
	var keys []storage.Key
	var lent []loan
	for _, r := range c.Requests {
		for _, cell := range r.Cells {
			lent = append(lent, lendKey(&cell.Key))
			keys = append(keys, cell.Key)
		}
	}
	w.t.must(w.Forget(w.t.Context(), keys))
	clear(keys)
	takeBack(lent)
}

// A loan is the memory of a key's prefix.
type loan []byte

// lendKey puts the prefix of a key in memory that will be overwritten.
func lendKey(k *storage.Key) loan {
	lent := loan(k.Prefix)
	k.Prefix = unsafe.String(unsafe.SliceData(lent), len(lent))
	return lent
}

func takeBack(lent []loan) {
	for _, l := range lent {
		copy(l, strings.Repeat("X", len(l)))
	}
}
