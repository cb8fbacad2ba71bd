// Package inboxtest provides the tests that every adapter of package inbox must pass.
package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Run calls the Run function of an adapter. A new group starts at the beginning of the topic.
type Run func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error

// Contract tests an adapter against kfake and, in a full run, against a real broker.
func Contract(t *testing.T, run Run) {
	t.Helper()
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		for name, test := range map[string]func(*testing.T, *setup){
			"every record once":             everyRecordOnce,
			"offsets after effects":         offsetsAfterEffects,
			"rebalance in the middle":       rebalanceInTheMiddle,
			"a record that is no event":     noEvent,
			"no table":                      noTable,
			"an event for a busy partition": waitsForNoFetch,
			"a topic that does not exist":   missingTopic,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newSetup(t, cluster, run))
			})
		}
	})
}

const (
	partitions = 3
	limit      = 90 * time.Second // of each wait
)

// A setup is the topic, the database and the adapter of one test.
type setup struct {
	cluster      *kafkatest.Cluster
	topic, group string
	db           *pgtest.DB
	pool         *pgxpool.Pool
	run          Run
	producer     *kgo.Client
	log          rig.Log // of the processors
}

func newSetup(tb testing.TB, cluster *kafkatest.Cluster, run Run) *setup {
	tb.Helper()
	r := &setup{cluster: cluster, db: database(tb), run: run, group: kafkatest.UniqueName(tb)}
	r.topic = cluster.Topic(tb, partitions, nil)
	r.db.Exec(tb, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, key text, event_id uuid)`)
	r.pool = r.db.Pool(tb)
	r.producer = cluster.Client(tb, kgo.ProducerLinger(0))
	return r
}

// database returns a database with the inbox tables.
func database(tb testing.TB) *pgtest.DB {
	tb.Helper()
	db := pgtest.Database(tb)
	sql := stdlib.OpenDB(*db.Conn(tb).Config())
	defer sql.Close()
	if _, err := migrations.Up(tb.Context(), sql, migrations.Config{Part: migrations.Inbox}); err != nil {
		tb.Fatal(err)
	}
	return db
}

// Processor returns a processor for events of type A. The processor has a database of its own.
func Processor(tb testing.TB, handler inbox.Handler) *inbox.Processor {
	tb.Helper()
	return newProcessor(tb, database(tb).Pool(tb), 0, io.Discard, handler)
}

func newProcessor(tb testing.TB, pool *pgxpool.Pool, grace time.Duration, log io.Writer, handler inbox.Handler) *inbox.Processor {
	tb.Helper()
	p, err := inbox.NewProcessor(pool, inbox.Config{
		Consumer: "contract", Grace: grace, Handlers: map[string]inbox.Handler{"A": handler},
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(tb.Output(), log), nil)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// produce produces one event per key, in order, and returns the event ids by key.
func (r *setup) produce(tb testing.TB, keys ...string) map[string][]string {
	tb.Helper()
	want := make(map[string][]string)
	var records []*kgo.Record
	for _, key := range keys {
		id := uuid.Must(uuid.NewV7()).String()
		want[key] = append(want[key], id)
		records = append(records, &kgo.Record{Topic: r.topic, Key: []byte(key), Value: []byte(`{}`), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("A")},
		}})
	}
	if err := r.producer.ProduceSync(tb.Context(), records...).FirstErr(); err != nil {
		tb.Fatal(err)
	}
	return want
}

func (r *setup) processor(tb testing.TB, grace time.Duration, before func(ctx context.Context, key string) error) *inbox.Processor {
	tb.Helper()
	return newProcessor(tb, r.pool, grace, &r.log, func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
		_, err := tx.Exec(ctx, `INSERT INTO effects (key, event_id) VALUES ($1, $2)`, string(e.Key), e.ID.String())
		if err == nil && before != nil {
			err = before(ctx, string(e.Key))
		}
		return err
	})
}

// start runs a member of the group until stop is called.
func (r *setup) start(tb testing.TB, p *inbox.Processor) (stop func(), done <-chan error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- r.run(ctx, r.cluster.Addrs, r.group, r.topic, p)
	}()
	stop = func() { cancel(); <-ended }
	tb.Cleanup(stop)
	return stop, result
}

func (r *setup) effects(t *testing.T) map[string][]string {
	t.Helper()
	got := make(map[string][]string)
	rows, err := r.pool.Query(t.Context(), `SELECT key, event_id::text FROM effects ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	var key, id string
	if _, err := pgx.ForEachRow(rows, []any{&key, &id}, func() error { got[key] = append(got[key], id); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

// committed returns the sum of the group's committed offsets: the number of records before them.
func (r *setup) committed(t *testing.T) int64 {
	t.Helper()
	offsets, err := r.cluster.Admin(t).FetchOffsets(t.Context(), r.group)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, o := range offsets.Offsets().Sorted() {
		sum += max(0, o.At)
	}
	return sum
}

// Await waits until cond is true.
func Await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); !cond(); <-ticker.C {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func check(t *testing.T, want, got map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("effects by key (-want +got):\n%s", diff)
	}
}

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i % 7)
	}
	return all
}

func everyRecordOnce(t *testing.T, r *setup) {
	t.Helper()
	want := r.produce(t, keys(200)...)
	p := r.processor(t, 0, nil)
	stop, done := r.start(t, p)
	Await(t, "200 effects", func() bool { return p.Stat().Types["A"].Handled == 200 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	check(t, want, r.effects(t))
	if n := r.committed(t); n != 200 {
		t.Errorf("the group has committed the offsets of %d records, want 200", n)
	}
}

// offsetsAfterEffects stops a member whose handler has not finished. The member does not commit the offset,
// and the next member handles the record.
func offsetsAfterEffects(t *testing.T, r *setup) {
	t.Helper()
	want := r.produce(t, "k", "k", "k")
	var inside atomic.Int32
	p := r.processor(t, time.Millisecond, func(ctx context.Context, _ string) error {
		if inside.Add(1) < 2 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	stop, done := r.start(t, p)
	Await(t, "the second event", func() bool { return inside.Load() == 2 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if n := r.committed(t); n != 1 {
		t.Errorf("the group has committed the offsets of %d records, want 1", n)
	}
	second := r.processor(t, 0, nil)
	r.start(t, second)
	Await(t, "the other events", func() bool { return second.Stat().Types["A"].Handled == 2 })
	check(t, want, r.effects(t))
}

// rebalanceInTheMiddle starts a second member while handlers of the first member run. Soon after, it stops
// the first member.
func rebalanceInTheMiddle(t *testing.T, r *setup) {
	t.Helper()
	want := r.produce(t, keys(150)...)
	slow := func(ctx context.Context, _ string) error {
		select {
		case <-time.After(20 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	first, second := r.processor(t, 0, slow), r.processor(t, time.Millisecond, slow)
	stop, _ := r.start(t, first)
	Await(t, "the first member is at it", func() bool { return first.Stat().Types["A"].Handled > 3 })
	r.start(t, second)
	// Handled does not count a commit whose response was lost with the session.
	all := func() bool { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) >= 150 }
	Await(t, "the second member is at it", func() bool { return second.Stat().Types["A"].Handled > 3 || all() })
	stop()
	Await(t, "150 effects", all)
	check(t, want, r.effects(t))
}

func noEvent(t *testing.T, r *setup) {
	t.Helper()
	if err := r.producer.ProduceSync(t.Context(), &kgo.Record{Topic: r.topic, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	_, done := r.start(t, r.processor(t, 0, nil))
	var problem *inbox.EventError
	if err := <-done; !errors.As(err, &problem) || problem.Topic != r.topic {
		t.Errorf("Run = %v, want an EventError", err)
	}
}

func noTable(t *testing.T, r *setup) {
	t.Helper()
	r.db.Exec(t, `DROP TABLE processed_events, inbox_events`)
	r.produce(t, "k")
	_, done := r.start(t, r.processor(t, 0, nil))
	if err := <-done; !errors.Is(err, inbox.ErrNoTable) {
		t.Errorf("Run = %v, want ErrNoTable", err)
	}
}

// waitsForNoFetch produces events for a partition whose handler is busy. The other partitions have no
// records. The adapter handles the events as soon as the handler returns.
func waitsForNoFetch(t *testing.T, r *setup) {
	t.Helper()
	busy, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := r.processor(t, 0, func(context.Context, string) error {
		once.Do(func() { close(busy); <-release })
		return nil
	})
	r.start(t, p)
	r.produce(t, "k")
	<-busy
	r.produce(t, "k", "k")
	time.Sleep(100 * time.Millisecond) // for the next fetch to start
	began := time.Now()
	close(release)
	Await(t, "3 effects", func() bool { return p.Stat().Types["A"].Handled == 3 })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the events were handled %s after the handler had returned", took)
	}
}

// missingTopic starts a member before its topic exists. The member logs that the topic does not exist, and
// consumes the topic when it does.
func missingTopic(t *testing.T, r *setup) {
	t.Helper()
	r.topic = kafkatest.UniqueName(t)
	p := r.processor(t, 0, nil)
	r.start(t, p)
	Await(t, "the topic is missed", func() bool { return strings.Contains(r.log.String(), "inbox: topic does not exist, waiting for it") })
	r.cluster.CreateTopic(t, r.topic, partitions, nil)
	want := r.produce(t, keys(10)...)
	Await(t, "10 effects", func() bool { return p.Stat().Types["A"].Handled == 10 })
	check(t, want, r.effects(t))
	for _, line := range []string{"inbox: joining the consumer group", "inbox: partitions assigned"} {
		if !strings.Contains(r.log.String(), line) {
			t.Errorf("the log has no line %q", line)
		}
	}
	if n := strings.Count(r.log.String(), "topic does not exist"); n != 1 {
		t.Errorf("the missing topic is logged %d times", n)
	}
}
