package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	testwait "github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// An abortLab is a store on a cluster, with writers that open a transaction without committing it.
type abortLab struct {
	*testing.T

	cluster *kafkatest.Cluster
	store   *positionStore
	topic   string
}

// open starts the next writer and opens its transaction: the window takes one record.
func (l *abortLab) open() (sink.TransactionalWriter, *sinktest.Session) {
	l.Helper()
	ctx := sinktest.Context(l.T)
	id, err := l.store.NextIdentity(ctx)
	if err != nil {
		l.Fatal(err)
	}
	w := l.store.NewTransactionalWriter(testWriter, sink.WriterConfig{Identity: id})
	s := sinktest.StartWriter(l.T, l.store.sink, w, sinktest.NewJournal())
	for seq := range uint64(3) {
		rec := recordFor(l.topic, 0, "open")
		rec.Seq = seq + 1
		if err := w.Send(ctx, &rec); err != nil {
			l.Fatal(err)
		}
	}
	l.wantReadable(false)
	return w, s
}

// wantReadable requires that a consumer that reads only committed records can, or cannot, read to the end.
func (l *abortLab) wantReadable(want bool) {
	l.Helper()
	admin := l.cluster.Admin(l.T)
	testwait.For(l.T, fmt.Sprintf("a consumer that can read to the end: %t", want), func() bool {
		return kafkatest.ReadsToEnd(l.T, admin, l.topic) == want
	})
}

func (l *abortLab) abort(w sink.TransactionalWriter, s *sinktest.Session) {
	l.Helper()
	s.Stop(errors.New("the relay stops"))
	_ = s.Wait()
	if err := w.Abort(sinktest.Context(l.T)); err != nil {
		l.Errorf("Abort: %v", err)
	}
}

// TestAbort: consumers need not wait for a transaction that is open when the writer stops. The abort of a writer that
// another has superseded does not end the transaction of that one.
func TestAbort(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		positions, topic := k.Topic(t, 1, nil), k.Topic(t, 1, nil)
		c := openClient(t, Config{Brokers: k.Addrs, ExactlyOnce: true, WindowRecords: 1}, sinktest.NewJournal().Logger())
		store, err := c.openPositions(sinktest.Context(t), positions, positions)
		if err != nil {
			t.Fatal(err)
		}
		l := &abortLab{T: t, cluster: k, store: store, topic: topic}
		first, session := l.open()
		l.abort(first, session)
		l.wantReadable(true)

		older, session := l.open()
		newer, next := l.open()
		l.abort(older, session)
		l.wantReadable(false)
		l.abort(newer, next)
		l.wantReadable(true)
		if got := k.ReadCommitted(t, topic); len(got) > 0 {
			t.Errorf("%d records are committed", len(got))
		}
	})
}

// TestAbortAfterCommit: Abort does not undo a commit whose response was lost, and sends nothing if no transaction is
// open.
func TestAbortAfterCommit(t *testing.T) {
	inTransactions(t, func(x *txnLab) {
		x.sendGroup("1")
		x.Drain(2)
		ends := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Observe: true, TopLevel: true, Count: -1})
		if err := x.writer.Abort(x.Context()); err != nil || ends.Hits() > 0 {
			x.Errorf("Abort without a transaction: %v, %d requests", err, ends.Hits())
		}
		x.next(x.Journal)
		lost := x.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.NetworkException, Count: -1})
		x.sendGroup("2")
		x.Await("a commit", func() bool { return lost.Hits() > 0 })
		x.Stop(errors.New("the relay stops"))
		_ = x.Wait()
		lost.Remove()
		p := x.writer.(transactionalProducer)
		if err := p.txn.coordinator.endTransaction(x.Context(), p.identity, true); err != nil {
			x.Errorf("commit: %v", err)
		}
		if err := x.writer.Abort(x.Context()); err != nil {
			x.Errorf("Abort: %v", err)
		}
		wantValue(x.T, x.store, "2")
	})
}
