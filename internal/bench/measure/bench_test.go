package measure_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/broker"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestMain makes the test binary also the measured program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(cli.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	pgtest.Main(m)
}

// relay returns this project's relay.
func relay(t *testing.T, on servers) measure.Relay {
	t.Helper()
	return measure.Relay{Path: self(t), Settings: map[string]any{"sink.kafka.brokers": on.brokers}}
}

// self returns the path of this program.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// recvlogical returns pg_recvlogical. The test is skipped if it is missing.
func recvlogical(t *testing.T) measure.PgRecvlogical {
	t.Helper()
	path := measure.FindPgRecvlogical()
	if path == "" {
		need.Missing(t, "no pg_recvlogical")
	}
	return measure.PgRecvlogical{Path: path}
}

// place returns a database of its own for the test, and an in-process Kafka.
func place(t *testing.T) (servers, *pgtest.DB) {
	t.Helper()
	db, brokers := pgtest.Database(t), kafkatest.Fake(t).Addrs
	return servers{measure.Servers{DSN: db.DSN, Broker: kafka(t, brokers...)}, brokers}, db
}

// servers are those of a test.
type servers struct {
	measure.Servers
	brokers []string
}

// kafka returns Kafka at the given addresses.
func kafka(t *testing.T, addrs ...string) broker.Broker {
	t.Helper()
	cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "sink.kafka.brokers", Value: strings.Join(addrs, ",")}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newBench returns a workbench. It is closed when the test ends.
func newBench(t *testing.T, servers measure.Servers, cfg measure.Config) *measure.Workbench {
	t.Helper()
	w, err := measure.NewWorkbench(t.Context(), servers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(t.Context()); err != nil { // again, if the test has already closed it
			t.Error(err)
		}
	})
	return w
}

func write(t *testing.T, w *measure.Workbench, l measure.Load) *measure.Backlog {
	t.Helper()
	b, err := w.Write(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func drain(t *testing.T, b *measure.Backlog, c measure.Contender) measure.DrainResult {
	t.Helper()
	r, err := b.Drain(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDrainSideBySide(t *testing.T) {
	rows := 5000
	if need.Full() {
		rows = 20_000
	}
	floor := recvlogical(t)
	on, _ := place(t)
	w := newBench(t, on.Servers, measure.Config{Topics: 2, Partitions: 3})
	b := write(t, w, measure.Load{Rows: rows, PayloadBytes: 200, PerTransaction: 10, Keys: 100})
	if perRow := b.WALBytes / int64(rows); perRow < 200 || perRow > 2000 {
		t.Errorf("%d bytes of WAL for a row", perRow)
	}
	for range 2 { // the second time from the same position
		r := drain(t, b, relay(t, on))
		if r.Verdict == nil || !r.Verdict.Good() {
			t.Errorf("the relay: %+v", r.Verdict)
		}
		if r.Rows != rows || r.Batches < 6 || r.Batches > r.Rows || r.Streaming <= 0 || r.Elapsed <= r.Streaming || r.CPU <= 0 || r.PeakRSS < 5<<20 ||
			r.ConsumerCPU <= 0 {
			t.Errorf("the relay: %+v", r)
		}
		r = drain(t, b, floor)
		if r.Verdict != nil || r.Rows != rows || r.Streaming <= 0 || r.Elapsed <= r.Streaming || r.CPU <= 0 || r.PeakRSS == 0 {
			t.Errorf("the floor: %+v", r)
		}
	}
}

// No measurement is the first that writes to a partition, or has the records that were written before it.
func TestPartitionsAreStarted(t *testing.T) {
	need.FullRun(t, "the benchmark is run by itself every night")
	on, _ := place(t)
	w := newBench(t, on.Servers, measure.Config{Topics: 2, Partitions: 3})
	client, err := kgo.NewClient(kgo.SeedBrokers(on.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	ends.Each(func(end kadm.ListedOffset) {
		if strings.HasPrefix(end.Topic, measure.TopicPrefix) && end.Offset == 2 {
			started++
		}
	})
	if started != 6 {
		t.Errorf("%d of 6 partitions have two records", started)
	}
	b := write(t, w, measure.Load{Rows: 100, PayloadBytes: 200, PerTransaction: 10, Keys: 100})
	if r := drain(t, b, relay(t, on)); !r.Verdict.Good() {
		t.Errorf("%+v", *r.Verdict)
	}
}

func TestLoads(t *testing.T) {
	need.FullRun(t, "the benchmark is run by itself every night")
	on, _ := place(t)
	w := newBench(t, on.Servers, measure.Config{Topics: 3, Partitions: 2})
	for _, l := range []measure.Load{
		{Rows: 25_001, PayloadBytes: 120, PerTransaction: 25_001, Keys: 999}, // one transaction, written in parts
		{Rows: 503, PayloadBytes: 201, PerTransaction: 10, Keys: 7},
		{Rows: 300, PayloadBytes: 10_001, PerTransaction: 1, Keys: 1000},
	} {
		b := write(t, w, l)
		if r := drain(t, b, relay(t, on)); !r.Verdict.Good() {
			t.Errorf("%+v: %+v", l, *r.Verdict)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []measure.Load{
		{}, {Rows: 1, PayloadBytes: 200, PerTransaction: 1}, {Rows: 1, PayloadBytes: 10, PerTransaction: 1, Keys: 1},
	} {
		if _, err := w.Write(t.Context(), l); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

func TestLatency(t *testing.T) {
	need.FullRun(t, "the benchmark is run by itself every night")
	on, _ := place(t)
	w := newBench(t, on.Servers, measure.Config{})
	r, err := w.Latency(t.Context(), relay(t, on), measure.Flow{Rate: 200, Duration: time.Second, PayloadBytes: 200})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verdict.Good() || r.Measured != 200 || r.Rate != 200 || r.PeakRSS == 0 {
		t.Errorf("%+v", r)
	}
	for _, q := range []measure.Quantiles{r.FromSchedule, r.FromSent} {
		if q.P50 <= 0 || q.P50 > q.P90 || q.P90 > q.P99 || q.P99 > q.P999 || q.P999 > q.Max {
			t.Errorf("%+v", q)
		}
	}
	if r.FromSchedule.P50 < r.FromSent.P50 {
		t.Errorf("from schedule %s, from sent %s: nothing is sent before it is due", r.FromSchedule.P50, r.FromSent.P50)
	}
	if _, err := w.Latency(t.Context(), recvlogical(t), measure.Flow{Rate: 200, Duration: time.Second, PayloadBytes: 200}); err == nil {
		t.Error("a latency of a contender that does not produce")
	}
}

func TestStartUpAndIdle(t *testing.T) {
	need.FullRun(t, "it measures an idle relay for seconds")
	on, _ := place(t)
	w := newBench(t, on.Servers, measure.Config{})
	took, err := w.StartUp(t.Context(), relay(t, on))
	if err != nil || took <= 0 || took > wait.Patience() {
		t.Errorf("start-up: %s, %v", took, err)
	}
	idle, err := w.Idle(t.Context(), relay(t, on), 50, time.Second)
	if err != nil || idle.CPU <= 0 || idle.Share() > 0.5 || idle.RSS == 0 {
		t.Errorf("idle: %+v, %v", idle, err)
	}
}

// A forger takes the place of a relay: a process that does nothing, and records that the test produces.
type forger struct {
	brokers []string
	script  string
	produce func(t measure.Target) []*kgo.Record
}

func (forger) Name() string   { return "forger" }
func (forger) Produces() bool { return true }

func (f forger) Start(ctx context.Context, t measure.Target) (*measure.Process, error) {
	p, err := t.Spawn(shell(f.script))
	if err != nil || f.produce == nil {
		return p, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return p, client.ProduceSync(ctx, f.produce(t)...).FirstErr()
}

func TestVerdictOfWhatIsWrong(t *testing.T) {
	need.FullRun(t, "the benchmark is run by itself every night")
	on, db := place(t)
	w := newBench(t, on.Servers, measure.Config{Partitions: 1, Patience: 3 * time.Second})
	b := write(t, w, measure.Load{Rows: 10, PayloadBytes: 200, PerTransaction: 5, Keys: 2})
	rows := pgtest.QueryRow[[]string](t, db, `SELECT array_agg(payload::text ORDER BY position) FROM `+w.Name()+`.outbox`)
	r := drain(t, b, forger{on.brokers, "exec sleep 60", func(target measure.Target) []*kgo.Record {
		var records []*kgo.Record
		for _, row := range []int{0, 1, 2, 2, 5, 3, 7, 8} { // 4, 6 and 9 are missing, 3 is out of order
			records = append(records, &kgo.Record{Topic: target.Topics[0], Key: []byte{'0' + byte(row%2)}, Value: []byte(rows[row])})
		}
		return append(records, &kgo.Record{Topic: target.Topics[0], Key: []byte("1"), Value: []byte("{}")})
	}})
	if want := (measure.Verdict{Lost: 3, Duplicates: 1, OutOfOrder: 1, Altered: 1}); *r.Verdict != want {
		t.Errorf("%+v, want %+v", *r.Verdict, want)
	}
}

func TestContenderThatFails(t *testing.T) {
	on, db := place(t)
	w := newBench(t, on.Servers, measure.Config{})
	b := write(t, w, measure.Load{Rows: 1, PayloadBytes: 200, PerTransaction: 1, Keys: 1})
	for script, want := range map[string]string{
		"echo the reason; exit 3": "exit status 3; its last output:\nthe reason",
		"exit 0":                  "it ended too early, with status 0",
	} {
		_, err := b.Drain(t.Context(), forger{script: script})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "drain with forger") {
			t.Errorf("%s: %v", script, err)
		}
	}
	floor := recvlogical(t)
	floor.Conninfo = "host=127.0.0.1 port=1 dbname=none"
	if _, err := b.Drain(t.Context(), floor); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("pg_recvlogical without a server: %v", err)
	}
	if n := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM pg_replication_slots WHERE NOT temporary AND database = current_database()`); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}

func TestInterruptLeavesNothing(t *testing.T) {
	need.FullRun(t, "the benchmark is run by itself every night")
	on, db := place(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newBench(t, on.Servers, measure.Config{Progress: func(p measure.Progress) {
		if p.Doing == "forger" {
			cancel()
		}
	}})
	b := write(t, w, measure.Load{Rows: 2, PayloadBytes: 200, PerTransaction: 1, Keys: 1})
	rows := pgtest.QueryRow[[]string](t, db, `SELECT array_agg(payload::text ORDER BY position) FROM `+w.Name()+`.outbox`)
	var slot string
	_, err := b.Drain(ctx, forger{on.brokers, "exec sleep 60", func(target measure.Target) []*kgo.Record {
		slot = target.Slot
		return []*kgo.Record{{Topic: target.Topics[0], Key: []byte("0"), Value: []byte(rows[0])}}
	}})
	if !errors.Is(err, context.Canceled) || slot == "" {
		t.Errorf("Drain of slot %q = %v", slot, err)
	}
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
	nothingIsLeft(t, on, db)
}
