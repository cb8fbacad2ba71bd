// Package inboxtest provides the tests that every adapter of package inbox must pass.
package inboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
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

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Subject is an adapter with a broker that is running.
type Subject struct {
	// Create creates a topic that keeps the order of each key. The name is one of UniqueName.
	Create func(tb testing.TB, topic string)
	// Publish writes messages to a topic, in order, and returns when the broker has stored them.
	Publish func(tb testing.TB, topic string, messages ...Message)
	// Run calls the Run function of the adapter, as a member of a group that starts at the beginning of the topic. If
	// addr is not empty, it is the address of a proxy to the broker.
	Run func(ctx context.Context, addr, group, topic string, p *inbox.Processor) error
	// Acknowledged returns the number of messages of the topic that the group need not get again. All of them were
	// written by Publish.
	Acknowledged func(tb testing.TB, group, topic string) int
	// Proxy starts a proxy to the broker.
	Proxy func(tb testing.TB) *faultproxy.Proxy
	// Restart restarts the broker. Nil if only Proxy can interrupt the service.
	Restart func(tb testing.TB)
	// Log has the messages of the adapter.
	Log Lines
}

// Lines are messages that an adapter logs. Those that are empty are not tested.
type Lines struct {
	Joining, Assigned string // when a member starts, and when it gets events to handle
	Missing           string // once, if the topic does not exist
	Lost, Back        string // when the broker becomes unavailable, and when it is available again
}

// A Message is what the relay writes for an event. An empty ID means no header id.
type Message struct{ Key, ID, Type, Payload string }

// Contract tests an adapter.
func Contract(t *testing.T, subject Subject) {
	t.Helper()
	tests := map[string]func(*testing.T, *setup){
		"every record once":             everyRecordOnce,
		"offsets after effects":         offsetsAfterEffects,
		"rebalance in the middle":       rebalanceInTheMiddle,
		"members come and go":           membersComeAndGo,
		"a member without a connection": withoutAConnection,
		"a record that is no event":     noEvent,
		"no table":                      noTable,
		"an event for a busy partition": waitsForNoFetch,
		"a topic that does not exist":   missingTopic,
	}
	if subject.Log.Missing == "" {
		delete(tests, "a topic that does not exist")
	}
	if subject.Proxy == nil {
		delete(tests, "a member without a connection")
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSetup(t, subject))
		})
	}
}

// A setup is the topic, the database and the adapter of one test.
type setup struct {
	Subject

	topic, group string
	db           *pgtest.DB
	pool         *pgxpool.Pool
	log          rig.Log // of the processors
}

func newSetup(tb testing.TB, subject Subject) *setup {
	tb.Helper()
	r := &setup{Subject: subject, db: database(tb), group: UniqueName(tb), topic: UniqueName(tb)}
	r.Create(tb, r.topic)
	r.db.Exec(tb, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, key text, event_id uuid)`)
	r.pool = r.db.Pool(tb)
	return r
}

// UniqueName returns a name for a topic or a group that no other test uses. It has letters, digits and - only.
func UniqueName(tb testing.TB) string {
	tb.Helper()
	name := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(tb.Name(), "-")
	return name[:min(len(name), 60)] + "-" + strings.ToLower(rand.Text()[:8])
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
	return LoggingProcessor(tb, io.Discard, handler)
}

// LoggingProcessor is Processor with a log that also goes to w.
func LoggingProcessor(tb testing.TB, w io.Writer, handler inbox.Handler) *inbox.Processor {
	tb.Helper()
	return newProcessor(tb, database(tb).Pool(tb), 0, w, handler)
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
	var messages []Message
	for _, key := range keys {
		id := uuid.Must(uuid.NewV7()).String()
		want[key] = append(want[key], id)
		messages = append(messages, Message{Key: key, ID: id, Type: "A", Payload: `{}`})
	}
	r.Publish(tb, r.topic, messages...)
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
	return r.startAt(tb, "", p)
}

// startAt is start through a proxy.
func (r *setup) startAt(tb testing.TB, addr string, p *inbox.Processor) (stop func(), done <-chan error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- r.Run(ctx, addr, r.group, r.topic, p)
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

// checkAcknowledged waits until the group has acknowledged n messages, no more and no less.
func (r *setup) checkAcknowledged(t *testing.T, n int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("%d acknowledged messages", n), func() bool { return r.Acknowledged(t, r.group, r.topic) == n })
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
	wait.For(t, "200 effects", func() bool { return p.Stat().Types["A"].Handled == 200 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	check(t, want, r.effects(t))
	r.checkAcknowledged(t, 200)
}

// offsetsAfterEffects stops a member whose handler has not finished. The member does not acknowledge the record,
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
	wait.For(t, "the second event", func() bool { return inside.Load() == 2 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	r.checkAcknowledged(t, 1)
	second := r.processor(t, 0, nil)
	r.start(t, second)
	wait.For(t, "the other events", func() bool { return second.Stat().Types["A"].Handled == 2 })
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
	wait.For(t, "the first member is at it", func() bool { return first.Stat().Types["A"].Handled > 3 })
	r.start(t, second)
	// Handled does not count a commit whose response was lost with the session.
	all := func() bool { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) >= 150 }
	wait.For(t, "the second member is at it", func() bool { return second.Stat().Types["A"].Handled > 3 || all() })
	stop()
	wait.For(t, "150 effects", all)
	check(t, want, r.effects(t))
}

// membersComeAndGo starts and stops members while their handlers run. Some of the handlers cannot finish.
func membersComeAndGo(t *testing.T, r *setup) {
	t.Helper()
	members, each, most := 2, 20, 80 // every other member gives its handlers no time to finish
	if need.Full() {
		members, each, most = 4, 40, 300
	}
	want := r.produce(t, keys(most)...)
	slow := func(ctx context.Context, _ string) error {
		select {
		case <-time.After(5 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	all := func(n int) func() bool {
		return func() bool { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) >= n }
	}
	for n := range members {
		stop, _ := r.start(t, r.processor(t, time.Duration(n%2)*time.Second+time.Millisecond, slow))
		wait.For(t, "the next effects", all(each*(n+1)))
		stop()
	}
	r.start(t, r.processor(t, 0, slow))
	wait.For(t, "all effects", all(most))
	check(t, want, r.effects(t))
	r.checkAcknowledged(t, most)
}

// withoutAConnection disconnects a member while its handlers run, and starts another one. The first member does not know
// what the broker has delivered to the second one. When it is connected again, both run.
func withoutAConnection(t *testing.T, r *setup) {
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
	proxy := r.Proxy(t)
	first, second := r.processor(t, 0, slow), r.processor(t, 0, slow)
	r.startAt(t, proxy.Addr(), first)
	wait.For(t, "the first member is at it", func() bool { return first.Stat().Types["A"].Handled > 3 })
	proxy.Refuse()
	r.start(t, second)
	add := func(n int) {
		for key, ids := range r.produce(t, keys(n)...) {
			want[key] = append(want[key], ids...)
		}
	}
	add(50)
	wait.For(t, "the second member is at it", func() bool {
		s := second.Stat().Types["A"]
		return s.Handled+s.Duplicates > 3
	})
	proxy.Accept()
	add(100)
	wait.For(t, "300 effects", func() bool { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) >= 300 })
	check(t, want, r.effects(t))
	r.checkAcknowledged(t, 300)
}

func noEvent(t *testing.T, r *setup) {
	t.Helper()
	r.Publish(t, r.topic, Message{Payload: "{}"})
	_, done := r.start(t, r.processor(t, 0, nil))
	var problem *inbox.EventError
	if err := <-done; !errors.As(err, &problem) || !strings.Contains(problem.Topic, r.topic) {
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
	wait.For(t, "3 effects", func() bool { return p.Stat().Types["A"].Handled == 3 })
	if took := time.Since(began); need.Full() && took > 2*time.Second {
		t.Errorf("the events were handled %s after the handler had returned", took)
	}
}

// missingTopic starts a member before its topic exists. The member logs that the topic does not exist, and
// consumes the topic when it does.
func missingTopic(t *testing.T, r *setup) {
	t.Helper()
	r.topic = UniqueName(t)
	p := r.processor(t, 0, nil)
	r.start(t, p)
	wait.For(t, "the topic is missed", func() bool { return strings.Contains(r.log.String(), r.Log.Missing) })
	r.Create(t, r.topic)
	want := r.produce(t, keys(10)...)
	wait.For(t, "10 effects", func() bool { return p.Stat().Types["A"].Handled == 10 })
	check(t, want, r.effects(t))
	for _, line := range []string{r.Log.Joining, r.Log.Assigned} {
		if !strings.Contains(r.log.String(), line) {
			t.Errorf("the log has no line %q", line)
		}
	}
	if n := strings.Count(r.log.String(), r.Log.Missing); n != 1 {
		t.Errorf("the missing topic is logged %d times", n)
	}
}
