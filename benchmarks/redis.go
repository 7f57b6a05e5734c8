package main

// redisCases is one decision on Redis beside the peers: alone, and with many goroutines.
func redisCases(o options) (report, error) {
	return onRedis(func(s *redisServer) (report, error) {
		t := table{caption: "`Policy.Allow` of the sliding window with 60 granules on a redis-server on loopback. A cell is the time of a call (that passed, by the calls of all goroutines), its allocations, and the ratio of the time to the first column's."}
		var bars []bar
		for _, goroutines := range []int{1, 64, 256} {
			l := load[string]{items: userKeys(o.keys), goroutines: goroutines, batch: 1}
			l.name = count(o.keys, "key") + ", " + count(goroutines, "goroutine")
			results, err := compare(o, s.redisContenders(), l)
			if err != nil {
				return report{}, err
			}
			t.addCase(l.name, results)
			bars = append(bars, redisBars(goroutines, results)...)
		}
		return report{tables: []table{t}, bars: bars}, nil
	})
}

// Places in redisContenders that the bars go by.
const (
	oursOne = iota
	oursTwo
	oursOnePipelined
	oursTwoPipelined
	emptyEvalSha
	redisRatePlain
	redisRatePipelined
	rueidisFixed
)

func (s *redisServer) redisContenders() []contender[string] {
	return []contender[string]{
		oursOne:            s.ours(sliding, high, plainly, 1, nil),
		oursTwo:            s.ours(sliding, high, plainly, 2, nil),
		oursOnePipelined:   s.ours(sliding, high, pipelined, 1, nil),
		oursTwoPipelined:   s.ours(sliding, high, pipelined, 2, nil),
		emptyEvalSha:       s.script("an empty EVALSHA", emptyScript, high, plainly),
		redisRatePlain:     s.redisRate(high, plainly),
		redisRatePipelined: s.redisRate(high, pipelined),
		rueidisFixed:       s.rueidisScript(high),
		s.ulule(high, plainly),
		s.throttled(high),
	}
}

func redisBars(goroutines int, r []result) []bar {
	if goroutines == 1 {
		return []bar{
			atMost("1 goroutine, beside an empty EVALSHA", r[oursOne].ratio(r[emptyEvalSha]), 1.05, " ×"),
			atMost("allocations of a call", r[oursOne].allocs(), 12, ""),
		}
	}
	who := count(goroutines, "goroutine") + ", 2 quotas, AutoPipeline: calls a second beside "
	return []bar{
		atLeast(who+"redis_rate with 1 quota", r[redisRatePlain].ratio(r[oursTwoPipelined]), 2, " ×"),
		atLeast(who+"rueidis's fixed window", r[rueidisFixed].ratio(r[oursTwoPipelined]), 1, " ×"),
	}
}
