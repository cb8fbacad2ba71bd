package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	testwait "github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A coordinatorLab is a coordinator on a cluster, and a topic with one partition.
type coordinatorLab struct {
	*testing.T
	*coordinator

	cluster *kafkatest.Cluster
	topic   string
}

func newCoordinatorLab(t *testing.T, k *kafkatest.Cluster) *coordinatorLab {
	t.Helper()
	c := openClient(t, Config{Brokers: k.Addrs}, sinktest.NewJournal().Logger())
	l := &coordinatorLab{t, &coordinator{client: c, id: kafkatest.UniqueName(t)}, k, k.Topic(t, 1, nil)}
	t.Cleanup(l.disconnect)
	return l
}

// next returns the next identity.
func (l *coordinatorLab) next() identity {
	l.Helper()
	var id identity
	l.retry("initProducer", func(ctx context.Context) (err error) {
		id, err = l.initProducer(ctx, identity{-1, -1})
		return err
	})
	return id
}

// begin begins a transaction with the topic.
func (l *coordinatorLab) begin(id identity) {
	l.Helper()
	l.retry("addPartitions", func(ctx context.Context) error {
		refused, err := l.addPartitions(ctx, id, []topicPartition{{l.topic, 0}})
		if len(refused) > 0 {
			l.Errorf("refused: %v", refused)
		}
		return err
	})
}

func (l *coordinatorLab) abort(id identity) {
	l.Helper()
	l.retry("abortTransaction", func(ctx context.Context) error { return l.abortTransaction(ctx, id) })
}

// retry repeats a request while the coordinator is starting or completes the last transaction.
func (l *coordinatorLab) retry(name string, request func(context.Context) error) {
	l.Helper()
	ctx := sinktest.Context(l.T)
	if err := l.client.retryTransient(ctx, func() error { return request(ctx) }); err != nil {
		l.Fatalf("%s: %v", name, err)
	}
}

// wantMarkers waits until the topic has n control records, which a broker writes after its response.
func (l *coordinatorLab) wantMarkers(n int64) {
	l.Helper()
	admin := l.cluster.Admin(l.T)
	var end int64
	testwait.For(l.T, "the markers", func() bool {
		ends, err := admin.ListEndOffsets(l.Context(), l.topic)
		if err != nil {
			l.Fatal(err)
		}
		end = ends[l.topic][0].Offset
		return end >= n
	})
	if end > n {
		l.Errorf("%d control records, want %d", end, n)
	}
}

// TestCoordinator: a transaction ends when it is aborted, or when the next producer comes. Then the older
// producer cannot do anything any more.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		l := newCoordinatorLab(t, k)
		first := l.next()
		l.begin(first)
		for range 2 { // the first response may be lost
			l.abort(first)
		}
		l.wantMarkers(1)
		l.begin(first)
		second := l.next()
		l.wantMarkers(2)
		if second.id != first.id || second.epoch <= first.epoch {
			t.Errorf("the identities are %+v and %+v", first, second)
		}
		l.begin(second)
		err := l.abortTransaction(sinktest.Context(t), first)
		if code, ok := errors.AsType[*codeError](err); !ok || code.code != sarama.ErrProducerFenced && code.code != sarama.ErrInvalidProducerEpoch {
			t.Errorf("the older producer ends the transaction: %v", err)
		}
		l.abort(second)
		l.wantMarkers(3)
	})
}

// TestMayInit: mayInit says whether the user may use a transactional id. The producer with that id keeps its epoch.
func TestMayInit(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		l, ctx := newCoordinatorLab(t, k), sinktest.Context(t)
		var id identity
		err := l.client.retryTransient(ctx, func() (err error) { // a new broker has no coordinator yet
			if err := l.mayInit(ctx); err != nil {
				return err
			}
			id, err = l.initProducer(ctx, identity{-1, -1})
			return err
		})
		if err != nil {
			t.Fatalf("an unknown id: %v", err)
		}
		l.begin(id)
		if err := l.mayInit(ctx); err != nil {
			t.Errorf("the id of a producer: %v", err)
		}
		if err := l.abortTransaction(ctx, id); err != nil {
			t.Error(err)
		}
		if next := l.next(); next.id != id.id || next.epoch != id.epoch+1 {
			t.Errorf("the next identity after %+v is %+v", id, next)
		}
	})
}

// TestCoordinatorErrors: an error is about the transactional id or the partition that it names. After it, the
// coordinator is looked up again, unless it has only asked to wait.
func TestCoordinatorErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		key   kmsg.Key
		err   *kerr.Error
		text  string
		again int // look-ups for the next request
	}{
		"it has moved":        {kmsg.EndTxn, kerr.NotCoordinator, "transactional id %s: NOT_COORDINATOR", 1},
		"it is busy":          {kmsg.EndTxn, kerr.ConcurrentTransactions, "transactional id %s: CONCURRENT_TRANSACTIONS", 0},
		"no Write":            {kmsg.InitProducerID, kerr.TransactionalIDAuthorizationFailed, "transactional id %s: TRANSACTIONAL_ID", 1},
		"no Describe":         {kmsg.FindCoordinator, kerr.TransactionalIDAuthorizationFailed, "transactional id %s: TRANSACTIONAL_ID", 1},
		"a missing topic":     {kmsg.AddPartitionsToTxn, kerr.UnknownTopicOrPartition, "UNKNOWN_TOPIC", 0},
		"an unknown producer": {kmsg.AddPartitionsToTxn, kerr.InvalidProducerIDMapping, "transactional id %s: INVALID_PRODUCER_ID_MAPPING", 1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := kafkatest.Fake(t)
			l, ctx := newCoordinatorLab(t, fake.Cluster), sinktest.Context(t)
			id := l.next()
			if tc.key == kmsg.FindCoordinator {
				l.disconnect()
			}
			lookUps := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Observe: true, TopLevel: true, Count: -1})
			fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{tc.key}, TopLevel: tc.key != kmsg.AddPartitionsToTxn, Err: tc.err, Count: 1})
			var err error
			switch tc.key { //nolint:exhaustive // see default
			case kmsg.AddPartitionsToTxn:
				var refused map[topicPartition]error
				refused, err = l.addPartitions(ctx, id, []topicPartition{{l.topic, 0}})
				if reason := refused[topicPartition{l.topic, 0}]; reason != nil {
					err = reason
				}
			case kmsg.EndTxn:
				err = l.abortTransaction(ctx, id)
			default:
				_, err = l.initProducer(ctx, identity{-1, -1})
			}
			if want := strings.Replace(tc.text, "%s", l.id, 1); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("the error is %v, want %s", err, want)
			}
			had := lookUps.Hits()
			l.begin(l.next())
			if got := lookUps.Hits() - had; got != tc.again {
				t.Errorf("%d look-ups, want %d", got, tc.again)
			}
		})
	}
}

// TestCoordinatorIsBusy: the next producer waits until the coordinator has completed the last transaction.
func TestCoordinatorIsBusy(t *testing.T) {
	fake := kafkatest.Fake(t)
	l := newCoordinatorLab(t, fake.Cluster)
	busy := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ConcurrentTransactions, Count: 5})
	l.begin(l.next())
	if busy.Hits() != 5 {
		t.Errorf("%d answers that it is busy", busy.Hits())
	}
}

// TestCoordinatorRefuses: without a right on the transactional id, a retry does not help.
func TestCoordinatorRefuses(t *testing.T) {
	fake := kafkatest.Fake(t)
	l := newCoordinatorLab(t, fake.Cluster)
	fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	err := l.client.retryTransient(sinktest.Context(t), func() error {
		_, err := l.initProducer(sinktest.Context(t), identity{-1, -1})
		return err
	})
	if !errors.Is(err, sink.ErrAccess) {
		t.Errorf("initProducer: %v", err)
	}
}
