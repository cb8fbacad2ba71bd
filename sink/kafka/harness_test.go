package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

const testTimeout = 60 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(kafkatest.Wrap(m),
		// sarama's own producer, against which ours is compared, starts it for good.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// A journal is a log handler that keeps lines for a test to look at.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// A rig is a client with a producer whose Run is on, and what it has reported.
type rig struct {
	tb        testing.TB
	ctx       context.Context
	client    *client
	producer  *producer
	journal   *journal
	cancel    context.CancelCauseFunc
	runResult chan error

	mu       sync.Mutex
	acked    map[uint64]int
	failures []error
	seq      uint64
	changed  chan struct{}
}

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

func openClient(tb testing.TB, cfg Config, log *slog.Logger) *client {
	tb.Helper()
	c, err := open(testContext(tb), cfg, log, cfg.dial())
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func newRig(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	j := new(journal)
	return startRig(tb, openClient(tb, cfg, j.logger()), j, sink.WriterConfig{})
}

// startRig begins a session on a client.
func startRig(tb testing.TB, c *client, j *journal, cfg sink.WriterConfig) *rig {
	tb.Helper()
	r := &rig{
		tb: tb, ctx: testContext(tb), client: c, producer: c.newProducer(cfg), journal: j,
		runResult: make(chan error, 1), acked: make(map[uint64]int), changed: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.runResult <- r.producer.Run(ctx, r.done)
	}()
	r.tb.Cleanup(func() {
		cancel(errors.New("test is over"))
		<-ended
	})
	return r
}

// producerIDs returns how many producer ids c has taken from the cluster.
func producerIDs(c *client) int {
	c.identities.mu.Lock()
	defer c.identities.mu.Unlock()
	return c.identities.idsRequested
}

func (r *rig) done(seqs []uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failures = append(r.failures, err)
	} else {
		for _, s := range seqs {
			r.acked[s]++
		}
	}
	signal(r.changed)
}

// send sends one record, numbering it.
func (r *rig) send(rec sink.Record) uint64 {
	r.tb.Helper()
	seq, err := r.trySend(rec)
	if err != nil {
		r.tb.Fatalf("Send: %v\n%+v\n%s", err, r.client.Stat(), r.journal)
	}
	return seq
}

func (r *rig) trySend(rec sink.Record) (uint64, error) {
	r.seq++
	rec.Seq = r.seq
	return rec.Seq, r.producer.Send(r.ctx, &rec)
}

func (r *rig) sendKeyed(topic, key, value string) {
	r.tb.Helper()
	r.send(sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte(key), Value: []byte(value)})
}

// recordFor returns a record for a fixed partition.
func recordFor(topic string, partition int32, value string) sink.Record {
	return sink.Record{Topic: topic, Partition: partition, Key: []byte("k"), Value: []byte(value)}
}

// wait blocks until cond holds for what has been reported.
func (r *rig) wait(what string, cond func() bool) {
	r.tb.Helper()
	ctx := testContext(r.tb)
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case err := <-r.runResult:
			r.tb.Fatalf("waiting for %s: Run has returned: %v\n%s", what, err, r.journal)
		case <-ctx.Done():
			r.tb.Fatalf("waiting for %s: %v\n%+v\n%s", what, context.Cause(ctx), r.client.Stat(), r.journal)
		}
	}
}

// waitAcked flushes and blocks until n records are acknowledged.
func (r *rig) waitAcked(n int) {
	r.tb.Helper()
	r.producer.Flush()
	r.wait(fmt.Sprintf("%d acknowledged records", n), func() bool { return len(r.acked) >= n })
}

// drain ends the sending and returns what Run returned.
func (r *rig) drain() error {
	r.tb.Helper()
	r.producer.CloseSend()
	return r.waitRun()
}

// waitRun returns what Run returned.
func (r *rig) waitRun() error {
	r.tb.Helper()
	select {
	case err := <-r.runResult:
		r.runResult <- err
		return err
	case <-testContext(r.tb).Done():
		r.tb.Fatalf("Run does not return\n%+v\n%s", r.client.Stat(), r.journal)
		return nil
	}
}

// mustDrain ends the sending and checks that every record was acknowledged exactly once.
func (r *rig) mustDrain() {
	r.tb.Helper()
	if err := r.drain(); err != nil {
		r.tb.Fatalf("Run: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acked) != int(r.seq) || len(r.failures) > 0 {
		r.tb.Fatalf("%d of %d records acknowledged, failures %v", len(r.acked), r.seq, r.failures)
	}
	for seq, n := range r.acked {
		if n != 1 {
			r.tb.Fatalf("record %d was acknowledged %d times", seq, n)
		}
	}
}

// values returns the values of one partition of records, in log order.
func values(records []*kgo.Record, partition int32) []string {
	var vs []string
	for _, r := range records {
		if r.Partition == partition {
			vs = append(vs, string(r.Value))
		}
	}
	return vs
}

// alter returns the change of one configuration entry.
func alter(name string, value *string) []kadm.AlterConfig {
	return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: value}}
}

// answerNaming is an answer that names records.
func answerNaming(indices []int32) *sentBatch {
	block := new(sarama.ProduceResponseBlock)
	for _, i := range indices {
		block.RecordErrors = append(block.RecordErrors, sarama.ProduceResponseRecordError{BatchIndex: i})
	}
	return &sentBatch{block: block}
}

func portOf(tb testing.TB, addr string) int {
	tb.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
