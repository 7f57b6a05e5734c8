package main

// serverGoroutines is how many ask at the same time while the server is measured, all
// through AutoPipelines.
const serverGoroutines = 16

// serverKeys is few, as every granule of each is in use.
const serverKeys = 16

// serverCases is what the server spends on a script, which is what bounds how many
// decisions a Redis can take.
func serverCases(o options) (report, error) {
	return onRedis(func(s *redisServer) (report, error) {
		l := load[string]{name: "server", items: userKeys(min(o.keys, serverKeys)), goroutines: serverGoroutines, batch: 1}
		results, err := compare(o, s.serverContenders(l.items), l)
		if err != nil {
			return report{}, err
		}
		return serverReport(results), nil
	})
}

// serverContenders is four for each strategy (one quota and two, allowed and refused),
// and then two for the others.
func (s *redisServer) serverContenders(keys []string) []contender[string] {
	var cs []contender[string]
	for _, st := range append(strategies[:len(strategies):len(strategies)], sliding.with(3600)) {
		allowed := high
		if st.granules == 3600 {
			allowed = highHour
		}
		for _, quotas := range []int{1, 2} {
			cs = append(cs, s.ours(st, allowed, pipelined, quotas, keys), s.ours(st, low, pipelined, quotas, nil))
			cs[len(cs)-2].name = st.name
		}
	}
	for _, l := range []limit{high, low} {
		args := fixedWindowArgs(l)
		cs = append(cs,
			s.redisRate(l, pipelined),
			s.ulule(l, pipelined),
			s.script("a fixed window, as used with rueidis", fixedWindow, l, pipelined, args[0], args[1]),
		)
	}
	cs = append(cs, s.script("an empty script", emptyScript, high, pipelined))
	for i := range cs {
		cs[i] = s.byServer(cs[i])
	}
	return cs
}

// byServer measures a contender by what the server spends on its scripts.
func (s *redisServer) byServer(c contender[string]) contender[string] {
	open := c.open
	c.open = func() (bench[string], error) {
		b, err := open()
		b.begin = s.resetStats
		b.end = func(m *sample) error {
			_, nanos, err := s.evalStats()
			m.nanos = nanos
			return err
		}
		return b, err
	}
	return c
}

func serverReport(results []result) report {
	t := table{
		caption: "What the server spends on a script, by `INFO commandstats`, and the ratio to redis_rate's, allowed. Of the sliding window and the hash limiter all granules are in use.",
		columns: []string{"1 quota", "1 quota, refused", "2 quotas", "2 quotas, refused"},
	}
	count := len(strategies) + 1
	peers := results[4*count:]
	base := peers[0]
	cell := func(r result) string { return duration(r.time()) + " · " + times(r.ratio(base)) }
	var one, two, refused worst
	for i := range count {
		r := results[4*i : 4*i+4]
		t.add(r[0].name, cell(r[0]), cell(r[1]), cell(r[2]), cell(r[3]))
		one.see(r[0].ratio(base), r[0].name)
		two.see(r[2].ratio(base), r[0].name)
		refused.see(r[1].ratio(r[0]), r[0].name)
		refused.see(r[3].ratio(r[2]), r[0].name+", 2 quotas")
	}
	for i := range 3 {
		t.add(peers[i].name, cell(peers[i]), cell(peers[i+3]), "", "")
	}
	t.add(peers[6].name, cell(peers[6]), "", "", "")
	return report{tables: []table{t}, bars: []bar{
		atWorst("one quota beside redis_rate", one, 1.2),
		atWorst("two quotas beside redis_rate with one", two, 1.9),
		atMost("3,600 granules beside 60", results[4*(count-1)].ratio(results[0]), 1.1, " ×"),
		atWorst("refused beside allowed", refused, 1),
	}}
}
