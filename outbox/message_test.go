package outbox_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// The messages match docs/record.md: they are transactional and in the order of the events. A transaction
// that rolls back sends none.
func TestWriteMessage(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		const slot = "message_test"
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
		db.Exec(t, `CREATE PUBLICATION nothing`)
		conn := db.Conn(t)
		id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
		one := outbox.Event{ID: id, AggregateType: "order", AggregateID: "it's \\ \"☃\"", Type: "A", Payload: []byte(" {\"b\":1, \"a\":1.0,\n\"a\":2} ")}
		others := []outbox.Event{
			{ID: id, AggregateType: "order", AggregateID: "2", Type: "B", Payload: []byte(`"text"`)},
			{ID: id, AggregateType: "order", AggregateID: "3", Type: "C", Payload: []byte(`null`), SchemaVersion: 2, Partition: new(int32(3))},
			{ID: id, AggregateType: "order", AggregateID: "4", Type: "D", Tombstone: true, Headers: map[string]string{"a": "<é>"}},
		}
		head := `{"id":"` + id.String() + `","kind":"order","aggregateid":`
		var want []string
		for _, form := range forms(true)[2:] {
			w := writer(t, outbox.Config{
				MessagePrefix: "app", Columns: outbox.Columns{AggregateType: "kind", Partition: "p", SchemaVersion: "v"},
			})
			for _, events := range [][]outbox.Event{{one}, others} {
				if err := form.write(t.Context(), w, conn, "", events...); err != nil {
					t.Fatalf("%s: %v", form.name, err)
				}
			}
			rolledBack := slices.Concat(others, []outbox.Event{{}})
			if err := form.write(t.Context(), w, conn, `SELECT pg_logical_emit_message(true, 'app', 'never')`, rolledBack...); err == nil {
				t.Errorf("%s of an empty event succeeded", form.name)
			}
			want = append(want,
				head+`"it's \\ \"☃\"","type":"A","payload":{"b":1, "a":1.0,`+"\n"+`"a":2}}`,
				head+`"2","type":"B","payload":"\"text\""}`,
				head+`"3","type":"C","payload":"null","p":3,"v":2}`,
				head+`"4","type":"D","payload":null,"headers":{"a":"\u003cé\u003e"}}`)
		}
		got := pgtest.QueryRow[[]string](t, db, `
			SELECT coalesce(array_agg(content), '{}') FROM (
				-- of a message: 'M', flags, LSN, prefix and 0, length, content
				SELECT convert_from(substr(data, 10 + 1 + length('app') + 1 + 4), 'UTF8') AS content
				FROM pg_logical_slot_get_binary_changes('`+slot+`', NULL, NULL, 'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true')
				WHERE get_byte(data, 0) = ascii('M') AND get_byte(data, 1) = 1 AND substr(data, 11, 3) = 'app'
			) AS message`)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

// A message is text, so a payload that is not text is an error.
func TestMessagesAreText(t *testing.T) {
	w := writer(t, outbox.Config{PayloadType: outbox.Bytea})
	tx := &countingTx{}
	err := w.WriteMessage(t.Context(), tx, event(func(e *outbox.Event) { e.Payload = []byte{0xff} }))
	if err == nil || err.Error() != "outbox: event 0: Payload is not UTF-8" || tx.statements != 0 {
		t.Errorf("WriteMessage = %v with %d statements", err, tx.statements)
	}
	if err := w.WriteMessage(t.Context(), tx, event(func(e *outbox.Event) { e.Payload = []byte("é") })); err != nil {
		t.Error(err)
	}
	if err := writer(t, outbox.Config{}).WriteMessage(t.Context(), tx, event(func(e *outbox.Event) { e.Payload = []byte(`"\u0000"`) })); err != nil {
		t.Errorf("a document that jsonb rejects: %v", err)
	}
}
