package main

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is one of the benchmark's own, on a free port of loopback, that keeps
// nothing on disk.
type redisServer struct {
	addr   string
	client *redis.Client // for what is not measured
	cmd    *exec.Cmd
	log    bytes.Buffer
}

func haveRedis() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

func startRedis() (*redisServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: listener.Addr().String()}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, err
	}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	for range 500 {
		if err = s.client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis-server on %s: %w\n%s", s.addr, err, s.log.Bytes())
}

func (s *redisServer) stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// onRedis runs with a server that is stopped afterwards.
func onRedis(run func(*redisServer) (report, error)) (report, error) {
	s, err := startRedis()
	if err != nil {
		return report{}, err
	}
	defer s.stop()
	return run(s)
}

// evalStats is how often scripts were run by EVALSHA since they were last reset, and how
// much time the server took for each, in ns.
func (s *redisServer) evalStats() (calls int64, nanos float64, err error) {
	info, err := s.client.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	line, ok := info["Commandstats"]["cmdstat_evalsha"]
	if !ok {
		return 0, 0, nil
	}
	var usec int64
	if _, err := fmt.Sscanf(line, "calls=%d,usec=%d,", &calls, &usec); err != nil {
		return 0, 0, fmt.Errorf("cmdstat_evalsha %q: %w", line, err)
	}
	return calls, float64(usec) * 1e3 / float64(max(1, calls)), nil
}

func (s *redisServer) resetStats() error {
	return s.client.ConfigResetStat(ctx).Err()
}

// empty forgets all keys.
func (s *redisServer) empty() error { return s.client.FlushAll(ctx).Err() }
