package redistokens_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit/internal/redistest"
	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens"
	"github.com/granule-limits/ratelimit/tokens/redistokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNew(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for says, try := range map[string]func() (*redistokens.Store, error){
		"client is nil":                func() (*redistokens.Store, error) { return redistokens.New(nil) },
		"a redis.Ring":                 func() (*redistokens.Store, error) { return redistokens.New(ring) },
		"0s is not above zero":         func() (*redistokens.Store, error) { return redistokens.New(client, redistokens.WithTimeout(0)) },
		`"" is empty`:                  func() (*redistokens.Store, error) { return redistokens.New(client, redistokens.WithNamespace("")) },
		`"{a" is empty or has a brace`: func() (*redistokens.Store, error) { return redistokens.New(client, redistokens.WithNamespace("{a")) },
	} {
		_, err := try()
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorContains(t, err, strings.TrimSpace(says))
	}
	_, err := (*redistokens.Store)(nil).InUse(t.Context(), tokens.Account{})
	require.ErrorIs(t, err, storage.ErrMisconfigured)
}

// The keys are as the documentation has them, in the right slots, and all expire.
func TestKeys(t *testing.T) {
	client := redistest.Start(t).Client(t)
	store, err := redistokens.New(client, redistokens.WithNamespace("ns"), redistokens.WithTimeout(time.Minute))
	require.NoError(t, err)
	p, err := tokens.New("my:pool", store, tokens.Fixed(2))
	require.NoError(t, err)
	r, err := p.Reserve(t.Context(), "a:{b}")
	require.NoError(t, err)
	requireKeys(t, client, map[string]time.Duration{
		"ns:{my%3Apool:a%3A%7Bb%7D}:deadlines": 5 * time.Minute,
		"ns:{my%3Apool:a%3A%7Bb%7D}:resources": 5 * time.Minute,
	})
	require.NoError(t, r.Bind(t.Context(), "i-1"))
	bound := map[string]time.Duration{
		"ns:{my%3Apool:a%3A%7Bb%7D}:deadlines": 8 * time.Hour,
		"ns:{my%3Apool:a%3A%7Bb%7D}:resources": 8 * time.Hour,
		"ns:{my%3Apool:i-1}:index":             32 * time.Hour,
	}
	requireKeys(t, client, bound)
	require.NoError(t, client.PExpire(t.Context(), "ns:{my%3Apool:i-1}:index", time.Hour).Err())
	_, err = p.Renew(t.Context(), "i-1")
	require.NoError(t, err)
	requireKeys(t, client, bound) // renewed too
	_, err = p.Release(t.Context(), "i-1")
	require.NoError(t, err)
	requireKeys(t, client, nil)
	require.ErrorIs(t, r.Bind(t.Context(), "i-2"), tokens.ErrReservationExpired)
	requireKeys(t, client, nil)

	_, err = p.Reserve(t.Context(), strings.Repeat("long", 100))
	require.NoError(t, err)
	for _, key := range client.Keys(t.Context(), "*").Val() {
		require.Less(t, len(key), 120)
	}
}

func requireKeys(t *testing.T, client *redis.Client, want map[string]time.Duration) {
	t.Helper()
	keys := client.Keys(t.Context(), "*").Val()
	require.Len(t, keys, len(want))
	for _, key := range keys {
		require.Contains(t, want, key)
		require.InDelta(t, want[key], client.PTTL(t.Context(), key).Val(), float64(time.Minute), key)
	}
}

// A lost answer is told apart from an operation that was never sent, and either way
// repeating it gives what was wanted, once.
func TestLostAnswers(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	direct := newPool(t, server.Client(t))
	for _, c := range []struct {
		name  string
		fault redistest.Fault
		is    error
	}{
		{"reply swallowed", redistest.SwallowReplies, storage.ErrIndeterminate},
		{"closed after the request", redistest.CloseAfterRequest, storage.ErrIndeterminate},
		{"reset before the request", redistest.ResetBeforeRequest, storage.ErrIndeterminate},
		{"connection refused", redistest.Refuse, storage.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails := func(what string, f func(p *tokens.Pool) error, is error) {
				t.Helper()
				client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
				defer client.Close()
				store, err := redistokens.New(client, redistokens.WithTimeout(150*time.Millisecond))
				require.NoError(t, err)
				p, err := tokens.New(direct.Name(), store, tokens.Fixed(2))
				require.NoError(t, err)
				proxy.Set(redistest.None)
				if c.fault != redistest.Refuse { // and so one connection is open
					_, err = p.InUse(t.Context(), "z")
					require.NoError(t, err)
				}
				proxy.Set(c.fault)
				require.ErrorIs(t, f(p), is, what)
				proxy.Set(redistest.None)
			}
			ctx, account, resource := t.Context(), c.name, "i-"+c.name
			fails("Reserve", func(p *tokens.Pool) error { _, err := p.ReserveAs(ctx, account, "1"); return err }, c.is)
			r, err := direct.ReserveAs(ctx, account, "1")
			require.NoError(t, err)
			fails("InUse", func(p *tokens.Pool) error { _, err := p.InUse(ctx, account); return err }, storage.ErrUnavailable)
			n, err := direct.InUse(ctx, account)
			require.NoError(t, err)
			require.EqualValues(t, 1, n, "one place for all that was sent")
			fails("Renew of a hold", func(p *tokens.Pool) error { return p.Reservation(account, "1").Renew(ctx) }, c.is)
			fails("Bind", func(p *tokens.Pool) error { return p.Reservation(account, "1").Bind(ctx, resource) }, storage.ErrUnavailable) // in its first step
			require.NoError(t, r.Bind(ctx, resource))
			fails("Renew", func(p *tokens.Pool) error { _, err := p.Renew(ctx, resource); return err }, storage.ErrUnavailable)
			fails("Release", func(p *tokens.Pool) error { _, err := p.Release(ctx, resource); return err }, storage.ErrUnavailable)
			_, err = direct.Release(ctx, resource)
			require.NoError(t, err)
			_, err = direct.ReserveAs(ctx, account, "2")
			require.NoError(t, err)
			fails("Cancel", func(p *tokens.Pool) error { return p.Reservation(account, "2").Cancel(ctx) }, c.is)
			require.NoError(t, direct.Reservation(account, "2").Cancel(ctx))
			n, err = direct.InUse(ctx, account)
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
}

// What is not sent when the caller leaves never will be: no place is taken for
// somebody who has gone.
func TestNotSentLater(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	store, err := redistokens.New(client, redistokens.WithTimeout(50*time.Millisecond))
	require.NoError(t, err)
	p, err := tokens.New("pool", store, tokens.Fixed(1))
	require.NoError(t, err)
	server.Signal(syscall.SIGSTOP)
	_, err = p.Reserve(t.Context(), "a") // its connection says hello, and gets no answer
	require.ErrorIs(t, err, storage.ErrUnavailable)
	server.Signal(syscall.SIGCONT)
	require.Eventually(t, func() bool { // until the client is done with it
		stats := client.PoolStats()
		return stats.TotalConns == stats.IdleConns
	}, time.Minute, time.Millisecond)
	n, err := newPool(t, server.Client(t)).InUse(t.Context(), "a")
	require.NoError(t, err)
	require.Zero(t, n)
}

// A server that stops costs no more than the timeout, in an operation of several
// steps too.
func TestStoppedServer(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	store, err := redistokens.New(client, redistokens.WithTimeout(50*time.Millisecond))
	require.NoError(t, err)
	p, err := tokens.New("pool", store, tokens.Fixed(1))
	require.NoError(t, err)
	slow := newPool(t, client)
	r, err := slow.Reserve(t.Context(), "a")
	require.NoError(t, err)
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	err = p.Reservation("a", r.ID()).Cancel(t.Context())
	require.ErrorIs(t, err, storage.ErrIndeterminate)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "redistokens.WithTimeout(50ms)")
	require.ErrorIs(t, p.Reservation("a", r.ID()).Bind(t.Context(), "i-1"), storage.ErrUnavailable, "on a new connection, which does not get so far")
}

// The answer of a step is lost, and it is not known whether that was carried out: what
// the caller is told says what may have changed, and repeating it helps.
func TestLostSteps(t *testing.T) {
	client := redistest.Start(t).Client(t)
	direct := newPool(t, client)
	ctx := t.Context()
	for _, c := range []struct {
		what string
		step int
		do   func(p *tokens.Pool) error
		is   error
	}{
		{"Bind, look", 1, func(p *tokens.Pool) error { return p.Reservation("a", "1").Bind(ctx, "i-1") }, storage.ErrUnavailable},
		{"Bind, claim", 2, func(p *tokens.Pool) error { return p.Reservation("a", "1").Bind(ctx, "i-1") }, storage.ErrUnavailable},
		{"Bind, bind", 3, func(p *tokens.Pool) error { return p.Reservation("a", "1").Bind(ctx, "i-1") }, storage.ErrIndeterminate},
		{"Bind of what is bound, claim", 2, func(p *tokens.Pool) error { return p.Reservation("a", "2").Bind(ctx, "i-1") }, storage.ErrUnavailable},
		{"Bind of what is bound, look at the other", 3, func(p *tokens.Pool) error { return p.Reservation("a", "2").Bind(ctx, "i-1") }, storage.ErrUnavailable},
		{"Renew, whose", 1, func(p *tokens.Pool) error { _, err := p.Renew(ctx, "i-1"); return err }, storage.ErrUnavailable},
		{"Renew, claim", 2, func(p *tokens.Pool) error { _, err := p.Renew(ctx, "i-1"); return err }, storage.ErrUnavailable},
		{"Renew, renew", 3, func(p *tokens.Pool) error { _, err := p.Renew(ctx, "i-1"); return err }, storage.ErrIndeterminate},
		{"Release, whose", 1, func(p *tokens.Pool) error { _, err := p.Release(ctx, "i-1"); return err }, storage.ErrUnavailable},
		{"Release, drop", 2, func(p *tokens.Pool) error { _, err := p.Release(ctx, "i-1"); return err }, storage.ErrIndeterminate},
		{"Release, unclaim", 3, func(p *tokens.Pool) error { _, err := p.Release(ctx, "i-1"); return err }, nil},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		bound, err := direct.ReserveAs(ctx, "a", "1")
		require.NoError(t, err)
		if c.what[:6] != "Bind, " {
			require.NoError(t, bound.Bind(ctx, "i-1"))
		}
		_, err = direct.ReserveAs(ctx, "a", "2")
		require.NoError(t, err)
		lossy := &loses{Client: client, step: c.step}
		err = c.do(newPool(t, lossy))
		require.Zero(t, lossy.step, c.what)
		if c.is == nil {
			require.NoError(t, err, c.what)
		} else {
			require.ErrorIs(t, err, c.is, c.what)
			require.ErrorIs(t, err, io.EOF, c.what)
		}
		requireSound(t, direct, &schedule{log: []string{c.what}})
	}
}

// loses is a client that loses an answer.
type loses struct {
	redistokens.Client
	step int
}

func (l *loses) Process(ctx context.Context, cmd redis.Cmder) error {
	err := l.Client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	if l.step--; l.step == 0 {
		return io.EOF
	}
	return err
}

// A server that has forgotten the scripts, or everything.
func TestForgetfulServer(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	p := newPool(t, client)
	r, err := p.Reserve(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	require.NoError(t, r.Bind(t.Context(), "i-1"))
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	released, err := p.Release(t.Context(), "i-1")
	require.NoError(t, err)
	require.True(t, released)
	server.Restart(t)
	require.ErrorIs(t, r.Bind(t.Context(), "i-1"), tokens.ErrReservationExpired)
	r, err = p.Reserve(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, r.Bind(t.Context(), "i-1"))
}

func TestMisconfigured(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	p := newPool(t, client)
	ctx := t.Context()
	require.NoError(t, client.Set(ctx, "tokens:{pool:a}:deadlines", "text", 0).Err())
	require.NoError(t, client.Set(ctx, "tokens:{pool:b}:resources", "text", 0).Err())
	for _, account := range []string{"a", "b"} {
		_, err := p.Reserve(ctx, account)
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorIs(t, p.Reservation(account, "1").Bind(ctx, "i-1"), storage.ErrMisconfigured)
	}
	for _, claim := range []string{"text", "1:", "1:a", "1:a9:b", "-1:a", "1:a0:", ":", "99999999999999999999:a"} {
		require.NoError(t, client.Set(ctx, "tokens:{pool:i-2}:index", claim, 0).Err())
		released, err := p.Release(ctx, "i-2")
		require.False(t, released)
		require.ErrorIs(t, err, storage.ErrMisconfigured, claim)
		r, err := p.ReserveAs(ctx, "c", "1")
		require.NoError(t, err)
		require.ErrorIs(t, r.Bind(ctx, "i-2"), storage.ErrMisconfigured, claim)
	}
	require.NoError(t, client.Do(ctx, "acl", "setuser", "weak", "on", ">secret", "~*", "+get").Err())
	weak := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "weak", Password: "secret"})
	defer weak.Close()
	_, err := newPool(t, weak).Reserve(ctx, "a")
	require.ErrorIs(t, err, storage.ErrMisconfigured)
}

// A server that is full takes no more, and gives back nevertheless.
func TestFullServer(t *testing.T) {
	client := redistest.Start(t).Client(t)
	p := newPool(t, client)
	held, err := p.Reserve(t.Context(), "a")
	require.NoError(t, err)
	bound, err := p.Reserve(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, bound.Bind(t.Context(), "i-1"))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = p.Reserve(t.Context(), "b")
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NoError(t, held.Cancel(t.Context()))
	released, err := p.Release(t.Context(), "i-1")
	require.NoError(t, err)
	require.True(t, released)
}

// The server's clock is set back, or another server takes over whose clock is behind:
// what was left is left, nothing that has ended comes back, and nobody is locked out.
func TestClockSetBack(t *testing.T) {
	client := redistest.Start(t).Client(t)
	p := newPool(t, client)
	ctx := t.Context()
	ended, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	setClock(t, client, time.Hour) // the hold ends unnoticed
	bound, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, bound.Bind(ctx, "i-1"))
	setClock(t, client, -time.Hour) // and the clock is corrected
	require.ErrorIs(t, ended.Bind(ctx, "i-2"), tokens.ErrReservationExpired)
	places, err := p.List(ctx, "a")
	require.NoError(t, err)
	require.Len(t, places, 1)
	require.WithinDuration(t, time.Now().Add(8*time.Hour), places[0].Ends, time.Minute)

	setClock(t, client, -24*365*time.Hour)
	for range 3 { // once, not each time
		places, err = p.List(ctx, "a")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(8*time.Hour), places[0].Ends, time.Minute)
	}
	released, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.True(t, released)
}

// setClock moves the server's clock: as the server's can't be moved, everything that
// was written by it is, the other way.
func setClock(t *testing.T, client *redis.Client, d time.Duration) {
	ctx := t.Context()
	by := float64(-d.Microseconds())
	for _, z := range client.ZRange(ctx, "tokens:{pool:a}:deadlines", 0, -1).Val() {
		require.NoError(t, client.ZIncrBy(ctx, "tokens:{pool:a}:deadlines", by, z).Err())
	}
	require.NoError(t, client.HIncrBy(ctx, "tokens:{pool:a}:resources", "", -d.Microseconds()).Err())
}

// An index that was lost is written again by repeating the Bind.
func TestLostIndex(t *testing.T) {
	client := redistest.Start(t).Client(t)
	p := newPool(t, client)
	ctx := t.Context()
	r, err := p.Reserve(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, r.Bind(ctx, "i-1"))
	require.NoError(t, client.Del(ctx, "tokens:{pool:i-1}:index").Err())
	released, err := p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.False(t, released)
	places, err := p.List(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, p.Reservation("a", places[0].Reservation).Bind(ctx, places[0].Resource))
	released, err = p.Release(ctx, "i-1")
	require.NoError(t, err)
	require.True(t, released)
}

// A primary of a cluster is lost, and its replica takes over: tokens that it had are
// still there, and can be released.
func TestClusterFailover(t *testing.T) {
	cluster := redistest.StartCluster(t, 1)
	client := cluster.Client(t)
	p := newPool(t, client)
	ctx := t.Context()
	for i := range 30 {
		r, err := p.Reserve(ctx, fmt.Sprint("account ", i))
		require.NoError(t, err)
		require.NoError(t, r.Bind(ctx, fmt.Sprint("i-", i)))
	}
	for _, s := range cluster.Servers { // all of it has reached a replica
		_ = s.Client(t).Wait(ctx, 1, time.Minute).Err()
	}
	cluster.Servers[0].Stop()
	for i := range 30 {
		require.Eventually(t, func() bool {
			_, err := p.Release(ctx, fmt.Sprint("i-", i))
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		n, err := p.InUse(ctx, fmt.Sprint("account ", i))
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

// Slots move while places are taken and given back.
func TestClusterReshard(t *testing.T) {
	cluster := redistest.StartCluster(t, 0)
	p := newPool(t, cluster.Client(t))
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := p.Do(context.Background(), fmt.Sprint(i%50), func(ctx context.Context, r *tokens.Reservation) error {
				if err := r.Bind(ctx, fmt.Sprint("i-", i)); err != nil {
					return err
				}
				released, err := p.Release(ctx, fmt.Sprint("i-", i))
				if err == nil && !released {
					err = fmt.Errorf("i-%d was bound, and holds no token", i)
				}
				return err
			})
			if err != nil {
				done <- err
				return
			}
		}
	}()
	cluster.Reshard(t, 0, 1, 300)
	close(stop)
	require.NoError(t, <-done)
}
