package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Sentinel watches a primary and its replica.
type Sentinel struct {
	Primary, Replica *Server
	Addr             string
}

const sentinelName = "main"

// StartSentinel starts a primary with a replica and a Sentinel that fails over
// after half a second.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Primary: Start(t)}
	host, port, err := net.SplitHostPort(s.Primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	s.Replica = Start(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %s %s 1\nsentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 2000\n", sentinelName, host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	watcher := startServer(t, config, "--sentinel")
	s.Addr = watcher.Addr
	client := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	for range 500 { // until it has found the replica
		replicas, err := client.Replicas(context.Background(), sentinelName).Result()
		if err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok" {
			return s
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the Sentinel does not find the replica")
	return nil
}

// Client is a failover client, closed when the test ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinelName, SentinelAddrs: []string{s.Addr}})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
