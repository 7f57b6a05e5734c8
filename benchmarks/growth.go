package main

// growthCases draws how the cost of a call grows with keys, goroutines, quotas and
// granules.
func growthCases(o options) (report, error) {
	return onRedis(func(s *redisServer) (r report, err error) {
		for _, draw := range []func(options, *redisServer) (chart, error){
			keysChart, goroutinesChart, redisChart, quotasChart, granulesChart,
		} {
			c, err := draw(o, s)
			if err != nil {
				return r, err
			}
			r.charts = append(r.charts, c)
		}
		return r, nil
	})
}

// add puts the results at one point of the x axis into the chart.
func (c *chart) add(point float64, results []result, value func(result) float64) {
	c.points = append(c.points, point)
	if c.lines == nil {
		c.lines = make([]line, len(results))
	}
	for i, r := range results {
		c.lines[i].name = r.name
		c.lines[i].values = append(c.lines[i].values, value(r))
	}
}

// addLine puts results, one a point, into the chart as multiples of the first of them.
func (c *chart) addLine(name string, results []result) {
	l := line{name: name}
	for _, r := range results {
		l.values = append(l.values, r.ratio(results[0]))
	}
	c.lines = append(c.lines, l)
}

func oursAndPeers() []contender[string] {
	ours := sliding.inMemory(high, nil)
	ours.name = thisLibrary
	return append([]contender[string]{ours}, memoryPeers(high)...)
}

func keysChart(o options, _ *redisServer) (chart, error) {
	c := chart{name: "keys", title: "In memory, 1 goroutine", x: "keys", y: "time of a call, this library with 1 key = 1"}
	var unit float64
	for keys := 1; keys <= 10*o.keys; keys *= 10 {
		results, err := compare(o, oursAndPeers(), load[string]{name: count(keys, "key"), items: userKeys(keys), goroutines: 1, batch: 64})
		if err != nil {
			return c, err
		}
		if keys == 1 {
			unit = results[0].time()
		}
		c.add(float64(keys), results, func(r result) float64 { return r.time() / unit })
	}
	return c, nil
}

func goroutinesChart(o options, _ *redisServer) (chart, error) {
	c := chart{name: "goroutines", title: "In memory, " + thousands(o.keys) + " keys", x: "goroutines", y: "time of a call, this library with 1 = 1"}
	var unit float64
	for _, goroutines := range []int{1, 2, 4, 16, 64} {
		l := load[string]{name: count(goroutines, "goroutine"), items: userKeys(o.keys), goroutines: goroutines, batch: 64}
		results, err := compare(o, oursAndPeers(), l)
		if err != nil {
			return c, err
		}
		if goroutines == 1 {
			unit = results[0].time()
		}
		c.add(float64(goroutines), results, func(r result) float64 { return r.time() / unit })
	}
	return c, nil
}

func redisChart(o options, s *redisServer) (chart, error) {
	keys := min(o.keys, 1000)
	c := chart{name: "redis", title: "On Redis, " + thousands(keys) + " keys, 1 quota", x: "goroutines", y: "calls a second, redis_rate with 1 = 1", log: true}
	var unit float64
	for _, goroutines := range []int{1, 4, 16, 64, 256} {
		results, err := compare(o, []contender[string]{
			s.ours(sliding, high, plainly, 1, nil),
			s.ours(sliding, high, pipelined, 1, nil),
			s.redisRate(high, plainly),
			s.rueidisScript(high),
			s.ulule(high, plainly),
		}, load[string]{name: count(goroutines, "goroutine"), items: userKeys(keys), goroutines: goroutines, batch: 1})
		if err != nil {
			return c, err
		}
		if goroutines == 1 {
			unit = results[2].time()
		}
		results[0].name, results[1].name = thisLibrary, thisLibrary+pipelined.name
		c.add(float64(goroutines), results, func(r result) float64 { return unit / r.time() })
	}
	return c, nil
}

func quotasChart(o options, s *redisServer) (chart, error) {
	c := chart{name: "quotas", title: "Several quotas in one call", x: "quotas", y: "time, one quota = 1", points: []float64{1, 2, 4, 8}}
	keys := min(o.keys, 1000)
	var policies, limiters []contender[int]
	var remotes, scripts []contender[string]
	for _, p := range c.points {
		quotas := int(p)
		policies = append(policies, policyCall("Policy.Allow", keys, quotas))
		limiters = append(limiters, limiterCall("CheckAndUseQuotas", keys, quotas))
		remotes = append(remotes, s.ours(sliding, high, pipelined, quotas, nil))
		scripts = append(scripts, s.byServer(s.ours(sliding, high, pipelined, quotas, nil)))
	}
	for i, cs := range [][]contender[int]{policies, limiters} {
		results, err := compare(o, cs, load[int]{name: "quotas", items: numbers(keys), goroutines: 1, batch: 64})
		if err != nil {
			return c, err
		}
		c.addLine([]string{"Policy.Allow", "CheckAndUseQuotas"}[i], results)
	}
	for i, cs := range [][]contender[string]{remotes, scripts} {
		results, err := compare(o, cs, load[string]{name: "quotas", items: userKeys(keys), goroutines: 64, batch: 1})
		if err != nil {
			return c, err
		}
		c.addLine([]string{"Redis, 64 goroutines", "script on the server"}[i], results)
	}
	return c, nil
}

func granulesChart(o options, s *redisServer) (chart, error) {
	c := chart{name: "granules", title: "Sliding window, every granule in use", x: "granules in a window", y: "time, 10 granules = 1", points: []float64{10, 60, 360, 3600}}
	keys := userKeys(min(o.keys, 16))
	var local, remote []contender[string]
	for _, p := range c.points {
		st := sliding.with(int(p))
		local = append(local, st.inMemory(highHour, keys))
		remote = append(remote, s.byServer(s.ours(st, highHour, pipelined, 1, keys)))
	}
	loads := []load[string]{
		{name: "granules", items: keys, goroutines: 1, batch: 64},
		{name: "granules on Redis", items: keys, goroutines: serverGoroutines, batch: 1},
	}
	for i, cs := range [][]contender[string]{local, remote} {
		results, err := compare(o, cs, loads[i])
		if err != nil {
			return c, err
		}
		c.addLine([]string{"in memory", "script on the server"}[i], results)
	}
	return c, nil
}
