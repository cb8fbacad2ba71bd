package natstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const nodes = 3

// A Cluster is three servers in processes of their own, which form one JetStream cluster. It works without any one of them.
type Cluster struct {
	Client // of all nodes

	Nodes []*Node
}

// A Node is a server of a Cluster with its data. Its methods are safe for concurrent use.
type Node struct {
	Client // of this node

	Name string

	program string
	config  string // path of the configuration file
	dir     *serverproc.Dir
	log     *serverproc.Tail
	process atomic.Pointer[serverproc.Process]
}

// StartCluster starts a cluster for this test and stops it when the test ends. settings are more lines of the configuration
// file of each server. Unless the run is a full one, StartCluster skips the test.
func StartCluster(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	need.FullRun(tb, "it needs a cluster of three NATS servers")
	program := build(tb)
	c := &Cluster{}
	var client, route []*serverproc.Port
	for range nodes {
		client, route = append(client, reserve(tb)), append(route, reserve(tb))
	}
	var routes []string
	for _, p := range route {
		routes = append(routes, "nats://"+p.Addr())
	}
	for i := range nodes {
		n := newNode(tb, program, fmt.Sprintf("n%d", i+1), client[i].Addr())
		text := fmt.Sprintf("server_name: %s\nlisten: %s\njetstream {store_dir: %q}\ncluster {name: natstest, listen: %s, routes: [%s]}\n%s\n",
			n.Name, client[i].Addr(), filepath.Join(n.dir.Path(), "data"), route[i].Addr(), strings.Join(routes, ", "), strings.Join(settings, "\n"))
		if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		c.Nodes = append(c.Nodes, n)
		c.Addrs = append(c.Addrs, client[i].Addr())
	}
	for _, n := range c.Nodes {
		n.Restart(tb)
	}
	c.awaitReady(tb)
	return c
}

// StartNode starts one server without a cluster in a process of its own, for a test that kills or pauses it, and stops it when
// the test ends. Unless the run is a full one, StartNode skips the test.
func StartNode(tb testing.TB) *Node {
	tb.Helper()
	need.FullRun(tb, "it needs a NATS server in a process of its own")
	n := newNode(tb, build(tb), "natstest", reserve(tb).Addr())
	text := fmt.Sprintf("server_name: %s\nlisten: %s\njetstream {store_dir: %q}\n", n.Name, n.Addrs[0], filepath.Join(n.dir.Path(), "data"))
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	n.Restart(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	if err := n.AwaitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	return n
}

// AwaitReady blocks until the node serves JetStream.
func (n *Node) AwaitReady(ctx context.Context) error {
	for {
		err := n.try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the NATS server is not ready: %w\n%s", err, n.log)
		}
	}
}

func (n *Node) try(ctx context.Context) error {
	conn, err := nats.Connect(n.URL(), n.Options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err
}

func reserve(tb testing.TB) *serverproc.Port {
	tb.Helper()
	p, err := serverproc.ReservePort()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func newNode(tb testing.TB, program, name, addr string) *Node {
	tb.Helper()
	dir, err := serverproc.MakeDir("", "outbox-cdc-nats-")
	if err == nil {
		err = keepFolder(filepath.Join(dir.Path(), "data"))
	}
	if err != nil {
		tb.Fatal(err)
	}
	n := &Node{
		Client: Client{Addrs: []string{addr}}, Name: name, program: program, config: filepath.Join(dir.Path(), "nats.conf"),
		dir: dir, log: serverproc.NewTail(nil),
	}
	tb.Cleanup(func() {
		n.Kill(tb)
		if tb.Failed() {
			tb.Logf("end of the log of %s:\n%s", name, n.log)
		}
		if err := dir.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

var buildOnce sync.Mutex //nolint:gochecknoglobals // one per test binary is the point

// build builds the server of the version in go.mod and returns its path. All test binaries share it.
func build(tb testing.TB) string {
	tb.Helper()
	buildOnce.Lock()
	defer buildOnce.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	cache, err := serverproc.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	const module = "github.com/nats-io/nats-server/v2"
	version, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		tb.Fatalf("find the version of the NATS server: %v", err)
	}
	dir := filepath.Join(cache, "nats-server-"+strings.TrimSpace(string(version)))
	err = serverproc.Fill(ctx, dir, func(staging string) error {
		out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(staging, "nats-server"), module).CombinedOutput() //nolint:gosec // our own text
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("build the NATS server: %v", err)
	}
	return filepath.Join(dir, "nats-server")
}

// Restart starts the node with the same data and ports. If it runs, it is shut down first.
func (n *Node) Restart(tb testing.TB) {
	tb.Helper()
	n.Shutdown(tb)
	cmd := exec.Command(n.program, "-c", n.config) //nolint:gosec,noctx // the server we have built; it outlives every context
	cmd.Stdout, cmd.Stderr = n.log, n.log
	process, err := n.dir.Start(cmd, syscall.SIGKILL)
	if err != nil {
		tb.Fatal(err)
	}
	n.process.Store(process)
}

// Shutdown stops the node (SIGTERM) and waits until it has exited. The data stays.
func (n *Node) Shutdown(tb testing.TB) {
	tb.Helper()
	n.end(tb, syscall.SIGTERM)
}

// Kill kills the node (SIGKILL) and waits until it has exited. The data stays.
func (n *Node) Kill(tb testing.TB) {
	tb.Helper()
	n.end(tb, syscall.SIGKILL)
}

func (n *Node) end(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	process := n.process.Load()
	if process == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startTimeout)
	defer cancel()
	if err := process.End(ctx, sig); err != nil {
		tb.Errorf("end the NATS server %s: %v", n.Name, err)
	}
}

// Pause stops the process (SIGSTOP): connections remain open, and the node does not respond.
func (n *Node) Pause(tb testing.TB) {
	tb.Helper()
	if err := n.process.Load().Pause(); err != nil {
		tb.Fatal(err)
	}
}

// Resume undoes Pause.
func (n *Node) Resume(tb testing.TB) {
	tb.Helper()
	if err := n.process.Load().Resume(); err != nil {
		tb.Fatal(err)
	}
}

// awaitReady waits until the cluster can create a stream with a replica on each node.
func (c *Cluster) awaitReady(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*startTimeout)
	defer cancel()
	for {
		err := c.try(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("the NATS cluster is not ready: %v\n%s", err, c.Nodes[0].log)
		}
	}
}

func (c *Cluster) try(ctx context.Context) error {
	conn, err := nats.Connect(c.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "natstest-ready", Replicas: nodes}); err != nil {
		return err
	}
	return js.DeleteStream(ctx, "natstest-ready")
}

// Leader returns the node that leads a stream, and waits while there is none.
func (c *Cluster) Leader(tb testing.TB, stream string) *Node {
	tb.Helper()
	var leader *Node
	c.await(tb, stream, "has no leader", func(info *jetstream.ClusterInfo) bool {
		for _, n := range c.Nodes {
			if n.Name == info.Leader && n.process.Load().Running() {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// await waits until the state of a stream's replicas meets cond. A request has no response if the node that handles it is
// killed, so it is sent again soon.
func (c *Cluster) await(tb testing.TB, stream, problem string, cond func(*jetstream.ClusterInfo) bool) {
	tb.Helper()
	ctx, js := Context(tb), c.JetStream(tb)
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		s, err := js.Stream(attempt, stream)
		cancel()
		if err == nil {
			if info := s.CachedInfo().Cluster; info != nil && cond(info) {
				return
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("stream %s %s: %v", stream, problem, err)
		}
	}
}

// StepDown makes the leader of a stream give up leadership, so that another node is elected.
func (c *Cluster) StepDown(tb testing.TB, stream string) {
	tb.Helper()
	if _, err := c.Connect(tb).Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, requestTimeout); err != nil {
		tb.Fatalf("step down: %v", err)
	}
}

// AwaitInSync waits until a stream has a leader and all its replicas are current.
func (c *Cluster) AwaitInSync(tb testing.TB, stream string) {
	tb.Helper()
	c.await(tb, stream, "has replicas that are not in sync", inSync)
}

func inSync(c *jetstream.ClusterInfo) bool {
	if c.Leader == "" || len(c.Replicas) != nodes-1 {
		return false
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}
