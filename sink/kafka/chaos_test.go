package kafka

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

var (
	chaosFor  = flag.Duration("chaos", 5*time.Second, "how long each chaos test sends")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of the chaos tests; 0 draws one")
)

const chaosTopic, chaosPartitions = "chaos", 6

// A nemesis makes trouble for a producer, of one kind or another every 5 to 45 ms. Trouble
// that no request has met lapses: it must not pile up while the producer waits.
type nemesis struct {
	cluster *kfake.Cluster
	rng     *rand.Rand
	codes   []*kerr.Error
	fault   *kfake.FaultHandle
}

// transientCodes are answers after which a broker knows what it has. Two of them come after the
// batch was appended.
func transientCodes() []*kerr.Error {
	return []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.KafkaStorageError,
		kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend,
		kerr.NetworkException, kerr.ThrottlingQuotaExceeded,
	}
}

// producerLostCodes are answers after which it does not.
func producerLostCodes() []*kerr.Error {
	return []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch}
}

// run makes trouble until ctx ends.
func (n *nemesis) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.strike()
		select {
		case <-time.After(time.Duration(5+n.rng.IntN(40)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if n.fault != nil {
		n.fault.Remove()
	}
}

func (n *nemesis) strike() {
	if n.fault != nil {
		n.fault.Remove()
	}
	partition := n.rng.Int32N(chaosPartitions)
	switch n.rng.IntN(3) {
	case 0:
		n.fault = n.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: chaosTopic, Partitions: []int32{partition},
			Err: n.codes[n.rng.IntN(len(n.codes))], Count: 1 + n.rng.IntN(3),
		})
	case 1:
		lapses := time.Now().Add(25 * time.Millisecond)
		n.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if time.Now().After(lapses) {
				n.cluster.DropControl()
				return nil, nil, false
			}
			return nil, errors.New("dropped"), true
		})
	case 2:
		_ = n.cluster.MoveTopicPartition(chaosTopic, partition, n.rng.Int32N(3))
	}
}

func TestChaos(t *testing.T) {
	for _, tc := range []struct {
		name        string
		connections int
		codes       []*kerr.Error
		duplicates  bool
	}{
		{"one connection", 1, transientCodes(), false},
		{"three connections", 3, transientCodes(), false},
		{"forgetful brokers", 1, slices.Concat(transientCodes(), producerLostCodes()), true},
	} {
		t.Run(tc.name, func(t *testing.T) { testChaos(t, tc.connections, tc.codes, tc.duplicates) })
	}
}

func testChaos(t *testing.T, connections int, codes []*kerr.Error, duplicates bool) {
	t.Helper()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	k := kafkatest.Fake(t, kfake.SeedTopics(chaosPartitions, chaosTopic))
	r := newRig(t, Config{Brokers: k.Addrs, ConnectionsPerBroker: connections, WindowRecords: 5000})

	ctx, cancel := context.WithTimeout(t.Context(), *chaosFor)
	defer cancel()
	enemy := &nemesis{cluster: k.Control, rng: rand.New(rand.NewPCG(seed, 0)), codes: codes}
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		enemy.run(ctx)
	}()
	var sent [chaosPartitions]int
	for i := 0; ctx.Err() == nil; i++ {
		p := int32(i*7) % chaosPartitions
		r.send(recordFor(chaosTopic, p, fmt.Sprint(sent[p])))
		sent[p]++
	}
	<-quiet
	r.mustDrain()

	total := int(r.seq)
	stat := r.client.Stat()
	seen := checkChaosLog(t, k.ReadAll(t, chaosTopic), sent[:], duplicates)
	t.Logf("%d records, %d batches sent again, %d renewals, %d producer ids, %d duplicates",
		total, stat.Retries, stat.DuplicatesPossible, producerIDs(r.client), seen-total)
	if stat.Retries == 0 {
		t.Error("there was no trouble")
	}
}

// checkChaosLog checks that every partition holds 0..sent-1 with first appearances in order,
// and returns how many records there are.
func checkChaosLog(t *testing.T, log []*kgo.Record, sent []int, duplicates bool) int {
	t.Helper()
	next := make([]int, len(sent))
	for _, rec := range log {
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil {
			t.Fatal(err)
		}
		p := rec.Partition
		switch {
		case n == next[p]:
			next[p]++
		case n > next[p]:
			t.Fatalf("partition %d: %d at offset %d, %d has not been there yet", p, n, rec.Offset, next[p])
		case !duplicates:
			t.Fatalf("partition %d: %d at offset %d for the second time", p, n, rec.Offset)
		}
	}
	for p := range sent {
		if next[p] != sent[p] {
			t.Errorf("partition %d: %d of %d records are in the log", p, next[p], sent[p])
		}
	}
	return len(log)
}
