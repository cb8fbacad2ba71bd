package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// everyControl is each control character that a text can have, which NUL is not.
func everyControl() string {
	var b strings.Builder
	for c := rune(1); c < 0x20; c++ {
		b.WriteRune(c)
	}
	return b.String() + "\x7f\u0080\u009f"
}

// Texts that somebody on the way might want to tidy up.
var awkwardTexts = []string{
	"", " ", "\t \n", everyControl(), "\ufeffmark first", "e\u0301 is not \u00e9", "\u2028\u2029\u202e", "\U0001F600 \U0010FFFF",
	`\x41`, `\\`, `"quoted"`, `'`, `{}`, "null", "a,b;c|d", strings.Repeat("ä", 5000),
}

// JSON as it may be written, and what is often lost of it.
var awkwardJSON = []string{
	`null`, `""`, `0`, `{}`, `[]`, ` { "space" :   1 , "b":[ 1,2 ] } `, "{\n\t\"a\": 1\r\n}",
	`{"a": 1, "a": 2, "b": 3, "a": 4}`, `{"b": 1, "aa": 2, "a": 3}`,
	`{"n": 12345678901234567890, "big": 123456789012345678901234567890.12345678901234567890}`,
	`[1e400, 1E-400, 1.0, 1.00, -0, -0.0, 1e2, 100, 0.1e1]`,
	`"\u0000"`, `{"\u0000": "a\u0000b"}`, `"\ud800"`, `["\udc00\ud800", "\ud83d\ude00"]`,
	`"\u00e9 é \/ / \u002f \b\f\n\r\t \" \\"`, `"` + strings.Repeat("é", 5000) + `"`, `{"": {"": [[[[]]]]}}`,
}

// A valueEvent is what is compared of a row and its record.
type valueEvent struct{ id, key, eventType, value, header, named, number string }

// The value, the key and the headers of a record are the columns' own bytes, as the server
// prints them, whatever is in them and whatever type they have: but for jsonb, which is
// normalised when it is written, what the writer wrote.
func TestValuesAreNotAltered(t *testing.T) {
	t.Parallel()
	columns := map[string][]string{
		"json":           awkwardJSON,
		"jsonb":          awkwardJSON,
		"text":           slices.Concat(awkwardTexts, awkwardJSON),
		"varchar(10000)": awkwardTexts,
		"note":           awkwardTexts,              // a domain
		"blob":           {"", "\x00\xff", "\\x41"}, // a domain over bytea
		"bytea":          {"", "\x00", "\xff\x00\xfe\xef", strings.Repeat("\xc3\x28", 3000)},
	}
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		for typ, values := range columns {
			t.Run(typ, func(t *testing.T) {
				t.Parallel()
				w := watch(t, srv, kafkatest.Broker(t), `CREATE DOMAIN note AS text CHECK (length(VALUE) < 100000);
					CREATE DOMAIN blob AS bytea;
					CREATE TABLE outbox (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, aggregatetype text NOT NULL,
						aggregateid text, type text, payload `+typ+`, headers json)`).run(t)
				want := w.insertValues(t, typ, values)
				var got []valueEvent
				for _, rec := range w.kafka.ReadN(t, len(want), w.topic) {
					got = append(got, valueEvent{
						id: rig.Header(rec, "id"), key: string(rec.Key), eventType: rig.Header(rec, "eventType"), value: string(rec.Value),
						header: rig.Header(rec, "h"), named: rig.Header(rec, string(rec.Key)), number: rig.Header(rec, "n"),
					})
				}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(valueEvent{})); diff != "" {
					t.Errorf("(-written +delivered):\n%s", diff)
				}
				w.stop()
				w.fails(t, exit.OK)
			})
		}
	})
}

// insertValues inserts a row for each value that the type takes and returns what is to come
// of them.
func (w *watched) insertValues(t *testing.T, typ string, values []string) (want []valueEvent) {
	t.Helper()
	const number = "12345678901234567890"
	from, toBytes := "$3::text", "convert_to(payload::text, 'UTF8')"
	arg := func(value string) any { return value }
	if typ == "bytea" || typ == "blob" {
		from, toBytes = "$3", "payload"
		arg = func(value string) any { return []byte(value) }
	}
	conn, keys := w.db.Conn(t), awkwardTexts
	for i, value := range values {
		e := valueEvent{key: keys[i%len(keys)], named: "v", number: number}
		e.eventType, e.header = e.key, e.key
		var printed []byte
		err := conn.QueryRow(t.Context(), `INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers)
			VALUES ($1, $2, $2, `+from+`::`+typ+`, json_build_object('h', $2::text, $2::text, 'v', 'n', `+number+`))
			RETURNING id::text, `+toBytes, w.topic, e.key, arg(value)).Scan(&e.id, &printed)
		switch {
		case err != nil && typ == "jsonb": // it refuses some of what json takes
			continue
		case err != nil:
			t.Fatalf("%q: %v", value, err)
		case typ != "jsonb" && string(printed) != value:
			t.Fatalf("%q is kept as %q", value, printed)
		}
		e.value = string(printed)
		want = append(want, e)
	}
	if len(want) < len(values)/2 {
		t.Fatalf("%d of %d values are accepted", len(want), len(values))
	}
	return want
}

// A database whose text may be in any encoding is refused at the start, before anything is
// made in it; that of one with a known encoding is converted.
func TestEncodings(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		unknown := watchDatabase(t, pgtest.EncodedDatabase(t, srv, "SQL_ASCII"), kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns)
		unknown.start(t)
		unknown.fails(t, exit.Source, "SQL_ASCII", unknown.db.Name)
		if made := pgtest.QueryRow[int](t, unknown.db, `SELECT (SELECT count(*) FROM pg_publication)::int + (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)::int`, unknown.db.Name); made > 0 {
			t.Error("publication or slot were made")
		}

		known := watchDatabase(t, pgtest.EncodedDatabase(t, srv, "LATIN1"), kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns).run(t)
		writer := &pgtest.DB{DSN: known.db.DSN + "&client_encoding=UTF8"}
		writer.Exec(t, `INSERT INTO outbox VALUES (1, $1, 'Größe', 'Ænderung', '{"ä": "é"}')`, known.topic)
		rec := known.kafka.ReadN(t, 1, known.topic)[0]
		if string(rec.Key) != "Größe" || rig.Header(rec, "eventType") != "Ænderung" || string(rec.Value) != `{"ä": "é"}` {
			t.Errorf("key %s, type %s, value %s", rec.Key, rig.Header(rec, "eventType"), rec.Value)
		}
	})
}
