package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(pgtest.Wrap(withExamples{m})) }

// database returns a database with the inbox tables and a table for effects.
func database(tb testing.TB, srv *pgserver.Server, cfg migrations.Config) *pgtest.DB {
	tb.Helper()
	db := pgtest.DatabaseOn(tb, srv)
	migrate(tb, db, cfg)
	db.Exec(tb, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, event_id uuid, key text, what text)`)
	return db
}

func migrate(tb testing.TB, db *pgtest.DB, cfg migrations.Config) {
	tb.Helper()
	cfg.Part = migrations.Inbox
	p := stdlib.OpenDB(*db.Conn(tb).Config())
	defer p.Close()
	if _, err := migrations.Up(tb.Context(), p, cfg); err != nil {
		tb.Fatal(err)
	}
}

// pool returns a pool with enough connections for a test.
func pool(tb testing.TB, db *pgtest.DB) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxConns = 20
	p, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// waitingEvents returns the events of all consumers that wait or are parked.
func waitingEvents(tb testing.TB, db inbox.DB) []inbox.WaitingEvent {
	tb.Helper()
	all, err := inbox.Store{}.List(tb.Context(), db, "", 100)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// makeEvent returns event n of a partition.
func makeEvent(n int, key, kind string) inbox.Event {
	return inbox.Event{
		ID: uuid.Must(uuid.NewV7()), Type: kind, Topic: "orders", Key: []byte(key), Offset: int64(n), Time: time.Now(),
		Payload: fmt.Appendf(nil, `{"n": %d}`, n), Headers: []inbox.Header{{Name: "trace", Value: []byte{0, 0xff}}},
	}
}

// effect writes the effect of e.
func effect(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (event_id, key, what) VALUES ($1, $2, $3)`, e.ID.String(), string(e.Key), e.Type)
	return err
}

// effects returns the event ids of a key's effects, in order.
func effects(tb testing.TB, db *pgtest.DB, key string) []uuid.UUID {
	tb.Helper()
	texts := pgtest.QueryRow[[]string](tb, db, `SELECT coalesce(array_agg(event_id::text ORDER BY n), '{}') FROM effects WHERE key = $1`, key)
	ids := make([]uuid.UUID, len(texts))
	for i, s := range texts {
		ids[i] = uuid.MustParse(s)
	}
	return ids
}

func ids(events ...inbox.Event) []uuid.UUID {
	all := make([]uuid.UUID, len(events))
	for i, e := range events {
		all[i] = e.ID
	}
	return all
}

// processor returns a processor for events of the type A. change changes its Config.
func processor(tb testing.TB, db inbox.DB, change func(*inbox.Config)) *inbox.Processor {
	tb.Helper()
	cfg := inbox.Config{
		Consumer:     "test",
		Handlers:     map[string]inbox.Handler{"A": effect},
		RetryDelays:  []time.Duration{time.Millisecond, time.Millisecond},
		PollInterval: 10 * time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
	if change != nil {
		change(&cfg)
	}
	p, err := inbox.NewProcessor(db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// run runs p until stop is called or the test ends. If Run returns an error, the test fails.
func run(tb testing.TB, p *inbox.Processor) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		tb.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run = %v", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// handle hands events to p, one after the other.
func handle(tb testing.TB, p *inbox.Processor, events ...inbox.Event) {
	tb.Helper()
	for _, e := range events {
		if err := p.Handle(tb.Context(), e); err != nil {
			tb.Fatalf("Handle: %v", err)
		}
	}
}

// countUnprocessed returns how many events wait or are parked.
func countUnprocessed(tb testing.TB, db *pgtest.DB) int {
	tb.Helper()
	checkLanes(tb, db)
	return pgtest.QueryRow[int](tb, db, `SELECT count(*) FROM inbox_events`)
}

// checkLanes asserts that only the first event of each lane is due or parked.
func checkLanes(tb testing.TB, db *pgtest.DB) {
	tb.Helper()
	wrong := pgtest.QueryRow[int](tb, db, `
		SELECT count(*) FROM (
			SELECT due_at IS NOT NULL OR parked_at IS NOT NULL AS heads,
				row_number() OVER (PARTITION BY consumer, lane ORDER BY position) = 1 AS first
			FROM inbox_events) AS e
		WHERE heads <> first`)
	if wrong != 0 {
		tb.Errorf("%d events are due or parked behind others, or first and neither", wrong)
	}
}

var errBroken = errors.New("the mail server is down")
