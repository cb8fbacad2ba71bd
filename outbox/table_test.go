package outbox_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtest"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

func TestWriterForATableOfOnesOwn(t *testing.T) {
	for payloadType, payloads := range map[outbox.PayloadType][]string{
		outbox.JSONB: {`{"a": 1}`, `[]`},
		outbox.JSON:  {` {"b":1, "a":1.0, "a":2}`, `"\u0000"`},
		outbox.Text:  {`<a/>`, ``},
		outbox.Bytea: {"\x00\xff", ""},
	} {
		db := pgtest.Database(t)
		db.Exec(t, `CREATE SCHEMA "my app"; CREATE TABLE "my app"."Out""box" (
			"Id" varchar(36), kind varchar(255), "key" varchar(255), "what;" varchar(255), body `+string(payloadType)+`, meta json)`)
		w, err := outbox.NewWriter(outbox.Table{
			Name: pgx.Identifier{"my app", `Out"box`},
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
				events[i] = event(func(e *outbox.Event) { e.Payload, e.Headers = nil, map[string]string{"a": "b"} })
				if i < len(payloads) {
					events[i].Payload = []byte(payloads[i])
				}
			}
			if err := w.Write(ctx, tx, events[0]); err != nil {
				return err
			}
			return w.Write(ctx, tx, events...)
		})
		body := `convert_to(body::text, 'UTF8')`
		if payloadType == outbox.Bytea {
			body = `body`
		}
		got := pgtest.QueryRow[[][]byte](t, db, `SELECT array_agg(`+body+` ORDER BY ctid) FROM "my app"."Out""box"`)
		want := [][]byte{[]byte(payloads[0]), []byte(payloads[0]), []byte(payloads[1]), nil}
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
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`)
	w, err := outbox.NewWriter(outbox.Table{
		Name:        pgx.Identifier{"outboxevent"},
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

func TestNewWriterRefuses(t *testing.T) {
	for want, table := range map[string]outbox.Table{
		"outbox: Table.Name: want table or schema, table":                         {Name: pgx.Identifier{"a", "b", "c"}},
		`outbox: Table.PayloadType: "xml" is not one of jsonb, json, text, bytea`: {PayloadType: "xml"},
		`outbox: Table.Columns: column "type" is named twice`:                     {Columns: outbox.Columns{AggregateType: "type"}},
		`outbox: Table.Columns: column "headers" is named twice`:                  {Columns: outbox.Columns{ID: "headers"}},
	} {
		if _, err := outbox.NewWriter(table); err == nil || err.Error() != want {
			t.Errorf("NewWriter(%+v) = %v, want %s", table, err, want)
		}
	}
}
