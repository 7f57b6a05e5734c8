package main

import (
	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

// memoryCases is one decision of each strategy beside the peers, and calls of several
// quotas beside one.
func memoryCases(o options) (report, error) {
	peers := table{caption: "`Policy.Allow` of the sliding window with 60 granules, all of them in use, beside the peers. A cell is the time of a call, its allocations, and the ratio of the time to this library's."}
	own := table{caption: "The same for each strategy. All granules are in use, but where it says 1. The ratio is to the sliding window."}
	var s standing
	for _, l := range memoryLoads(o) {
		results, err := compare(o, memoryContenders(l.items), l)
		if err != nil {
			return report{}, err
		}
		half := len(results) / 2
		for i, results := range [][]result{results[:half], results[half:]} {
			name := l.name + ", " + answer(i == 1)
			n := len(strategies) + 2
			first := results[0]
			first.name = thisLibrary
			peers.addCase(name, append([]result{first}, results[n:]...))
			own.addCase(name, results[:n])
			s.add(name, results[:n], results[n:])
		}
		s.addRefusals(l.name, results[:half], results[half:])
	}
	calls, bars, err := callCases(o)
	return report{tables: []table{peers, own, calls}, bars: append(s.bars(), bars...)}, err
}

func memoryLoads(o options) []load[string] {
	var loads []load[string]
	for _, keys := range []int{o.keys, 1} {
		for _, goroutines := range []int{1, 2} {
			loads = append(loads, load[string]{
				name:       count(keys, "key") + ", " + count(goroutines, "goroutine"),
				items:      userKeys(keys),
				goroutines: goroutines,
				batch:      64,
			})
		}
	}
	return loads
}

// memoryContenders is all libraries allowed, and then refused. This library's come
// first: the strategies, a sliding window of 3,600 granules, and one of 60 on keys that
// were not used before.
func memoryContenders(keys []string) []contender[string] {
	var cs []contender[string]
	for _, l := range []limit{high, low} {
		for _, s := range strategies {
			cs = append(cs, s.inMemory(l, keys))
		}
		long := l
		if l == high {
			long = highHour
		}
		cs = append(cs, sliding.with(3600).inMemory(long, keys[:min(len(keys), 1000)])) // all busy would be half a GB
		fresh := sliding.inMemory(l, nil)
		fresh.name = "sliding window, 1 granule in use"
		cs = append(append(cs, fresh), memoryPeers(l)...)
	}
	return cs
}

// standing is how the strategies stand over all cases.
type standing struct {
	peers    [5]worst // beside the fastest peer
	refusals [5]worst // beside what is allowed
	allocs   [5]worst
	granules worst
}

func (s *standing) add(name string, ours, peers []result) {
	for i := range strategies {
		s.peers[i].see(ours[i].ratio(fastest(peers)), name)
		s.allocs[i].see(ours[i].allocs(), name)
	}
	s.granules.see(ours[len(strategies)].ratio(ours[0]), name)
}

func (s *standing) addRefusals(name string, allowed, refused []result) {
	for i := range strategies {
		s.refusals[i].see(refused[i].ratio(allowed[i]), name)
	}
}

func (s *standing) bars() (bars []bar) {
	for i, st := range strategies {
		allocs := s.allocs[i].ratio
		bars = append(bars,
			atWorst(st.name+" beside the fastest peer", s.peers[i], 0.9),
			atWorst(st.name+", refused beside allowed", s.refusals[i], 1),
			bar{st.name + ", allocations", "0", allocations(allocs), allocs < 0.05},
		)
	}
	return append(bars, atWorst("3,600 granules beside 60", s.granules, 1.2))
}

// callCases is a Limiter's call beside a Policy's, and four quotas beside one.
func callCases(o options) (table, []bar, error) {
	t := table{caption: "Calls of a `Limiter`, which answer with each quota's state. The ratio is to `Policy.Allow`."}
	var full, four, allocs worst
	for _, keys := range []int{o.keys, 1} {
		for _, goroutines := range []int{1, 2} {
			l := load[int]{items: numbers(keys), goroutines: goroutines, batch: 64}
			l.name = count(keys, "key") + ", " + count(goroutines, "goroutine")
			results, err := compare(o, []contender[int]{
				policyCall("Policy.Allow", keys, 1),
				limiterCall("CheckAndUseQuotas", keys, 1),
				policyCall("Policy.Allow, 4 quotas", keys, 4),
				limiterCall("CheckAndUseQuotas, 4 quotas", keys, 4),
			}, l)
			if err != nil {
				return t, nil, err
			}
			t.addCase(l.name, results)
			full.see(results[1].ratio(results[0]), l.name)
			four.see(results[3].ratio(results[1]), l.name)
			allocs.see(results[1].allocs(), l.name)
		}
	}
	return t, []bar{
		atWorst("CheckAndUseQuotas with one quota beside Policy.Allow", full, 1.8),
		{"CheckAndUseQuotas with one quota, allocations", "at most 2", allocations(allocs.ratio), allocs.ratio < 2.05},
		atWorst("four quotas in one call beside one", four, 2.5),
	}, nil
}

func policyCall(name string, keys, quotas int) contender[int] {
	return contender[int]{name: name, open: func() (bench[int], error) {
		names := userKeys(keys)
		policy, err := sliding.policy(memory.New(), high, quotas)
		return bench[int]{call: func(i int) (bool, error) {
			d, err := policy.Allow(ctx, names[i])
			return d.Allowed, err
		}}, err
	}}
}

// limiterCall is given its requests: what a caller allocates for them is his.
func limiterCall(name string, keys, quotas int) contender[int] {
	return contender[int]{name: name, open: func() (bench[int], error) {
		requests := make([][]ratelimit.RequestedQuota, keys)
		qs := sliding.quotas(high, quotas)
		for i, key := range userKeys(keys) {
			requests[i] = []ratelimit.RequestedQuota{{Prefix: key, Requested: 1, Quotas: qs}}
		}
		limiter := sliding.limiter(memory.New())
		return bench[int]{call: func(i int) (bool, error) {
			grants, err := limiter.CheckAndUseQuotas(ctx, requests[i])
			return err == nil && grants[0].Granted == 1, err
		}}, nil
	}}
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
