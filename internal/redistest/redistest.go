// Package redistest starts real redis-server processes for tests.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server of a test's own, on a free port of loopback.
type Server struct {
	Addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// Start starts a redis-server and stops it when the test ends. Without one on
// the PATH the test is skipped or, with RATELIMIT_REQUIRE_REDIS=1, fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startServer(t, append([]string{"--save", ""}, args...)...)
}

func startServer(t testing.TB, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
			t.Fatal("no redis-server on the PATH, and RATELIMIT_REQUIRE_REDIS=1")
		}
		t.Skip("no redis-server on the PATH: nothing is tested on a real Redis")
	}
	for try := 1; ; try++ {
		s, err := start(path, t.TempDir(), args)
		if err == nil {
			t.Cleanup(s.Stop)
			return s
		}
		if try == 5 { // another process may have taken the port
			t.Fatal(err)
		}
	}
}

func start(path, dir string, args []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	s.cmd = exec.Command(path, append(args, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.ready(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("redis-server on %s: %w\n%s", s.Addr, err, s.log.Bytes())
	}
	return s, nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer client.Close()
	var err error
	for range 200 {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Stop kills the server, if it still runs.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Restart kills the server and starts it again, empty, on the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	cmd := exec.Command(s.cmd.Path, s.cmd.Args[1:]...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	s.cmd = cmd
	err := cmd.Start()
	if err == nil {
		err = s.ready()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(sig os.Signal) { _ = s.cmd.Process.Signal(sig) }

// ACL is the permissions that the limiter needs, as docs/redis.md has them, and
// further rules, as arguments of ACL SETUSER.
func ACL(namespace string, rules ...string) []any {
	acl := []any{"~" + namespace + ":*"}
	for _, command := range []string{
		"evalsha", "eval", "time", "get", "getrange", "strlen", "set", "setrange", "append", "del", "pexpire", "info",
	} {
		acl = append(acl, "+"+command)
	}
	for _, rule := range rules {
		acl = append(acl, rule)
	}
	return acl
}

// LimitedClient is a client of the server with the permissions of ACL, closed
// when the test ends.
func (s *Server) LimitedClient(t testing.TB, namespace string) *redis.Client {
	t.Helper()
	const user, password = "limiter", "secret"
	setUser := append([]any{"acl", "setuser", user, "reset", "on", ">" + password}, ACL(namespace)...)
	if err := s.Client(t).Do(context.Background(), setUser...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: user, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Client is a client of the server with go-redis's default options, closed when
// the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
