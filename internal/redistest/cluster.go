package redistest

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Cluster is a Redis Cluster of a test's own.
type Cluster struct {
	Servers []*Server // the first half were made primaries
}

// StartCluster starts three primaries, each with a replica or with none, and
// joins them; it takes some seconds.
func StartCluster(t testing.TB, replicas int) *Cluster {
	t.Helper()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli on the PATH: nothing is tested on a cluster")
	}
	c := new(Cluster)
	args := []string{"--cluster", "create"}
	for range 3 * (1 + replicas) {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")
		c.Servers = append(c.Servers, s)
		args = append(args, s.Addr)
	}
	args = append(args, "--cluster-yes")
	if replicas > 0 {
		args = append(args, "--cluster-replicas", "1")
	}
	if out, err := exec.Command(cli, args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	client := c.Client(t)
	for range 500 {
		if up(client) && c.replicated() {
			return c
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the cluster does not come up")
	return nil
}

// Reshard moves slots from one primary to another.
func (c *Cluster) Reshard(t testing.TB, from, to, slots int) {
	t.Helper()
	id := func(s *Server) string {
		id, err := s.Client(t).ClusterMyID(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	out, err := exec.Command("redis-cli", "--cluster", "reshard", c.Servers[0].Addr,
		"--cluster-from", id(c.Servers[from]), "--cluster-to", id(c.Servers[to]),
		"--cluster-slots", strconv.Itoa(slots), "--cluster-yes").CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli --cluster reshard: %v\n%s", err, out)
	}
}

// up tells whether every shard takes writes.
func up(client *redis.ClusterClient) bool {
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} { // some in each shard
		if client.Set(context.Background(), key, "1", time.Second).Err() != nil || client.Del(context.Background(), key).Err() != nil {
			return false
		}
	}
	return true
}

// replicated tells whether every replica follows its primary: no other can take
// over.
func (c *Cluster) replicated() bool {
	for _, s := range c.Servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		info := client.Info(context.Background(), "replication").Val()
		_ = client.Close()
		if strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
			return false
		}
	}
	return true
}

// Client is a client of the cluster with go-redis's default options, closed when
// the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	options := &redis.ClusterOptions{}
	for _, s := range c.Servers {
		options.Addrs = append(options.Addrs, s.Addr)
	}
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
