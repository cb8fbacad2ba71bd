// Package inboxtest is what every adapter of package inbox must do, as tests.
package inboxtest

import (
	"context"
	"errors"
	"fmt"
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
)

// Run is an adapter's Run, for a new member of a group that begins at the start of a topic.
type Run func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error

// Contract tests an adapter against kfake and, in a full run, against a real broker.
func Contract(t *testing.T, run Run) {
	t.Helper()
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		for name, test := range map[string]func(*testing.T, *rig){
			"every record once":         everyRecordOnce,
			"offsets after effects":     offsetsAfterEffects,
			"rebalance in the middle":   rebalanceInTheMiddle,
			"a record that is no event": noEvent,
			"no table":                  noTable,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newRig(t, cluster, run))
			})
		}
	})
}

const (
	partitions = 3
	limit      = 90 * time.Second // of anything that is waited for
)

// A rig is a topic, a database and an adapter.
type rig struct {
	cluster      *kafkatest.Cluster
	topic, group string
	db           *pgtest.DB
	pool         *pgxpool.Pool
	run          Run
	producer     *kgo.Client
}

func newRig(t *testing.T, cluster *kafkatest.Cluster, run Run) *rig {
	t.Helper()
	r := &rig{cluster: cluster, db: pgtest.Database(t), run: run, group: kafkatest.UniqueName(t)}
	r.topic = cluster.Topic(t, partitions, nil)
	sql := stdlib.OpenDB(*r.db.Conn(t).Config())
	defer sql.Close()
	if _, err := migrations.Up(t.Context(), sql, migrations.Config{Part: migrations.Inbox}); err != nil {
		t.Fatal(err)
	}
	r.db.Exec(t, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, key text, event_id uuid)`)
	r.pool = r.db.Pool(t)
	r.producer = cluster.Client(t)
	return r
}

// produce writes an event for each key, in order, and returns their ids by key.
func (r *rig) produce(t *testing.T, keys ...string) map[string][]string {
	t.Helper()
	want := make(map[string][]string)
	var records []*kgo.Record
	for _, key := range keys {
		id := uuid.Must(uuid.NewV7()).String()
		want[key] = append(want[key], id)
		records = append(records, &kgo.Record{Topic: r.topic, Key: []byte(key), Value: []byte(`{}`), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("A")},
		}})
	}
	if err := r.producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return want
}

func (r *rig) processor(t *testing.T, grace time.Duration, before func(ctx context.Context, key string) error) *inbox.Processor {
	t.Helper()
	p, err := inbox.New(r.pool, inbox.Config{
		Consumer: "contract", Grace: grace,
		Handlers: map[string]inbox.Handler{"A": func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			_, err := tx.Exec(ctx, `INSERT INTO effects (key, event_id) VALUES ($1, $2)`, string(e.Key), e.ID.String())
			if err == nil && before != nil {
				err = before(ctx, string(e.Key))
			}
			return err
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs a member of the group; stop ends it.
func (r *rig) start(t *testing.T, p *inbox.Processor) (stop func(), done <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- r.run(ctx, r.cluster.Addrs, r.group, r.topic, p)
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop, result
}

func (r *rig) effects(t *testing.T) map[string][]string {
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

// committed returns how many records the committed offsets of the group have passed.
func (r *rig) committed(t *testing.T) int64 {
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

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); !cond(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
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

func everyRecordOnce(t *testing.T, r *rig) {
	t.Helper()
	want := r.produce(t, keys(200)...)
	p := r.processor(t, 0, nil)
	stop, done := r.start(t, p)
	await(t, "200 effects", func() bool { return p.Stat().Types["A"].Handled == 200 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	check(t, want, r.effects(t))
	if n := r.committed(t); n != 200 {
		t.Errorf("the committed offsets have passed %d records, want 200", n)
	}
}

// offsetsAfterEffects stops a member within a handler that does not end: its record is not
// committed, and is the next member's.
func offsetsAfterEffects(t *testing.T, r *rig) {
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
	await(t, "the second event", func() bool { return inside.Load() == 2 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if n := r.committed(t); n != 1 {
		t.Errorf("the committed offsets have passed %d records, want 1", n)
	}
	second := r.processor(t, 0, nil)
	r.start(t, second)
	await(t, "the other events", func() bool { return second.Stat().Types["A"].Handled == 2 })
	check(t, want, r.effects(t))
}

// rebalanceInTheMiddle has a second member join while the first is within a handler of each
// partition, and the first leave soon after.
func rebalanceInTheMiddle(t *testing.T, r *rig) {
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
	await(t, "the first member is at it", func() bool { return first.Stat().Types["A"].Handled > 3 })
	r.start(t, second)
	// A commit in which the session ends is not counted as handled: nobody heard how it ended.
	all := func() bool { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) >= 150 }
	await(t, "the second member is at it", func() bool { return second.Stat().Types["A"].Handled > 3 || all() })
	stop()
	await(t, "150 effects", all)
	check(t, want, r.effects(t))
}

func noEvent(t *testing.T, r *rig) {
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

func noTable(t *testing.T, r *rig) {
	t.Helper()
	r.db.Exec(t, `DROP TABLE processed_events, inbox_events`)
	r.produce(t, "k")
	_, done := r.start(t, r.processor(t, 0, nil))
	if err := <-done; !errors.Is(err, inbox.ErrNoTable) {
		t.Errorf("Run = %v, want ErrNoTable", err)
	}
}
