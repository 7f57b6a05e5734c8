package tokens_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

const (
	processEnv = "RATELIMIT_TOKENS_PROCESS"

	processLimit      = 7
	processGoroutines = 32
	processRounds     = 20
)

func TestMain(m *testing.M) {
	if args := os.Getenv(processEnv); args != "" {
		runProcess(strings.Fields(args))
		return
	}
	goleak.VerifyTestMain(m)
}

// A process is this test binary, run again.
type process struct {
	*exec.Cmd
	out *bufio.Scanner
}

func startProcess(t *testing.T, args string) *process {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), processEnv+"="+args), os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &process{cmd, bufio.NewScanner(out)}
}

func (p *process) hear(t *testing.T) string {
	require.True(t, p.out.Scan(), "the process has ended")
	return p.out.Text()
}

// openPool opens a pool of a server, or of a cluster if there are several addresses.
func openPool(addrs string, limit int64) (p *tokens.Pool, closeClient func()) {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ","), IsClusterMode: strings.Contains(addrs, ",")})
	store, err := redistokens.New(client, redistokens.WithTimeout(time.Minute))
	if err == nil {
		p, err = tokens.New("processes", store, tokens.Fixed(limit))
	}
	if err != nil {
		panic(err)
	}
	return p, func() { _ = client.Close() }
}

// runProcess takes and gives back places, 32 goroutines at a time, and tells of
// each; or takes some and waits to be killed.
func runProcess(args []string) {
	what, name, addrs := args[0], args[1], args[2]
	ctx := context.Background()
	p, closeClient := openPool(addrs, processLimit)
	defer closeClient()
	if what == "hold" {
		for i := range 3 {
			r, err := p.Reserve(ctx, "a")
			if err == nil && i > 0 {
				err = r.Bind(ctx, fmt.Sprint(name, i))
			}
			if err != nil {
				panic(err)
			}
		}
		fmt.Println("held")
		select {}
	}
	var mu sync.Mutex
	say := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, time.Now().UnixNano())
	}
	var wg sync.WaitGroup
	for g := range processGoroutines {
		wg.Go(func() {
			for round := range processRounds {
				r, err := p.Reserve(ctx, "a")
				if errors.Is(err, tokens.ErrExhausted) {
					continue
				}
				if err != nil {
					panic(err)
				}
				say("took")
				resource := fmt.Sprint(name, g, round)
				err = r.Bind(ctx, resource)
				say("gives")
				if err == nil {
					_, err = p.Release(ctx, resource)
				}
				if err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("end 0")
}

// Three processes of 32 goroutines each never have more than the limit at a time, and
// in the end nothing.
func TestProcesses(t *testing.T) {
	eachServer(t, func(t *testing.T, addrs string) {
		var processes []*process
		for i := range 3 {
			processes = append(processes, startProcess(t, fmt.Sprintf("take p%d- %s", i, addrs)))
		}
		type change struct {
			at int64
			by int
		}
		var changes []change
		for _, p := range processes {
			for {
				var what string
				var at int64
				_, err := fmt.Sscan(p.hear(t), &what, &at)
				require.NoError(t, err)
				if what == "end" {
					break
				}
				changes = append(changes, change{at, map[string]int{"took": 1, "gives": -1}[what]})
			}
		}
		var most, now int
		sortBy(changes, func(c change) int64 { return c.at })
		for _, c := range changes { // what each was sure to have, on one machine's clock
			now += c.by
			most = max(most, now)
		}
		require.Zero(t, now)
		require.LessOrEqual(t, most, processLimit)
		require.Greater(t, len(changes), 2*processLimit)
		t.Logf("%d places given, at most %d at a time", len(changes)/2, most)
		p, closeClient := openPool(addrs, processLimit)
		defer closeClient()
		requireInUse(t, p, "a", 0)
	})
}

// A process is killed: its places are taken until their deadlines, and then are back,
// once. What it had bound can be released before that by the resource's id.
func TestKilledProcess(t *testing.T) {
	eachServer(t, func(t *testing.T, addrs string) {
		killed := startProcess(t, "hold k "+addrs)
		require.Equal(t, "held", killed.hear(t))
		require.NoError(t, killed.Process.Kill())
		_ = killed.Wait()

		p, closeClient := openPool(addrs, 3)
		defer closeClient()
		requireExhausted(t, p, "a")
		released, err := p.Release(t.Context(), "k1")
		require.NoError(t, err)
		require.True(t, released)
		requireInUse(t, p, "a", 2)
		var servers []*redis.Client
		for addr := range strings.SplitSeq(addrs, ",") {
			client := redis.NewClient(&redis.Options{Addr: addr})
			defer client.Close()
			servers = append(servers, client)
		}
		age(t, 6*time.Minute, servers...) // the hold ends
		requireInUse(t, p, "a", 1)
		age(t, 8*time.Hour, servers...) // the token ends
		requireInUse(t, p, "a", 0)
		for range 3 {
			reserveAndBind(t, p, "a", fmt.Sprint(time.Now().UnixNano()))
		}
		requireExhausted(t, p, "a")
	})
}

// eachServer runs a test on a Redis and on a cluster.
func eachServer(t *testing.T, test func(t *testing.T, addrs string)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).Addr) })
	t.Run("cluster", func(t *testing.T) {
		var addrs []string
		for _, s := range redistest.StartCluster(t, 0).Servers {
			addrs = append(addrs, s.Addr)
		}
		test(t, strings.Join(addrs, ","))
	})
}
