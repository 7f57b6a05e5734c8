package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/limitertest"
	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage/redisstore"
)

// A lost reply charges once and is told apart from a call that was never
// executed, with go-redis's own retries at their default.
func TestChargedAtMostOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	direct := server.Client(t)
	for _, c := range []struct {
		name    string
		fault   redistest.Fault
		is      error
		charged int
	}{
		{"reply swallowed", redistest.SwallowReplies, ratelimit.ErrIndeterminate, 1},
		{"closed after the request", redistest.CloseAfterRequest, ratelimit.ErrIndeterminate, 1},
		{"reset before the request", redistest.ResetBeforeRequest, ratelimit.ErrIndeterminate, 0}, // which the client can't know
		{"connection refused", redistest.Refuse, ratelimit.ErrUnavailable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
			defer client.Close()
			store, err := redisstore.New(client, redisstore.WithTimeout(300*time.Millisecond))
			require.NoError(t, err)
			limiter := ratelimit.NewSlidingWindow(store)
			request := ask(1, ratelimit.PerHour(100))
			request[0].Prefix = c.name
			proxy.Set(redistest.None)
			_, err = limiter.CheckAndUseQuotas(t.Context(), request)
			require.NoError(t, err)

			proxy.Set(c.fault)
			if c.fault == redistest.Refuse {
				client.Close() // and its connections: what is open is reset, and that is indeterminate
				client = redis.NewClient(&redis.Options{Addr: proxy.Addr})
				defer client.Close()
				store, err = redisstore.New(client, redisstore.WithTimeout(300*time.Millisecond))
				require.NoError(t, err)
				limiter = ratelimit.NewSlidingWindow(store)
			}
			require.NoError(t, direct.ConfigResetStat(t.Context()).Err())
			_, err = limiter.CheckAndUseQuotas(t.Context(), request)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, c.charged, stat(t, direct, "commandstats", "cmdstat_evalsha:calls="))

			// A check charges nothing, so nothing is uncertain.
			_, _, err = limiter.CheckWithinQuotas(t.Context(), request)
			require.ErrorIs(t, err, ratelimit.ErrUnavailable)

			proxy.Set(redistest.None)
			require.Eventually(t, func() bool {
				_, grants, err := limiter.CheckWithinQuotas(t.Context(), request)
				return err == nil && int(grants[0].Remaining) == 99-c.charged
			}, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// A fake server answers scripts with what it is told to.
type fakeServer struct {
	addr    string
	reply   atomic.Value // string
	scripts atomic.Int32 // that it was asked to run
}

func startFake(t *testing.T) *fakeServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(c) })
			t.Cleanup(func() { c.Close() })
		}
	})
	t.Cleanup(func() { l.Close() })
	return f
}

func (f *fakeServer) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		if strings.HasPrefix(name, "eval") {
			f.scripts.Add(1)
			reply = f.reply.Load().(string)
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// readCommand reads a command and returns its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	var args, size int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &args); err != nil {
		return "", err
	}
	for i := range args {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return "", err
		}
		arg := make([]byte, size+2)
		for n := 0; n < len(arg); {
			m, err := r.Read(arg[n:])
			if err != nil {
				return "", err
			}
			n += m
		}
		if i == 0 {
			name = strings.ToLower(string(arg[:size]))
		}
	}
	return name, nil
}

// What the server answers decides what became of the call, and whether it is
// sent again.
func TestAnswers(t *testing.T) {
	fake := startFake(t)
	const tail = " script: 0123, on @user_script:7."
	for reply, want := range map[string]struct {
		is    error
		again bool
	}{
		"-LOADING Redis is loading the dataset in memory\r\n":                      {ratelimit.ErrUnavailable, true},
		"-READONLY You can't write against a read only replica." + tail + "\r\n":   {ratelimit.ErrUnavailable, true},
		"-MASTERDOWN Link with MASTER is down\r\n":                                 {ratelimit.ErrUnavailable, true},
		"-CLUSTERDOWN The cluster is down\r\n":                                     {ratelimit.ErrUnavailable, true},
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n":             {ratelimit.ErrUnavailable, true},
		"-BUSY Redis is busy running a script.\r\n":                                {ratelimit.ErrUnavailable, true},
		"-OOM command not allowed when used memory > 'maxmemory'." + tail + "\r\n": {ratelimit.ErrUnavailable, true},
		"-NOREPLICAS Not enough good replicas to write." + tail + "\r\n":           {ratelimit.ErrUnavailable, true},
		"-MISCONF Errors writing to the AOF file\r\n":                              {ratelimit.ErrUnavailable, true},
		"-ERR max number of clients reached\r\n":                                   {ratelimit.ErrUnavailable, true},
		"-ERR Script killed by user with SCRIPT KILL." + tail + "\r\n":             {ratelimit.ErrUnavailable, true},
		"-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: -OOM command not allowed when used memory > 'maxmemory'.\r\n": {ratelimit.ErrUnavailable, true},
		"-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: -WRONGTYPE Operation against a key\r\n":                       {ratelimit.ErrMisconfigured, false},
		"-WRONGTYPE Operation against a key holding the wrong kind of value" + tail + "\r\n":                                                        {ratelimit.ErrMisconfigured, false},
		"-NOPERM this user has no permissions to run the 'evalsha' command\r\n":                                                                     {ratelimit.ErrMisconfigured, false},
		"-NOAUTH Authentication required.\r\n":                       {ratelimit.ErrMisconfigured, false},
		"-CROSSSLOT Keys in request don't hash to the same slot\r\n": {ratelimit.ErrMisconfigured, true}, // in parts
		"-MOVED 3999 127.0.0.1:6381\r\n":                             {ratelimit.ErrMisconfigured, false},
		"-ERR unknown command 'evalsha'\r\n":                         {ratelimit.ErrMisconfigured, false},
		"+OK\r\n":                                                    {ratelimit.ErrMisconfigured, false},
		":7\r\n":                                                     {ratelimit.ErrMisconfigured, false},
		"$5\r\nhello\r\n":                                            {ratelimit.ErrMisconfigured, false},
		"$-1\r\n":                                                    {ratelimit.ErrMisconfigured, false},
		"*-1\r\n":                                                    {ratelimit.ErrMisconfigured, false},
		"*0\r\n":                                                     {ratelimit.ErrMisconfigured, false},
		"*1\r\n:7\r\n":                                               {ratelimit.ErrMisconfigured, false},
		"*1\r\n$3\r\nabc\r\n":                                        {ratelimit.ErrMisconfigured, false},
		"*1\r\n*1\r\n:1\r\n":                                         {ratelimit.ErrMisconfigured, false},
		"*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n-ERR x\r\n": {ratelimit.ErrMisconfigured, false},
		nonsense(-1, 1, 99, 0, 0, 0):                           {ratelimit.ErrMisconfigured, false}, // the time
		nonsense(1, 1_000_000, 99, 0, 0, 0):                    {ratelimit.ErrMisconfigured, false}, // granted
		nonsense(1, -7, 99, 0, 0, 0):                           {ratelimit.ErrMisconfigured, false},
		nonsense(1, 1, math.MaxInt64, 0, 0, 0):                 {ratelimit.ErrMisconfigured, false}, // remaining
		"*6\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n":            {ratelimit.ErrIndeterminate, false}, // one is missing
		"*4611686018427387904\r\n":                             {ratelimit.ErrIndeterminate, false}, // at which the client panics
		"_\r\n":                                                {ratelimit.ErrMisconfigured, false},
		"#t\r\n":                                               {ratelimit.ErrMisconfigured, false},
		",3.14\r\n":                                            {ratelimit.ErrMisconfigured, false},
		"(3492890328409238509324850943850943825024385\r\n":     {ratelimit.ErrMisconfigured, false},
		"%1\r\n+a\r\n:1\r\n":                                   {ratelimit.ErrMisconfigured, false},
		"~1\r\n:1\r\n":                                         {ratelimit.ErrMisconfigured, false},
		"=7\r\ntxt:abc\r\n":                                    {ratelimit.ErrMisconfigured, false},
		"!5\r\nERR x\r\n":                                      {ratelimit.ErrMisconfigured, false},
		"HTTP/1.1 400 Bad Request\r\n":                         {ratelimit.ErrMisconfigured, false},
	} {
		t.Run(strings.TrimSpace(reply), func(t *testing.T) {
			fake.reply.Store(reply)
			fake.scripts.Store(0)
			client := redis.NewClient(&redis.Options{Addr: fake.addr, Protocol: 2})
			defer client.Close()
			limiter := ratelimit.NewSlidingWindow(open(t, client, redisstore.WithTimeout(time.Second)))
			_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(100)))
			require.ErrorIs(t, err, want.is)
			if want.again {
				require.Greater(t, fake.scripts.Load(), int32(1))
			} else {
				require.EqualValues(t, 1, fake.scripts.Load())
			}
		})
	}
}

func nonsense(numbers ...int64) string {
	reply := fmt.Sprintf("*%d\r\n", len(numbers))
	for _, n := range numbers {
		reply += fmt.Sprintf(":%d\r\n", n)
	}
	return reply
}

// What ends a caller's context can be any error. It does not tell what became of the call.
func TestCauseOfTheEnd(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	defer client.Close()
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	for _, cause := range []error{redis.ErrPoolTimeout, redis.Nil, ratelimit.ErrUnavailable, &net.OpError{Op: "dial", Err: net.ErrClosed}} {
		proxy.Set(redistest.None)
		_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(100)))
		require.NoError(t, err)
		proxy.Set(redistest.SwallowReplies)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
		_, err = limiter.CheckAndUseQuotas(ctx, ask(1, ratelimit.PerHour(100)))
		require.ErrorIs(t, err, ratelimit.ErrIndeterminate)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, cause)
		require.ErrorContains(t, err, cause.Error())
	}
}

// Who leaves while his command waits to be written with those of others does no harm to
// them, and is charged only if he is not told otherwise.
func TestLeavingAnAutoPipeline(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PipelineWriteBufferSize: 64}) // so that a batch is written in pieces
	defer client.Close()
	pipeline, err := client.AutoPipeline()
	require.NoError(t, err)
	store, err := redisstore.New(pipeline, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	limiter := ratelimit.NewSimpleLimiter(store)
	const callers, calls = 64, 300
	var charged, unclear [callers]int64
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			requests := ask(1, ratelimit.PerDay(1_000_000))
			requests[0].Prefix = fmt.Sprint(g)
			for i := range calls {
				ctx, cancel := t.Context(), func() {}
				if leaves := g%4 == 0; leaves {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i*5)*time.Microsecond)
				}
				_, err := limiter.CheckAndUseQuotas(ctx, requests)
				cancel()
				switch {
				case err == nil:
					charged[g]++
				case errors.Is(err, ratelimit.ErrIndeterminate):
					unclear[g]++
				}
				if g%4 != 0 && err != nil {
					t.Errorf("caller %d, who stays: %v", g, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for g := range callers {
		requests := ask(0, ratelimit.PerDay(1_000_000))
		requests[0].Prefix = fmt.Sprint(g)
		_, grants, err := limiter.CheckWithinQuotas(t.Context(), requests)
		require.NoError(t, err)
		used := 1_000_000 - grants[0].Remaining
		require.GreaterOrEqual(t, used, charged[g], "caller %d", g)
		require.LessOrEqual(t, used, charged[g]+unclear[g], "caller %d", g)
	}
}

// A server that refuses the connection itself is one that asking again will not help.
func TestRefusedConnection(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).ACLSetUser(t.Context(), "somebody", "on", ">secret").Err())
	for name, o := range map[string]*redis.Options{
		"password": {Username: "somebody", Password: "wrong"},
		"database": {DB: 99},
	} {
		o.Addr = server.Addr
		client := redis.NewClient(o)
		defer client.Close()
		_, err := ratelimit.NewSlidingWindow(open(t, client)).CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(100)))
		require.ErrorIs(t, err, ratelimit.ErrMisconfigured, name)
		require.NotErrorIs(t, err, ratelimit.ErrUnavailable, name)
	}
}

// A server that does not answer holds nobody longer than the timeout, whatever
// the client's own limits are; and what was left behind ends when it does.
func TestBounded(t *testing.T) {
	server := redistest.Start(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 100, ReadTimeout: time.Minute})
	defer client.Close()
	const timeout = 100 * time.Millisecond
	store, err := redisstore.New(client, redisstore.WithTimeout(timeout))
	require.NoError(t, err)
	limiter := ratelimit.NewSlidingWindow(store)
	call := func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		_, err := limiter.CheckAndUseQuotas(ctx, ask(1, ratelimit.PerHour(1000)))
		return time.Since(start), err
	}
	_, err = call(t.Context())
	require.NoError(t, err)

	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for range 100 {
		wg.Go(func() {
			took, err := call(t.Context())
			if err == nil {
				t.Error("a stopped server answered")
			}
			for old := slowest.Load(); int64(took) > old && !slowest.CompareAndSwap(old, int64(took)); old = slowest.Load() {
			}
		})
	}
	wg.Wait()
	t.Logf("the slowest of 100 callers returned after %v", time.Duration(slowest.Load()))
	require.Less(t, time.Duration(slowest.Load()), 10*timeout)

	// A deadline of the caller's, or a cancellation, ends it sooner.
	sooner, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = call(sooner)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	took, err := call(cancelled)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, took, timeout)
	server.Signal(syscall.SIGCONT)
}

// Who can't be reached in time was certainly not charged, whatever the client
// was doing: here it dials an address that does not answer.
func TestNotSentIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	client := redis.NewClient(&redis.Options{Addr: addr}) // with five dials and the pauses between them
	defer client.Close()
	store, err := redisstore.New(client, redisstore.WithTimeout(50*time.Millisecond))
	require.NoError(t, err)
	_, err = ratelimit.NewSlidingWindow(store).CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(100)))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.NotErrorIs(t, err, ratelimit.ErrIndeterminate)
}

// A server that comes back empty knows neither scripts nor counters: no lasting
// error.
func TestRestart(t *testing.T) {
	server := redistest.Start(t)
	limiter := ratelimit.NewSlidingWindow(open(t, server.Client(t)))
	request := ask(1, ratelimit.PerHour(9))
	_, err := limiter.CheckAndUseQuotas(t.Context(), request)
	require.NoError(t, err)
	server.Restart(t)
	require.Eventually(t, func() bool {
		grants, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.NotErrorIs(t, err, ratelimit.ErrMisconfigured)
		return err == nil && grants[0].Remaining >= 7
	}, 10*time.Second, 10*time.Millisecond)
}

// A key that lost its expiry gets one back: the expiry is moved an eighth of a
// window at a time, or with the next window.
func TestLostExpiry(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for name, make := range limitertest.Strategies {
		limiter := make(open(t, client))
		request := ask(1, ratelimit.Quota{Limit: 9, Window: time.Second, Granularity: time.Millisecond})
		_, err := limiter.CheckAndUseQuotas(t.Context(), request)
		require.NoError(t, err)
		key := client.Keys(t.Context(), "*").Val()[0]
		require.True(t, client.Persist(t.Context(), key).Val())
		require.Eventually(t, func() bool {
			_, err = limiter.CheckAndUseQuotas(t.Context(), request)
			require.NoError(t, err)
			return client.PTTL(t.Context(), key).Val() > 0
		}, 10*time.Second, 20*time.Millisecond, name)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

// A pool without a free connection sends nothing.
func TestPoolExhausted(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, PoolTimeout: 10 * time.Millisecond})
	defer client.Close()
	limiter := ratelimit.NewSlidingWindow(open(t, client))
	taken := client.Conn()
	require.NoError(t, taken.Ping(t.Context()).Err())
	_, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(9)))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.NoError(t, taken.Close())
	grants, err := limiter.CheckAndUseQuotas(t.Context(), ask(1, ratelimit.PerHour(9)))
	require.NoError(t, err)
	require.EqualValues(t, 8, grants[0].Remaining)
}
