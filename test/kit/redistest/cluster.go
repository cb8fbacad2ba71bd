package redistest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
)

// slots is the number of hash slots of a cluster.
const slots = 16384

// A Cluster is a cluster of three primaries.
type Cluster struct{ Nodes []*Server }

// StartCluster starts a cluster of three nodes, each of which serves a third of the slots. Without a full run, it skips the
// test.
func StartCluster(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	const nodes = 3
	settings := map[string]string{"cluster-enabled": "yes", "cluster-node-timeout": "2000"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	c := new(Cluster)
	for range nodes {
		c.Nodes = append(c.Nodes, Start(tb, cfg))
	}
	for i, node := range c.Nodes {
		mustDo(tb, node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		mustDo(tb, node, "CLUSTER", "ADDSLOTSRANGE", i*slots/nodes, (i+1)*slots/nodes-1)
	}
	for _, node := range c.Nodes[1:] {
		mustDo(tb, c.Nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port.Number(), node.bus.Number())
	}
	await(tb, "the cluster", func(ctx context.Context) bool {
		for _, node := range c.Nodes {
			info, err := node.Admin().ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
	return c
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Slot returns the hash slot of a key.
func (c *Cluster) Slot(tb testing.TB, key string) int {
	tb.Helper()
	slot, err := c.Nodes[0].Admin().ClusterKeySlot(tb.Context(), key).Result()
	if err != nil {
		tb.Fatal(err)
	}
	return int(slot)
}

// Owner returns the node that serves the slot of a key.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	slot := c.Slot(tb, key)
	for _, node := range c.Nodes {
		owned, err := node.Admin().Do(tb.Context(), "CLUSTER", "NODES").Text()
		if err != nil {
			tb.Fatal(err)
		}
		for line := range strings.Lines(owned) {
			if fields := strings.Fields(line); len(fields) > 8 && strings.Contains(fields[2], "myself") && hasSlot(fields[8:], slot) {
				return node
			}
		}
	}
	tb.Fatalf("no node serves slot %d", slot)
	return nil
}

// hasSlot reports whether a node of CLUSTER NODES, which has these ranges, serves a slot.
func hasSlot(ranges []string, slot int) bool {
	for _, r := range ranges {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last) // an error: a slot that is being moved
		if err1 == nil && err2 == nil && from <= slot && slot <= to {
			return true
		}
	}
	return false
}

// Move moves the slot of key to another node. Between its steps it calls during, which may be nil, with the number of the
// step: while the slot is being moved and its keys are at the old node (1), and at the new one (2). In step 2 the old node
// responds with ASK.
func (c *Cluster) Move(tb testing.TB, key string, to *Server, during func(step int)) {
	tb.Helper()
	slot, from := c.Slot(tb, key), c.Owner(tb, key)
	fromID, toID := id(tb, from), id(tb, to)
	mustDo(tb, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	mustDo(tb, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	call := func(step int) {
		if during != nil {
			during(step)
		}
	}
	call(1)
	for {
		keys, err := from.Admin().ClusterGetKeysInSlot(tb.Context(), slot, 100).Result()
		if err != nil {
			tb.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			mustDo(tb, from, "MIGRATE", "127.0.0.1", to.port.Number(), key, 0, 5000)
		}
	}
	call(2)
	for _, node := range append([]*Server{to, from}, c.Nodes...) {
		mustDo(tb, node, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

func id(tb testing.TB, node *Server) string {
	tb.Helper()
	id, err := node.Admin().Do(tb.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func mustDo(tb testing.TB, s *Server, args ...any) {
	tb.Helper()
	if err := s.Admin().Do(tb.Context(), args...).Err(); err != nil {
		tb.Fatal(fmt.Errorf("%v at %s: %w", args[:min(2, len(args))], s.Addr(), err))
	}
}
