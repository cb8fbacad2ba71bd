package kafka

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestContract runs the suite of package sinktest. Without compression, the producer detects a record that is too
// large before it sends it. With compression, the broker rejects the record.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "lz4"} {
		t.Run(compression, func(t *testing.T) {
			kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
				t.Helper()
				sinktest.Run(t, &subject{Cluster: k, compression: compression})
			})
		})
	}
}

// TestContractWithBrokerFaults runs the suite with faults that only an in-process broker can inject.
func TestContractWithBrokerFaults(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	sinktest.Run(t, &subject{Cluster: k.Cluster, control: k.Control})
}

// A subject is a Kafka cluster for package sinktest. It injects faults into produce requests, either in the
// client's connection or in the broker.
type subject struct {
	*kafkatest.Cluster
	control     *kfake.Cluster // nil if the broker cannot inject faults
	compression string

	mu    sync.Mutex
	fault *connFault // nil if connections work
}

const subjectLimit = 20_000

func (s *subject) Broker(window int) sink.Broker {
	return Config{Brokers: s.Addrs, WindowRecords: window, Compression: s.compression, Dial: s.dial}
}

func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	return s.Topic(t, 3, map[string]string{"max.message.bytes": "20000"})
}

func (s *subject) Store(t *testing.T) string {
	t.Helper()
	name := kafkatest.UniqueName(t)
	s.DeleteTopics(t, name)
	return name
}

func (s *subject) Read(t *testing.T, topic string) []sink.StoredRecord {
	t.Helper()
	return storedRecords(s.ReadAll(t, topic))
}

func storedRecords(records []*kgo.Record) []sink.StoredRecord {
	var all []sink.StoredRecord
	for _, rec := range records {
		stored := sink.StoredRecord{Offset: rec.Offset, Record: sink.Record{
			Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp,
		}}
		for _, h := range rec.Headers {
			stored.Headers = append(stored.Headers, sink.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, stored)
	}
	return all
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, incompressible(2*subjectLimit)...)
}

func (s *subject) Hold() sinktest.Fault {
	return s.strike("answers are withheld", func(f *connFault) { f.hold = make(chan struct{}) })
}

func (s *subject) Faults() []sinktest.Fault {
	faults := []sinktest.Fault{
		s.strike("connections break in a request", func(f *connFault) { f.cut = true }),
		s.strike("connections break before the answer", func(f *connFault) { f.lose = true }),
	}
	if s.control == nil {
		return faults
	}
	for _, answer := range []struct {
		name string
		code *kerr.Error
	}{
		{"records are not stored for now", kerr.NotEnoughReplicas},
		{"records are stored, and the answer is no", kerr.NotEnoughReplicasAfterAppend},
		{"the broker forgets the producer", kerr.UnknownProducerID},
		{"leaders move", kerr.NotLeaderForPartition},
	} {
		faults = append(faults, sinktest.Fault{Name: answer.name, Begin: func(*testing.T) (<-chan struct{}, func()) {
			met := make(chan struct{})
			var once sync.Once
			fault := s.control.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: answer.code, Count: -1,
				When: func(kmsg.Request) bool { once.Do(func() { close(met) }); return true },
			})
			if answer.code == kerr.NotLeaderForPartition {
				s.control.ShufflePartitionLeaders()
			}
			return met, func() { fault.Remove() }
		}})
	}
	return faults
}

// strike returns a connection fault.
func (s *subject) strike(name string, set func(f *connFault)) sinktest.Fault {
	return sinktest.Fault{Name: name, Begin: func(*testing.T) (<-chan struct{}, func()) {
		f := &connFault{met: make(chan struct{})}
		set(f)
		s.mu.Lock()
		s.fault = f
		s.mu.Unlock()
		return f.met, sync.OnceFunc(func() {
			s.mu.Lock()
			s.fault = nil
			s.mu.Unlock()
			if f.hold != nil {
				close(f.hold)
			}
		})
	}}
}

func (s *subject) present() *connFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// A connFault is a connection fault.
type connFault struct {
	cut, lose bool
	hold      chan struct{} // closed when responses may pass
	met       chan struct{}
	once      sync.Once
}

func (f *connFault) meet() { f.once.Do(func() { close(f.met) }) }

func (s *subject) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: conn, subject: s, closed: make(chan struct{})}, nil
}

// A faultyConn is a connection to which the subject's fault applies.
type faultyConn struct {
	net.Conn
	subject *subject
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex
	produced bool // a produce request is unanswered
}

var errStruck = errors.New("struck by a fault")

func (c *faultyConn) Write(b []byte) (int, error) {
	if len(b) < 8 || int(b[0])<<24|int(b[1])<<16|int(b[2])<<8|int(b[3]) < len(b)-4 || b[4] != 0 || b[5] != produceKey {
		return c.Conn.Write(b) // another kind of request, or the last part of one
	}
	if f := c.subject.present(); f != nil && f.cut {
		_, _ = c.Conn.Write(b[:len(b)/2])
		_ = c.Close()
		f.meet()
		return 0, errStruck
	}
	c.mu.Lock()
	c.produced = true
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	answer := c.produced
	c.produced = false
	c.mu.Unlock()
	f := c.subject.present()
	if !answer || err != nil || f == nil {
		return n, err
	}
	switch {
	case f.lose:
		_ = c.Close()
		f.meet()
		return 0, errStruck
	case f.hold != nil:
		f.meet()
		select {
		case <-f.hold:
		case <-c.closed:
			return 0, errStruck
		}
	}
	return n, err
}

func (c *faultyConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestTransactions runs the suite of transactional writers, and that of all sinks beside it.
func TestTransactions(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		sinktest.RunTransactions(t, &transactionalSubject{&subject{Cluster: k}})
	})
}

// TestTransactionsWithBrokerFaults runs the suite with faults that only an in-process broker can inject.
func TestTransactionsWithBrokerFaults(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	sinktest.RunTransactions(t, &transactionalSubject{&subject{Cluster: k.Cluster, control: k.Control}})
}

// A transactionalSubject is a Kafka cluster that is used with transactions.
type transactionalSubject struct{ *subject }

func (s *transactionalSubject) Broker(window int) sink.Broker {
	cfg := s.subject.Broker(window).(Config)
	cfg.ExactlyOnce = true
	return cfg
}

// Faults leaves out the one that aborts a transaction, for TestAbortedTransaction.
func (s *transactionalSubject) Faults() []sinktest.Fault {
	return slices.DeleteFunc(s.subject.Faults(), func(f sinktest.Fault) bool { return f.Name == "the broker forgets the producer" })
}

func (s *transactionalSubject) Read(t *testing.T, topic string) []sink.StoredRecord {
	t.Helper()
	return storedRecords(s.ReadCommitted(t, topic))
}
