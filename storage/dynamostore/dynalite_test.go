package dynamostore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startDynalite starts a dynalite of the test's own on a free port of loopback
// and stops it when the test ends. Without one the test is skipped or, with
// RATELIMIT_REQUIRE_DYNALITE=1, fails.
func startDynalite(t testing.TB) (addr string) {
	t.Helper()
	cli, err := filepath.Abs("testdata/dynalite/node_modules/dynalite/cli.js")
	require.NoError(t, err)
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(cli)
	}
	if err != nil {
		const what = "no dynalite: have node 20 on the PATH and run 'npm ci --ignore-scripts' in testdata/dynalite"
		if os.Getenv("RATELIMIT_REQUIRE_DYNALITE") == "1" {
			t.Fatalf("%s, as RATELIMIT_REQUIRE_DYNALITE=1: %v", what, err)
		}
		t.Skipf("%s: %v", what, err)
	}
	for try := 1; ; try++ {
		addr, err := startProcess(t, node, cli, "--createTableMs", "0", "--host", "127.0.0.1", "--port")
		if err == nil {
			return addr
		}
		require.Less(t, try, 5, "another process may have taken the port: %v", err)
	}
}

// startProcess starts a server whose last argument is its port, and waits until
// it listens.
func startProcess(t testing.TB, path string, args ...string) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr = l.Addr().String()
	require.NoError(t, l.Close())

	var log bytes.Buffer
	cmd := exec.Command(path, append(args, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))...)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 1000 {
		conn, dialErr := net.Dial("tcp", addr)
		if dialErr == nil {
			_ = conn.Close()
			t.Cleanup(stop)
			return addr, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return "", fmt.Errorf("%s does not listen on %s: %s", path, addr, log.Bytes())
}

// newClient is a client of a server on loopback, with the SDK's default options.
func newClient(t testing.TB, addr string) *dynamodb.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String("http://" + addr),
		HTTPClient:   &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

const table = "counters"

// open is a store on a server. What is tested is no matter of speed: it waits
// long.
func open(t testing.TB, client dynamostore.Client, opts ...dynamostore.Option) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.New(client, table, append([]dynamostore.Option{dynamostore.WithTimeout(time.Minute), dynamostore.WithMaxAttempts(50)}, opts...)...)
	require.NoError(t, err)
	return store
}
