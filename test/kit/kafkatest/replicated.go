package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	replicas         = 3
	replicatedHeapMB = 256
)

// A Replicated is a cluster of three real brokers. Each one is also a controller, so the cluster works without any
// one of them. Every partition has three replicas, of which two must be in sync.
type Replicated struct {
	*Cluster           // of all brokers
	Brokers  []*Server // the one with index i has the node id i+1

	admin *kadm.Client
}

// StartReplicated is like [Start] for a cluster of three brokers.
func StartReplicated(tb testing.TB) *Replicated {
	tb.Helper()
	need.FullRun(tb, needsBroker)
	own <- struct{}{}
	tb.Cleanup(func() { <-own })
	vm := vm(tb)
	r := &Replicated{Cluster: &Cluster{}}
	var voters []string
	for i := range replicas {
		s, err := prepare(vm, Config{HeapMB: replicatedHeapMB})
		if err != nil {
			tb.Fatal(err)
		}
		stopAfter(tb, s)
		r.Brokers = append(r.Brokers, s)
		r.Addrs = append(r.Addrs, s.Addrs...)
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, s.addr(controller)))
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	var starts errgroup.Group // none is ready until two run
	for i, s := range r.Brokers {
		s.clusterID = r.Brokers[0].clusterID
		props := replicatedProperties()
		props["node.id"], props["controller.quorum.voters"] = strconv.Itoa(i+1), strings.Join(voters, ",")
		starts.Go(func() error { return s.boot(ctx, Config{Properties: props}) })
	}
	if err := starts.Wait(); err != nil {
		tb.Fatal(err)
	}
	r.admin = r.Admin(tb)
	return r
}

func replicatedProperties() map[string]string {
	props := make(map[string]string)
	for _, key := range []string{"default", "offsets.topic", "transaction.state.log"} {
		props[key+".replication.factor"] = strconv.Itoa(replicas)
	}
	props["min.insync.replicas"], props["transaction.state.log.min.isr"] = "2", "2"
	return props
}

// Leader returns the leader of a partition.
func (r *Replicated) Leader(tb testing.TB, topic string, partition int32) *Server {
	tb.Helper()
	topics, err := r.admin.ListTopics(tb.Context(), topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		tb.Fatalf("find the leader of %s/%d: %v", topic, partition, err)
	}
	return r.Brokers[topics[topic].Partitions[partition].Leader-1]
}

// MoveLeaders makes the next replica of every partition its leader, also for internal topics.
func (r *Replicated) MoveLeaders(ctx context.Context) error {
	topics, err := r.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return err
	}
	var req kadm.AlterPartitionAssignmentsReq
	topics.EachPartition(func(p kadm.PartitionDetail) {
		next := slices.Index(p.Replicas, p.Leader) + 1
		req.Assign(p.Topic, p.Partition, slices.Concat(p.Replicas[next:], p.Replicas[:next]))
	})
	assigned, err := r.admin.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = assigned.Error()
	}
	if err != nil {
		return fmt.Errorf("reassign partitions: %w", err)
	}
	if _, err := r.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
		return fmt.Errorf("elect leaders: %w", err)
	}
	return nil
}

// AwaitInSync waits until every replica of every partition is in sync, also those of internal topics.
func (r *Replicated) AwaitInSync(ctx context.Context) error {
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		topics, err := r.admin.ListTopicsWithInternal(ctx)
		var behind []string
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.ISR) < replicas {
				behind = append(behind, fmt.Sprintf("%s/%d", p.Topic, p.Partition))
			}
		})
		if err == nil && len(behind) == 0 {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("replicas of %v are not in sync: %w", behind, errors.Join(err, ctx.Err()))
		}
	}
}
