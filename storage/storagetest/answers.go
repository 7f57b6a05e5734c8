package storagetest

import (
	"math/rand/v2"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage"
)

func testSameAnswer(t *test) {
	for _, s := range strategies {
		t.part(s.name, func(t *test) {
			sameStory(t, s)
			if s.name == list.name {
				sameNarrower(t)
			}
			sameWithLeftovers(t, s)
			sameAtRandom(t, s)
		})
	}
}

// sameStory tells what a reader would try first: two quotas, a shared one, what
// is refused, what is granted in part, two steps, and time going on and back.
func sameStory(t *test, s strategy) {
	day := ratelimit.Quota{Limit: 12, Window: 24 * time.Hour, Granularity: time.Hour}
	everybody := sharedAs("everybody", perHour(15))
	alice, bob := want("alice", 4, perHour(10), day, everybody), want("bob", 7, perHour(10), everybody)
	a := t.asker(s)
	for _, after := range []time.Duration{
		0, time.Minute, 59 * time.Second, time.Second, time.Microsecond, // 49 minutes into the hour
		30 * time.Minute, -time.Hour, -24 * time.Hour, 3 * time.Hour, 24 * time.Hour, 365 * 24 * time.Hour,
	} {
		at := epoch.Add(after)
		a.check(at, alice, bob)
		a.take(at, alice, orNothing(bob))
		a.take(at, orNothing(alice))
		a.take(at, bob, alice)
		a.together().check(at, alice, bob, alice)
		a.together().take(at, bob, want("carol", 1, perHour(10), everybody))
		a.use(at.Add(-time.Minute), alice, bob)
		a.check(at, want("alice", 0, perHour(10)), want("bob", 11, perHour(10)))
	}
}

// sameNarrower asks one log about several windows in one call.
func sameNarrower(t *test) {
	l := ratelimit.NewListLimiter(t.twin)
	wide := perHour(10)
	for i := range 15 {
		at := epoch.Add(time.Duration(i*i) * time.Minute)
		t.asker(list).take(at, want("log", 2, wide))
		for _, narrower := range []ratelimit.Quota{ratelimit.PerMinute(1), ratelimit.Per(5, 15*time.Minute), perHour(9)} {
			_, err := l.CheckNarrower(t.Context(), "log", wide, narrower, ratelimit.At(at.Add(time.Minute)))
			t.must(err)
		}
	}
}

// sameWithLeftovers hands in calls that still have other answers in them: callers
// use them again.
func sameWithLeftovers(t *test, s strategy) {
	for i := range 12 {
		script, c := callOf(s, epoch, want("again", 4, perHour(10), sharedAs("all", perHour(9))), want("twice", 1, perHour(2)))
		c.Op = []storage.Op{storage.Check, storage.CheckAndUse}[i%2]
		for j := range c.Requests {
			c.Requests[j].AllOrNothing = i > 6
		}
		c.Together = i%3 == 0
		setAnswers(&c, 99, true)
		t.must(t.twin.Run(t.Context(), script, &c))
	}
}

func setAnswers(c *storage.Call, n int64, reached bool) {
	for i := range c.Requests {
		c.Requests[i].Granted = n
		for j := range c.Requests[i].Cells {
			cell := &c.Requests[i].Cells[j]
			cell.Remaining, cell.Reached = n, reached
			cell.RetryAfter, cell.NextAfter, cell.ResetAfter = n, n, n
		}
	}
}

// sameAtRandom makes calls at random, always the same ones.
func sameAtRandom(t *test, s strategy) {
	g := &generator{asker: t.asker(s), Rand: rand.New(rand.NewPCG(1, 2)), at: epoch}
	for range 150 {
		g.call()
	}
}

// A generator makes calls that meet often: few prefixes, small limits, and times
// near those that earlier answers named.
type generator struct {
	asker
	*rand.Rand
	at    time.Time
	retry time.Duration // as answered last
}

func (g *generator) call() {
	g.tick()
	a := g.asker
	if g.IntN(3) == 0 {
		a = a.together()
	}
	switch requests := g.requests(); g.IntN(20) {
	default:
		g.heed(a.take(g.at, requests...))
	case 0, 1, 2, 3:
		g.heed(a.check(g.at, requests...))
	case 4, 5, 6:
		g.use(g.at, requests...)
	case 7, 8:
		g.giveBack()
	case 9:
		g.reset(requests[0])
	}
}

// giveBack gives back some of what the last call asked for.
func (g *generator) giveBack() {
	if g.t.twin.script == nil {
		return
	}
	c := clone(&g.t.twin.asked)
	setAnswers(&c, 0, false)
	c.Op, c.Together = storage.Use, false
	for i := range c.Requests {
		c.Requests[i].Granted = -g.Int64N(c.Requests[i].Requested + 2)
	}
	g.t.must(g.t.twin.Run(g.t.Context(), g.t.twin.script, &c))
}

func (g *generator) heed(grants []ratelimit.GrantedQuota) {
	for _, grant := range grants {
		if 0 < grant.RetryAfter && grant.RetryAfter < ratelimit.Never {
			g.retry = grant.RetryAfter
		}
	}
}

// tick moves the time: not at all, a little, to the very µs that was named last
// or one beside it, far ahead, or back.
func (g *generator) tick() {
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(g.Int64N(int64(to-from))) }
	switch g.IntN(12) {
	case 0, 1, 2:
		g.at = g.at.Add(between(0, 2*time.Minute))
	case 3, 4:
		g.at = g.at.Add(g.retry + time.Duration(g.IntN(3)-1)*time.Microsecond)
		g.retry = 0
	case 5:
		g.at = g.at.Add(between(0, 2*time.Hour))
	case 6:
		g.at = g.at.Add(-between(0, time.Hour))
	case 7:
		if g.IntN(5) == 0 {
			g.at = g.at.Add(between(0, 1000*24*time.Hour))
		}
	}
}

func (g *generator) requests() []ratelimit.RequestedQuota {
	requests := make([]ratelimit.RequestedQuota, 1+g.IntN(3)*g.IntN(2))
	for i := range requests {
		quotas := g.quotas()
		n := g.Int64N(6)
		if g.IntN(8) == 0 {
			n = g.Int64N(quotas[0].Limit + 2)
		}
		requests[i] = want([]string{"a", "b", "everybody"}[g.IntN(3)], n, quotas...)
		requests[i].AllOrNothing = g.IntN(3) == 0
	}
	return requests
}

// quotas are up to three, of different counters and in any order.
func (g *generator) quotas() []ratelimit.Quota {
	const odd = 99_999_989 * time.Microsecond // a prime
	quotas := []ratelimit.Quota{
		{Limit: 5 + g.Int64N(10), Window: time.Hour, Granularity: time.Minute, Burst: g.Int64N(2) * 7},
		{Limit: 17, Window: 101 * odd, Granularity: odd},
		{Limit: 94_906_265, Window: 24 * time.Hour, Granularity: time.Hour}, // the largest that a token bucket takes
		sharedAs("everybody", perHour(g.Int64N(30))),
	}
	g.Shuffle(len(quotas), func(i, j int) { quotas[i], quotas[j] = quotas[j], quotas[i] })
	return quotas[:1+g.IntN(3)]
}

// testUntouched does what must change nothing, at all sorts of times, and each time
// asks how the counters stand, by an earlier time too: a use that was recorded
// after all, or only its time, would show.
func testUntouched(t *test) {
	quotas := []ratelimit.Quota{perHour(10), sharedAs("all", perHour(7))}
	none := sharedAs("none", perHour(0))
	for _, s := range strategies {
		t.part(s.name, func(t *test) {
			a := t.asker(s)
			look := func() {
				a.check(epoch, want("a", 8, quotas...))
				a.check(epoch, want("b", 8, quotas...))
				a.check(epoch, want("c", 8, quotas[0]))
			}
			for _, used := range []int64{0, 4} {
				a.take(epoch, want("a", used, quotas...))
				for _, after := range []time.Duration{0, -time.Hour, 10 * time.Minute, 365 * 24 * time.Hour} {
					at := epoch.Add(after)
					a.check(at, want("a", 3, quotas...))
					look()
					a.check(at, want("a", 1, quotas...), want("b", 2, quotas...), want("a", 99, quotas...))
					look()
					a.take(at, orNothing(want("a", 11, quotas...)), orNothing(want("b", 8, quotas...)))
					look()
					a.take(at, want("a", 0, quotas...), want("c", 5, quotas[0], none))
					look()
					a.together().take(at, want("c", 1, quotas[0]), want("a", 11, quotas...))
					look()
					a.use(at, want("a", 0, quotas...))
					look()
				}
			}
		})
	}
}
