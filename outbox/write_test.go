package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A countingTx is a transaction without a server. It counts statements.
type countingTx struct {
	pgx.Tx
	statements int
}

func (tx *countingTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	tx.statements++
	return pgconn.CommandTag{}, nil
}

// A form is a way to write, in a transaction of its own that it commits or rolls back.
type form struct {
	name  string
	write func(ctx context.Context, w *outbox.Writer, conn *pgx.Conn, before string, events ...outbox.Event) error
}

// forms returns the forms that write rows, and with messages also those that write messages.
func forms(messages bool) []form {
	all := []form{
		{"Write", onPgx((*outbox.Writer).Write)},
		{"WriteSQL", onSQL((*outbox.Writer).WriteSQL)},
	}
	if messages {
		all = append(all, form{"WriteMessage", onPgx((*outbox.Writer).WriteMessage)}, form{"WriteMessageSQL", onSQL((*outbox.Writer).WriteMessageSQL)})
	}
	return all
}

func onPgx(
	write func(*outbox.Writer, context.Context, pgx.Tx, ...outbox.Event) error,
) func(context.Context, *outbox.Writer, *pgx.Conn, string, ...outbox.Event) error {
	return func(ctx context.Context, w *outbox.Writer, conn *pgx.Conn, before string, events ...outbox.Event) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, before)
			return write(w, ctx, tx, events...)
		})
	}
}

func onSQL(
	write func(*outbox.Writer, context.Context, *sql.Tx, ...outbox.Event) error,
) func(context.Context, *outbox.Writer, *pgx.Conn, string, ...outbox.Event) error {
	return func(ctx context.Context, w *outbox.Writer, conn *pgx.Conn, before string, events ...outbox.Event) error {
		db := stdlib.OpenDB(*conn.Config())
		defer db.Close()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		_, _ = tx.ExecContext(ctx, before)
		if err := write(w, ctx, tx, events...); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// writer returns a Writer for cfg.
func writer(t *testing.T, cfg outbox.Config) *outbox.Writer {
	t.Helper()
	w, err := outbox.NewWriter(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A row is a row of the default table.
type row struct {
	ID                               uuid.UUID
	AggregateType, AggregateID, Type string
	Payload, Headers                 *string
}

func rows(t *testing.T, conn *pgx.Conn) []row {
	t.Helper()
	found, err := conn.Query(t.Context(),
		`SELECT id, aggregatetype, aggregateid, type, payload::text, headers::text FROM outbox ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWriteInEveryModeOfPgx(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
			pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			cfg := database(t, srv).Conn(t).Config()
			cfg.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			var want []row
			for _, form := range forms(false) {
				ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New(), uuid.Must(uuid.NewV7())}
				events := []outbox.Event{
					{ID: ids[0], AggregateType: "order", AggregateID: "it's \\ ☃", Type: "A", Payload: []byte(`{"a": 1.50}`)},
					{ID: ids[1], AggregateType: "order", AggregateID: `"{,}"`, Type: "B", Tombstone: true},
					{
						ID: ids[2], AggregateType: "customer", AggregateID: "NULL", Type: "C",
						Payload: json.RawMessage(`null`), Headers: map[string]string{"trace": "é\"<", "t": ""},
					},
				}
				w := writer(t, outbox.Config{})
				err := errors.Join(form.write(t.Context(), w, conn, "", events[0]), form.write(t.Context(), w, conn, "", events[1:]...))
				if err != nil {
					t.Fatalf("%s in %v: %v", form.name, mode, err)
				}
				want = append(want,
					row{ids[0], "order", "it's \\ ☃", "A", new(`{"a": 1.50}`), nil},
					row{ids[1], "order", `"{,}"`, "B", nil, nil},
					row{ids[2], "customer", "NULL", "C", new(`null`), new(`{"t": "", "trace": "é\"<"}`)})
			}
			if diff := cmp.Diff(want, rows(t, conn)); diff != "" {
				t.Errorf("%v: rows (-want +got):\n%s", mode, diff)
			}
			inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error { return outbox.Write(ctx, tx, many(1000)...) })
			if got := len(rows(t, conn)) - len(want); got != 1000 {
				t.Errorf("%v: %d of 1000 rows", mode, got)
			}
		}
	})
}

func TestEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		conn := database(t, srv).Conn(t)
		var events []outbox.Event
		for i := range 5000 {
			events = append(events, event(func(e *outbox.Event) { e.AggregateID = fmt.Sprint(i) }))
		}
		inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(
				outbox.Write(ctx, tx, events[0]), outbox.Write(ctx, tx, events[1:4998]...),
				outbox.Write(ctx, tx), outbox.Write(ctx, tx, events[4998:]...))
		})
		for i, r := range rows(t, conn) {
			if r.AggregateID != events[i].AggregateID {
				t.Fatalf("row %d is of event %s", i, r.AggregateID)
			}
		}
	})
}

func TestWriteMakesIDsOfVersion7(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	before := time.Now().Truncate(time.Millisecond)
	events := []outbox.Event{event(nil), event(nil), event(nil)}
	inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error { return outbox.Write(ctx, tx, events...) })
	last := ""
	for _, r := range rows(t, conn) {
		seconds, nanos := r.ID.Time().UnixTime()
		if made := time.Unix(seconds, nanos); r.ID.Version() != 7 || made.Before(before) || made.After(time.Now()) {
			t.Errorf("id %s: version %d, created %s", r.ID, r.ID.Version(), made)
		}
		if r.ID.String() <= last {
			t.Errorf("id %s after %s", r.ID, last)
		}
		last = r.ID.String()
	}
	for _, e := range events {
		if e.ID != uuid.Nil {
			t.Error("Write changed the caller's event")
		}
	}
}

func TestWriteIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Write(t.Context(), tx, event(nil)); err != nil {
		t.Fatal(err)
	}
	if err := outbox.Write(t.Context(), tx, outbox.Event{}); err == nil {
		t.Error("an empty event was written")
	}
	if err := outbox.Write(t.Context(), tx, event(nil)); err != nil {
		t.Errorf("after an event with a problem: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, conn); len(got) != 0 {
		t.Errorf("%d rows after the rollback", len(got))
	}
}

func TestServerErrorsKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	twice := event(func(e *outbox.Event) { e.ID = uuid.Must(uuid.NewV7()) })
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return outbox.Write(t.Context(), tx, twice, twice) })
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23505" {
		t.Errorf("Write = %v, want a unique_violation", err)
	}
}

// A tracer counts what pgx sends.
type tracer struct{ prepares, queries, copies int }

func (c *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	c.prepares++
	return ctx
}
func (*tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries++
	return ctx
}
func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	c.copies++
	return ctx
}
func (*tracer) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func TestOneStatementForAnyNumberOfEvents(t *testing.T) {
	t.Parallel()
	cfg := database(t, pgtest.Server(t)).Conn(t).Config()
	sent := &tracer{}
	cfg.Tracer = sent
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error {
		for _, n := range []int{1, 2, 3, 1, 499, 500, 1000} {
			events := make([]outbox.Event, n)
			for i := range events {
				events[i] = event(nil)
			}
			*sent = tracer{prepares: sent.prepares}
			if err := outbox.Write(ctx, tx, events...); err != nil {
				return err
			}
			want := tracer{prepares: sent.prepares, queries: 1}
			if n >= 500 {
				want = tracer{prepares: sent.prepares, copies: 1}
			}
			if *sent != want {
				t.Errorf("Write of %d events: %+v, want %+v", n, *sent, want)
			}
			*sent = tracer{prepares: sent.prepares}
			if err := outbox.WriteMessage(ctx, tx, events...); err != nil {
				return err
			}
			if sent.queries != 1 {
				t.Errorf("WriteMessage of %d events took %d queries", n, sent.queries)
			}
		}
		return nil
	})
	if sent.prepares != 5 {
		t.Errorf("%d statements were prepared, want one for a single event, one for any number, of each function, and one for COPY", sent.prepares)
	}
}
