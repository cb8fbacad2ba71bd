package rabbittest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	nodes = 3

	// statusTimeout limits each request for the state of a queue: a paused node does not respond.
	statusTimeout = 10 * time.Second
)

// A Cluster is three servers that form a cluster. It works without any one of them.
type Cluster struct{ Nodes []*Server }

// StartCluster starts a cluster for this test and stops it when the test ends. Resume a paused node within half a minute: after
// 45 seconds the others consider it down (net_ticktime), and RabbitMQ does not repair that when the node is back. Unless the
// run is a full one, StartCluster skips the test.
func StartCluster(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	needRabbit(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*startTimeout)
	defer cancel()
	settings := map[string]string{"cluster_partition_handling": "pause_minority"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	c := &Cluster{Nodes: make([]*Server, nodes)}
	cookie := rand.Text()
	start := func(i int) error {
		s := &Server{node: fmt.Sprintf("rabbit%d@localhost", i+1), cookie: cookie}
		if i > 0 {
			s.mapperPort = c.Nodes[0].mapperPort
		}
		var err error
		c.Nodes[i], err = launch(ctx, cfg, s)
		return err
	}
	err := start(0)
	if err == nil {
		c.Nodes[0].stopAfter(tb)
		cfg.Settings = maps.Clone(settings)
		cfg.Settings["cluster_formation.classic_config.nodes.1"] = c.Nodes[0].node // the others join it
		var others errgroup.Group
		for i := 1; i < nodes; i++ {
			others.Go(func() error { return start(i) })
		}
		err = others.Wait()
	}
	for _, s := range c.Nodes[1:] {
		if s != nil {
			s.stopAfter(tb)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	for !c.isComplete(ctx) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatal("the nodes do not form a cluster")
		}
	}
	return c
}

// Addrs returns the addresses of the nodes, without TLS.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Leader returns the node that leads a quorum queue, and waits while there is none.
func (c *Cluster) Leader(tb testing.TB, vhost, queue string) *Server {
	tb.Helper()
	var leader *Server
	c.await(tb, vhost, queue, "has no leader", func(members []member) bool {
		for _, s := range c.Nodes {
			for _, m := range members {
				if m.node == s.node && m.state == "leader" && s.Running() {
					leader = s
				}
			}
		}
		return leader != nil
	})
	return leader
}

// AwaitInSync waits until the nodes see each other, and a quorum queue has a member on each of them that has what the leader had
// when AwaitInSync was called. Messages may be published meanwhile.
func (c *Cluster) AwaitInSync(tb testing.TB, vhost, queue string) {
	tb.Helper()
	target := -1
	c.await(tb, vhost, queue, "has members that are not in sync", func(members []member) bool {
		states := make(map[string]int)
		for _, m := range members {
			if target < 0 && m.state == "leader" {
				target = m.last
			}
			if m.last >= target {
				states[m.state]++
			}
		}
		return target >= 0 && states["leader"] == 1 && states["follower"] == nodes-1 && c.isComplete(tb.Context())
	})
}

// isComplete reports whether each node sees all nodes.
func (c *Cluster) isComplete(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, s := range c.Nodes {
		running, err := s.eval(ctx, "length(rabbit_nodes:all_running())")
		if err != nil || running != strconv.Itoa(nodes) {
			return false
		}
	}
	return true
}

// SetTickTime makes the nodes consider another one down that does not respond for this many seconds, instead of 60, give or
// take a quarter (net_ticktime), until they are restarted.
func (c *Cluster) SetTickTime(ctx context.Context, seconds int) error {
	for _, s := range c.Nodes {
		if _, err := s.eval(ctx, fmt.Sprintf("net_kernel:set_net_ticktime(%d, 0)", seconds)); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the members of a quorum queue meet cond. It asks the nodes in turn.
func (c *Cluster) await(tb testing.TB, vhost, queue, problem string, cond func([]member) bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	for i := 0; ; i++ {
		members, err := c.Nodes[i%len(c.Nodes)].members(ctx, vhost, queue)
		if err == nil && cond(members) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("queue %s %s: %+v, %v", queue, problem, members, err)
		}
	}
}

// A member is a replica of a quorum queue.
type member struct {
	node  string
	state string
	last  int // index of its log
}

// members returns the members of a quorum queue that respond.
func (s *Server) members(ctx context.Context, vhost, queue string) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	out, err := s.eval(ctx, fmt.Sprintf("[{N, S, L} || [{_, N}, {_, S}, {_, L} | _] <- rabbit_quorum_queue:status(<<%q>>, <<%q>>)]", vhost, queue))
	if err != nil {
		return nil, err
	}
	var members []member
	for _, m := range memberLine.FindAllStringSubmatch(out, -1) {
		last, err := strconv.Atoi(m[3])
		if err != nil {
			return nil, err
		}
		members = append(members, member{node: m[1], state: m[2], last: last})
	}
	return members, nil
}

// memberLine matches a member that responds. The state of another one is a tuple.
var memberLine = regexp.MustCompile(`\{\W?(\w+@\w+)\W?,\s*(\w+),\s*(\d+)\}`)
