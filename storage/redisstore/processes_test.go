package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// Three processes, each this test binary run again, share quotas in a cluster:
// each prefix has one, and one is for all prefixes together. They print what they
// were granted.

const (
	processEnv     = "RATELIMIT_REDISSTORE_PROCESS" // the job of a process, as JSON
	processLimit   = 2000
	processOwn     = 160
	processKeys    = 16 // prefixes; the first four are asked for most, and run out first
	processMaxUnit = 4
)

// A job is what a process is to do.
type job struct {
	Addrs      []string
	Strategies []string
	Goroutines int
	Calls      int // of each goroutine
	Seed       uint64
}

// An event is what a process prints of a call, one on a line.
type event struct {
	Strategy string
	Prefix   string
	Granted  int64
	Error    string `json:",omitempty"`
}

// The window is so long that nothing comes back while the test runs, whatever the
// time of day.
const processWindow = 50 * 365 * 24 * time.Hour

func processQuotas(strategy string) []ratelimit.Quota {
	return []ratelimit.Quota{
		{Limit: processOwn, Window: processWindow},
		{Limit: processLimit, Window: processWindow, PrefixOverride: "all " + strategy},
	}
}

// TestProcess is no test of its own, but what the processes of TestProcesses run.
func TestProcess(t *testing.T) {
	text := os.Getenv(processEnv)
	if text == "" {
		t.Skip("for TestProcesses")
	}
	var j job
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: j.Addrs})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.WithTimeout(20*time.Second))
	require.NoError(t, err)
	for _, strategy := range j.Strategies {
		j.run(t.Context(), strategy, limitertest.Strategies[strategy](store))
	}
}

func (j *job) run(ctx context.Context, strategy string, limiter ratelimit.Limiter) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	quotas := processQuotas(strategy)
	for g := range j.Goroutines {
		rnd := rand.New(rand.NewPCG(j.Seed, uint64(g)))
		wg.Go(func() {
			for range j.Calls {
				e := event{Strategy: strategy, Prefix: fmt.Sprint(strategy, " ", rnd.IntN(4+rnd.IntN(2)*(processKeys-4)))}
				grants, err := limiter.CheckAndUseQuotas(ctx, []ratelimit.RequestedQuota{{
					Prefix: e.Prefix, Requested: 1 + rnd.Int64N(processMaxUnit), Quotas: quotas, AllOrNothing: rnd.IntN(2) == 0,
				}})
				if err != nil {
					e.Error = err.Error()
				} else {
					e.Granted = grants[0].Granted
				}
				line, err := json.Marshal(e)
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Printf("%s\n", line)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// A process is a run of a job, and what it has printed.
type process struct {
	cmd    *exec.Cmd
	events []event
	done   chan struct{} // closed when it has ended
	err    error         // how it ended
}

func TestProcesses(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	t.Run("promise", func(t *testing.T) { testProcesses(t, cluster) })
	require.NoError(t, cluster.Client(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	}))
	t.Run("one is killed", func(t *testing.T) { testProcessKilled(t, cluster) })
}

// startProcess starts a job; seen is called with each of its events.
func startProcess(t *testing.T, j job, seen func(p *process)) *process {
	text, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^TestProcess$"), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	go func() {
		defer close(p.done)
		p.read(t, out, seen)
		p.err = p.cmd.Wait()
	}()
	return p
}

func (p *process) read(t *testing.T, out io.Reader, seen func(p *process)) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") { // what package testing prints
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Logf("%q: %v", lines.Text(), err) // cut off when the process was killed
			continue
		}
		if e.Error != "" {
			t.Errorf("%s: %s", e.Prefix, e.Error)
		}
		p.events = append(p.events, e)
		seen(p)
	}
}

// startProcesses starts three, with 32 goroutines together.
func startProcesses(t *testing.T, cluster *redistest.Cluster, strategies []string, calls int, seen func(p *process)) (processes []*process) {
	j := job{Strategies: strategies, Calls: calls}
	for _, s := range cluster.Servers {
		j.Addrs = append(j.Addrs, s.Addr)
	}
	for i, goroutines := range []int{11, 11, 10} {
		j.Seed, j.Goroutines = uint64(i), goroutines
		processes = append(processes, startProcess(t, j, seen))
	}
	return processes
}

// granted is what was granted of the quota of each prefix, and under "" of the
// one that all share.
func granted(strategy string, processes []*process) map[string]int64 {
	granted := make(map[string]int64)
	for _, p := range processes {
		for _, e := range p.events {
			if e.Strategy == strategy {
				granted[e.Prefix] += e.Granted
				granted[""] += e.Granted
			}
		}
	}
	return granted
}

// counted is what the counters in the cluster say was used, by the same names.
func counted(t *testing.T, client *redis.ClusterClient, strategy string) map[string]int64 {
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	quotas, counted := processQuotas(strategy), make(map[string]int64)
	for p := range processKeys {
		prefix := fmt.Sprint(strategy, " ", p)
		_, grants, err := limitertest.Strategies[strategy](store).CheckWithinQuotas(t.Context(), []ratelimit.RequestedQuota{{Prefix: prefix, Quotas: quotas}})
		require.NoError(t, err)
		counted[prefix] = processOwn - grants[0].States[0].Remaining
		counted[""] = processLimit - grants[0].States[1].Remaining
	}
	return counted
}

// No quota is over-granted, hardly any under-granted, and what the counters say
// was used is what was granted, to the unit.
func testProcesses(t *testing.T, cluster *redistest.Cluster) {
	const each = 60
	var strategies []string
	for name := range limitertest.Strategies {
		strategies = append(strategies, name)
	}
	processes := startProcesses(t, cluster, strategies, each, func(*process) {})
	calls := 0
	for _, p := range processes {
		<-p.done
		require.NoError(t, p.err)
		calls += len(p.events)
	}
	require.Equal(t, 32*each*len(strategies), calls)
	client := cluster.Client(t)
	for _, strategy := range strategies {
		got, used := granted(strategy, processes), counted(t, client, strategy)
		requireNotOver(t, got)
		t.Logf("%s: granted %d of %d", strategy, got[""], processLimit)
		require.GreaterOrEqual(t, got[""], int64(processLimit*99/100), "%s is under-granted", strategy)
		for name, n := range used {
			if strategy == "token-bucket" && n == got[name]+1 {
				continue // what a bucket got between a take and its giving back is not given back
			}
			require.Equal(t, got[name], n, "%s %q: used and granted differ", strategy, name)
		}
	}
	requireExpiries(t, client)
}

func requireNotOver(t *testing.T, granted map[string]int64) {
	t.Helper()
	for name, n := range granted {
		limit := int64(processOwn)
		if name == "" {
			limit = processLimit
		}
		require.LessOrEqual(t, n, limit, "%q is over-granted", name)
	}
}

// requireExpiries wants an expiry for every key of the cluster.
func requireExpiries(t *testing.T, client *redis.ClusterClient) {
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, "", 1000).Iterator()
		for keys.Next(ctx) {
			ttl, err := node.PTTL(ctx, keys.Val()).Result()
			if err != nil {
				return err
			}
			if ttl <= 0 || ttl > 2*processWindow {
				return fmt.Errorf("%s expires in %v", keys.Val(), ttl)
			}
		}
		return keys.Err()
	}))
}

// A process that is killed takes with it, as used, what it was about to be
// granted, and nothing else: the others go on, and nothing is over-granted.
func testProcessKilled(t *testing.T, cluster *redistest.Cluster) {
	const strategy = "sliding-window"
	var once sync.Once
	var killed *process
	processes := startProcesses(t, cluster, []string{strategy}, 120, func(p *process) {
		if len(p.events) == 40 {
			once.Do(func() {
				killed = p
				_ = p.cmd.Process.Kill() // SIGKILL
			})
		}
	})
	for _, p := range processes {
		<-p.done
	}
	require.NotNil(t, killed)
	for _, p := range processes {
		if p == killed {
			require.Error(t, p.err, "it had ended before it was killed")
		} else {
			require.NoError(t, p.err)
		}
	}
	got, used := granted(strategy, processes), counted(t, cluster.Client(t), strategy)
	requireNotOver(t, got)
	t.Logf("granted %d of %d, %d of them to the process that was killed after %d calls", got[""], processLimit, granted(strategy, []*process{killed})[""], len(killed.events))
	const lost = 11 * processMaxUnit // in flight, or granted and not printed
	require.GreaterOrEqual(t, got[""], int64(processLimit*99/100-lost), "the others did not go on")
	sum := int64(0)
	for name, n := range used {
		require.GreaterOrEqual(t, n, got[name], "%q: granted and not used", name)
		if name != "" {
			sum += n - got[name]
		}
	}
	require.LessOrEqual(t, sum, int64(lost))
	require.LessOrEqual(t, used[""]-got[""], int64(lost))
}
