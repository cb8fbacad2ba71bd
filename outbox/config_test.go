package outbox_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestWriterForATableOfOnesOwn(t *testing.T) {
	t.Parallel()
	for payloadType, payloads := range map[outbox.PayloadType][]string{
		outbox.JSONB: {`{"a": 1}`, `[]`},
		outbox.JSON:  {` {"b":1, "a":1.0, "a":2}`, `"\u0000"`},
		outbox.Text:  {`<a/>`, ``},
		outbox.Bytea: {"\x00\xff", ""},
	} {
		db := pgtest.Database(t)
		db.Exec(t, `CREATE SCHEMA "my app"; CREATE TABLE "my app"."Out""box" (
			"Id" varchar(36), kind varchar(255), "key" varchar(255), "what;" varchar(255), body `+string(payloadType)+`, meta json,
			n bigint GENERATED ALWAYS AS IDENTITY)`)
		w, err := outbox.NewWriter(outbox.Config{
			Table: pgx.Identifier{"my app", `Out"box`},
			Columns: outbox.Columns{
				ID: "Id", AggregateType: "kind", AggregateID: "key", Type: "what;", Payload: "body", Headers: "meta",
			},
			PayloadType: payloadType,
		})
		if err != nil {
			t.Fatal(err)
		}
		conn := db.Conn(t)
		inTx(t, conn, func(ctx context.Context, tx pgx.Tx) error {
			events := make([]outbox.Event, 3)
			for i := range events {
				events[i] = event(func(e *outbox.Event) { e.Payload, e.Tombstone, e.Headers = nil, true, map[string]string{"a": "b"} })
				if i < len(payloads) {
					events[i].Payload, events[i].Tombstone = []byte(payloads[i]), false
				}
			}
			if err := w.Write(ctx, tx, events[0]); err != nil {
				return err
			}
			if err := w.Write(ctx, tx, events...); err != nil {
				return err
			}
			return w.Write(ctx, tx, slices.Repeat(events, 200)...) // with COPY
		})
		body := `convert_to(body::text, 'UTF8')`
		if payloadType == outbox.Bytea {
			body = `body`
		}
		got := pgtest.QueryRow[[][]byte](t, db, `SELECT array_agg(`+body+` ORDER BY n) FROM "my app"."Out""box"`)
		three := [][]byte{[]byte(payloads[0]), []byte(payloads[1]), nil}
		want := slices.Concat(three[:1], slices.Repeat(three, 201))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: payloads (-want +got):\n%s", payloadType, diff)
		}
		rest := pgtest.QueryRow[string](t, db,
			`SELECT DISTINCT concat_ws(' ', length("Id"), kind, "key", "what;", meta::jsonb) FROM "my app"."Out""box"`)
		if want := `36 order 1 OrderPaid {"a": "b"}`; rest != want {
			t.Errorf("%s: got %s, want %s", payloadType, rest, want)
		}
	}
}

func TestWriterWithoutHeaders(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`)
	w, err := outbox.NewWriter(outbox.Config{
		Table:       pgx.Identifier{"outboxevent"},
		Columns:     outbox.Columns{Headers: outbox.NoColumn},
		PayloadType: outbox.Text,
	})
	if err != nil {
		t.Fatal(err)
	}
	inTx(t, db.Conn(t), func(ctx context.Context, tx pgx.Tx) error {
		if err := w.Write(ctx, tx, event(nil)); err != nil {
			return err
		}
		return w.Write(ctx, tx, event(nil), event(nil))
	})
	if n := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM outboxevent WHERE payload = '{}'`); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// Every form fills the configured columns, with NULL if the event has no value.
func TestOptionalColumns(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t))
	db.Exec(t, `ALTER TABLE outbox ADD "part" integer, ADD version integer`)
	w := writer(t, outbox.Config{Columns: outbox.Columns{Partition: "part", SchemaVersion: "version"}})
	conn := db.Conn(t)
	total := 0
	for _, form := range forms(false) {
		for _, n := range []int{1, 2, 300} {
			with := event(func(e *outbox.Event) { e.Partition, e.SchemaVersion = new(int32(0)), 7 })
			if err := form.write(t.Context(), w, conn, "", slices.Repeat([]outbox.Event{with, event(nil)}, n)...); err != nil {
				t.Fatalf("%s: %v", form.name, err)
			}
			total += n
		}
	}
	for condition, want := range map[string]int{"part = 0 AND version = 7": total, "part IS NULL AND version IS NULL": total, "headers IS NULL": 2 * total} {
		if n := pgtest.QueryRow[int](t, db, `SELECT count(*)::int FROM outbox WHERE `+condition); n != want {
			t.Errorf("%d rows with %s, want %d", n, condition, want)
		}
	}
}

func TestNewWriterRefuses(t *testing.T) {
	for want, cfg := range map[string]outbox.Config{
		"outbox: Config.Table: want {table} or {schema, table}":                    {Table: pgx.Identifier{"a", "b", "c"}},
		`outbox: Config.PayloadType: "xml" is not one of jsonb, json, text, bytea`: {PayloadType: "xml"},
		`outbox: Config.Columns: column "type" is named twice`:                     {Columns: outbox.Columns{AggregateType: "type"}},
		`outbox: Config.Columns: column "headers" is named twice`:                  {Columns: outbox.Columns{ID: "headers"}},
		`outbox: Config.Columns: column "id" is named twice`:                       {Columns: outbox.Columns{Partition: "id"}},
		`outbox: Config.MessagePrefix: "outbox-cdc" is reserved or not valid text`: {MessagePrefix: "outbox-cdc"},
		`outbox: Config.MessagePrefix: "\x00" is reserved or not valid text`:       {MessagePrefix: "\x00"},
		`outbox: Config.MaxBytes: -1 is negative`:                                  {MaxBytes: -1},
	} {
		if _, err := outbox.NewWriter(cfg); err == nil || err.Error() != want {
			t.Errorf("NewWriter(%+v) = %v, want %s", cfg, err, want)
		}
	}
}
