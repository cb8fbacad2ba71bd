package kafka

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// A txnLab is a lab with a transactional writer of the relay "key" for topic t.
type txnLab struct {
	*lab
	*sinktest.Session

	store  *positionStore
	writer sink.TransactionalWriter
	seq    uint64
}

// openTransactional opens a store in the lab that writes in transactions.
func (l *lab) openTransactional(j *sinktest.Journal) (*positionStore, error) {
	return l.client(Config{ExactlyOnce: true, ConnectionsPerBroker: 3}, j.Logger()).openPositions(l.Context(), "positions", "key")
}

func (l *lab) transactional() *txnLab {
	l.Helper()
	j := sinktest.NewJournal()
	s, err := l.openTransactional(j)
	if err != nil {
		l.Fatalf("open positions: %v", err)
	}
	x := &txnLab{lab: l, store: s}
	x.next(j)
	return x
}

// next starts a writer with the next identity.
func (x *txnLab) next(j *sinktest.Journal) { x.nextWith(j, sink.WriterConfig{}) }

// nextWith is next with a configuration.
func (x *txnLab) nextWith(j *sinktest.Journal, cfg sink.WriterConfig) {
	x.Helper()
	id, err := x.store.NextIdentity(x.Context())
	if err != nil {
		x.Fatalf("NextIdentity: %v", err)
	}
	cfg.Identity = id
	x.writer = x.store.NewTransactionalWriter(testWriter, cfg)
	x.Session = sinktest.StartWriter(x.T, x.store.sink, x.writer, j)
}

// send sends a record of topic, in the current transaction.
func (x *txnLab) send(topic string) {
	x.Helper()
	x.seq++
	rec := recordFor(topic, 0, "v")
	rec.Seq = x.seq
	if err := x.writer.Send(x.Context(), &rec); err != nil {
		x.Fatalf("Send: %v", err)
	}
}

// sendGroup commits a transaction with a record for each partition of topic t.
func (x *txnLab) sendGroup(value string) {
	x.Helper()
	for partition := range int32(2) {
		x.seq++
		rec := recordFor("t", partition, value)
		rec.Seq = x.seq
		if err := x.writer.Send(x.Context(), &rec); err != nil {
			x.Fatalf("Send: %v", err)
		}
	}
	x.writer.Commit([]byte(value), func() {})
}

func inTransactions(t *testing.T, f func(x *txnLab)) {
	t.Helper()
	inLab(t, 3, func(l *lab) { f(l.transactional()) }, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
}

// TestCoordinatorIsRetried: the writer retries whatever the coordinator may answer to a request that is not over, and
// lost connections.
func TestCoordinatorIsRetried(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
		for _, e := range []*kerr.Error{
			kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions,
			kerr.UnknownServerError, kerr.NetworkException, kerr.TransactionalIDAuthorizationFailed,
		} {
			t.Run(key.Name()+"/"+e.Message, func(t *testing.T) {
				inTransactions(t, func(x *txnLab) {
					hits := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, TopLevel: key == kmsg.EndTxn, Err: e, Count: 5})
					x.sendGroup("1")
					x.Drain(2)
					if hits.Hits() != 5 {
						x.Errorf("%d answers with the code", hits.Hits())
					}
					want := 0
					if e == kerr.TransactionalIDAuthorizationFailed {
						want = 1
					}
					if n := strings.Count(x.Journal.String(), "transaction coordinator rejects the request, retrying"); n != want {
						x.Errorf("%d lines about it:\n%s", n, x.Journal)
					}
				})
			})
		}
		t.Run(key.Name()+"/lost connection", func(t *testing.T) {
			inTransactions(t, func(x *txnLab) {
				lost := 0
				x.fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
					x.fake.KeepControl()
					lost++
					return nil, net.ErrClosed, lost <= 3
				})
				x.sendGroup("1")
				x.Drain(2)
				if lost < 4 {
					x.Errorf("%d requests", lost)
				}
			})
		})
	}
}

// TestTransactionAborts: after an answer that the transaction cannot be committed, the writer ends, and the next one
// continues.
func TestTransactionAborts(t *testing.T) {
	for _, tt := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.AddPartitionsToTxn, kerr.ProducerFenced},
		{kmsg.AddPartitionsToTxn, kerr.InvalidProducerEpoch},
		{kmsg.EndTxn, kerr.ProducerFenced},
		{kmsg.EndTxn, kerr.InvalidProducerIDMapping},
		{kmsg.EndTxn, kerr.InvalidTxnState},
		{kmsg.EndTxn, kerr.TransactionAbortable},
		{kmsg.Produce, kerr.InvalidProducerEpoch},
		{kmsg.Produce, kerr.OutOfOrderSequenceNumber},
		{kmsg.Produce, kerr.UnknownProducerID},
		{kmsg.Produce, kerr.InvalidTxnState},
		{kmsg.Produce, kerr.TransactionAbortable},
	} {
		t.Run(tt.key.Name()+"/"+tt.err.Message, func(t *testing.T) {
			inTransactions(t, func(x *txnLab) {
				x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{tt.key}, TopLevel: tt.key == kmsg.EndTxn, Err: tt.err, Count: 1})
				x.sendGroup("1")
				if err := x.Wait(); !errors.Is(err, sink.ErrAborted) || !strings.Contains(err.Error(), tt.err.Message) {
					x.Errorf("Run: %v", err)
				}
				if n := x.Acked(); n != 0 {
					x.Errorf("%d records are acknowledged", n)
				}
				x.next(x.Journal)
				wantValue(x.T, x.store, "")
				x.sendGroup("2")
				x.Drain(2)
				wantValue(x.T, x.store, "2")
			})
		})
	}
}

// TestTransactionWaitsForLeaders: a transaction is not begun while a partition has no leader, and Stat names the
// partition.
func TestTransactionWaitsForLeaders(t *testing.T) {
	inTransactions(t, func(x *txnLab) {
		begun := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Observe: true, Count: -1})
		gone := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		x.sendGroup("1")
		x.Await("the stall", func() bool {
			return strings.HasPrefix(x.Sink.Stat().StallReason, "topic t")
		})
		if begun.Hits() != 0 || x.Acked() != 0 {
			x.Errorf("%d transactions were begun", begun.Hits())
		}
		gone.Remove()
		x.Drain(2)
	})
}

// TestSubstituteBeforeTheNextTransaction: a substitute goes to a partition whose earlier records of its transaction are
// stored, and whose next ones wait for the next transaction.
func TestSubstituteBeforeTheNextTransaction(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		x := l.transactional()
		x.Stop(nil)
		_ = x.Wait()
		x.nextWith(x.Journal, sink.WriterConfig{Substitute: substituteTo("dead")})
		x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.MessageTooLarge, Count: 1})
		release := holdProduce(x.cluster)
		x.send("dead")
		x.send("t")
		x.writer.Commit([]byte("1"), func() {})
		synctest.Wait() // both are in a request
		x.send("dead")
		x.writer.Commit([]byte("2"), func() {})
		release()
		x.Drain(3)
		l.readRecords("dead", 3)
	}, kfake.SeedTopics(1, "t", "dead", "positions"))
}

// TestTransactionBeginsWithOneRequest: a broker rejects requests that begin the same transaction at the same time, so
// all batches for a broker go into one request, whatever number of connections is configured.
func TestTransactionBeginsWithOneRequest(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		x := l.transactional()
		produced := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
		x.sendGroup("1")
		x.Drain(2)
		if n := produced.Hits(); n != 1 {
			x.Errorf("%d produce requests for a transaction with three partitions of a broker, want 1", n)
		}
	}, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
}

// TestOldBrokersHaveNoExactlyOnce: before 3.6, a late request can leave a transaction open for ever.
func TestOldBrokersHaveNoExactlyOnce(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		_, err := l.openTransactional(sinktest.NewJournal())
		if !errors.Is(err, sink.ErrFatal) || !strings.Contains(err.Error(), "exactly_once needs brokers from Kafka 3.6") {
			t.Errorf("open: %v", err)
		}
	}, oldBroker("v3.5"), kfake.SeedTopics(1, "positions"))
}

// TestTransactionalIDNeedsPrivileges: without them, the store cannot be opened.
func TestTransactionalIDNeedsPrivileges(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, TopLevel: true, Err: kerr.TransactionalIDAuthorizationFailed, Count: 1})
		_, err := l.openTransactional(sinktest.NewJournal())
		if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "transactional id outbox-cdc-key") {
			t.Errorf("open: %v", err)
		}
	}, kfake.SeedTopics(1, "positions"))
}

// TestModesFollowEachOther: a store without transactions ends those of a relay with them, and does not continue its
// producer id.
func TestModesFollowEachOther(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic, data := k.Topic(t, 1, nil), k.Topic(t, 1, nil)
		j := sinktest.NewJournal()
		s, err := openClient(t, Config{Brokers: k.Addrs, ExactlyOnce: true, WindowRecords: 1}, j.Logger()).openPositions(sinktest.Context(t), topic, topic)
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.NextIdentity(sinktest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		w := s.NewTransactionalWriter(testWriter, sink.WriterConfig{Identity: id})
		old := sinktest.StartWriter(t, s.sink, w, j)
		for seq := range uint64(3) { // the window opens the transaction
			rec := recordFor(data, 0, "open")
			rec.Seq = seq + 1
			if err := w.Send(sinktest.Context(t), &rec); err != nil {
				t.Fatal(err)
			}
		}
		plain, _ := openPositions(t, k, topic, topic)
		next, err := plain.NextIdentity(sinktest.Context(t), id)
		if err != nil || strings.Contains(string(next), "transactional_id") {
			t.Fatalf("the identity without transactions is %s, %v", next, err)
		}
		blocks, _, err := parseBlocks(id, next)
		if err != nil || len(blocks) != 1 {
			t.Errorf("%d blocks, %v", len(blocks), err)
		}
		w.Commit([]byte("1"), func() {})
		if err := old.Wait(); !errors.Is(err, sink.ErrAborted) {
			t.Errorf("Run of the writer with transactions: %v", err)
		}
		if got := k.ReadCommitted(t, data); len(got) > 0 {
			t.Errorf("%d records are committed", len(got))
		}
	})
}
