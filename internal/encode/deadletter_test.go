package encode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// printed returns the content of a record without the time at which it became a dead letter.
func printed(rec *sink.Record) []string {
	lines := []string{"topic " + rec.Topic, "key " + show(rec.Key), "value " + show(rec.Value)}
	for _, h := range rec.Headers {
		if h.Key != DeadLetterAt {
			lines = append(lines, h.Key+" "+show(h.Value))
		}
	}
	return lines
}

func show(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}

// The dead letter of a row contains the bytes of every column. NULLs are nulls, and a bytea payload is decoded if
// possible.
func TestDeadRow(t *testing.T) {
	for name, tc := range map[string]struct {
		payload decoder.Column
		value   string
		want    string
	}{
		"json":         {decoder.Column{Name: "payload", TypeOID: oidJSONB}, `{"n": 1.10}`, `{"n": 1.10}`},
		"bytea":        {decoder.Column{Name: "payload", TypeOID: oidBytea}, `\x4142`, "AB"},
		"broken bytea": {decoder.Column{Name: "payload", TypeOID: oidBytea}, `\x414`, `\x414`},
		"null":         {decoder.Column{Name: "payload", TypeOID: oidJSONB}, null, "null"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(defaultConfig(nil))
			if err != nil {
				t.Fatal(err)
			}
			rel := outboxTable()
			rel.Columns[5] = tc.payload
			ins := row(rel, map[string]string{"aggregatetype": "not legal!", "payload": tc.value, "headers": null})
			var rec sink.Record
			refused, ok := errors.AsType[*RowError](r.Route(tx, 3, ins, &rec))
			if !ok {
				t.Fatal("the row is not refused")
			}
			dead := r.DeadRow("dead", Origin{Slot: "s", Tx: tx, Index: 3}, ins, refused)
			for i := range ins.Row {
				for j := range ins.Row[i].Data {
					ins.Row[i].Data[j] = 'x' // the decoder reuses its memory
				}
			}
			want := []string{
				"topic dead", "key order-7", "value " + tc.want,
				DeadLetterReason + " " + refused.Error(), DeadLetterSlot + " s", DeadLetterLSN + " 16/B374D848", DeadLetterIndex + " 3",
				DeadLetterTable + " public.outbox",
				"dead_letter_column_id 5f0c7a7e-0000-7000-8000-000000000001", "dead_letter_column_position 1",
				"dead_letter_column_aggregatetype not legal!", "dead_letter_column_aggregateid order-7", "dead_letter_column_type OrderPlaced",
				"dead_letter_column_headers null", "dead_letter_column_tenant null", "dead_letter_column_shard null", "dead_letter_column_blob null",
			}
			if diff := cmp.Diff(want, printed(dead)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if dead.Partition != sink.AnyPartition || dead.Timestamp != tx.Timestamp {
				t.Errorf("partition %d, timestamp %v", dead.Partition, dead.Timestamp)
			}
		})
	}
}

// The dead letter of a record contains the record's headers first, and then its intended topic.
func TestDeadRecord(t *testing.T) {
	rec := &sink.Record{
		Seq: 7, Topic: "outbox.event.order", Partition: 2, Key: []byte("k"), Value: []byte("v"),
		Headers: []sink.Header{{Key: IDHeader, Value: []byte("1")}, {Key: TypeHeader}},
	}
	dead := DeadRecord("dead", Origin{Slot: "s", Tx: tx, Index: 0}, rec, "too large")
	want := []string{
		"topic dead", "key k", "value v", "id 1", "eventType null",
		DeadLetterReason + " too large", DeadLetterTopic + " outbox.event.order", DeadLetterPartition + " 2",
		DeadLetterSlot + " s", DeadLetterLSN + " 16/B374D848", DeadLetterIndex + " 0",
	}
	if diff := cmp.Diff(want, printed(dead)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if dead.Seq != 7 || dead.Partition != sink.AnyPartition || rec.Topic != "outbox.event.order" || len(rec.Headers) != 2 {
		t.Errorf("dead %+v, record %+v", dead, rec)
	}
	if at := dead.Headers[len(dead.Headers)-1]; at.Key != DeadLetterAt || !strings.HasSuffix(string(at.Value), "Z") {
		t.Errorf("%s: %s", at.Key, at.Value)
	}
}

// A truncated dead letter names its row, and says what is missing. It fits into any topic.
func TestTruncateDeadLetter(t *testing.T) {
	large := strings.Repeat("ä", 500_000)
	rel := outboxTable()
	r, err := New(defaultConfig(func(c *Config) { c.Topic = "${route}" }))
	if err != nil {
		t.Fatal(err)
	}
	rowOf := row(rel, map[string]string{"aggregatetype": large, "payload": `"` + large + `"`, "headers": `{"a": "` + large + `"}`, "aggregateid": large})
	var refused *RowError
	if !errors.As(r.Route(tx, 3, rowOf, new(sink.Record)), &refused) {
		t.Fatal("the row is not refused")
	}
	many := &sink.Record{Topic: "orders", Partition: 2, Key: []byte("k"), Value: []byte(large), Headers: []sink.Header{header("id", "1")}}
	for range 50_000 {
		many.Headers = append(many.Headers, header(large[:200], "x"))
	}
	o := Origin{Slot: "s", Tx: tx, Index: 3}
	message := r.DeadMessage("dead", o, &decoder.LogicalMessage{Prefix: large, Content: []byte(large)}, &RowError{table: messageTable + large, reason: "is not JSON"})
	for name, tc := range map[string]struct {
		deadLetter *sink.Record
		id         string
		says       string
	}{
		"row":     {r.DeadRow("dead", o, rowOf, refused), "5f0c7a7e-0000-7000-8000-000000000001", "value: 1000002 bytes"},
		"record":  {DeadRecord("dead", o, many, large), "1", "and 49993 more"},
		"message": {message, "", "value: 1000000 bytes"},
	} {
		short := TruncateDeadLetter(tc.deadLetter, ColumnNames{"id"}, true)
		size := len(short.Key) + len(short.Value)
		for _, h := range short.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if size > 5000 {
			t.Errorf("%s: %d bytes", name, size)
		}
		l, ok := ParseDeadLetter(short)
		if !ok {
			t.Fatalf("%s: not recognized as a dead letter: %v", name, short.Headers)
		}
		id := ""
		for _, h := range append(l.Record.Headers, l.Columns...) {
			if h.Key == "id" {
				id = string(h.Value)
			}
		}
		if id != tc.id || !strings.Contains(l.Truncated, tc.says) || l.LSN != tx.CommitLSN || l.Index != 3 || l.Slot != "s" || short.Value != nil {
			t.Errorf("%s: id %q, dead letter %+v", name, id, l)
		}
		if again := TruncateDeadLetter(short, ColumnNames{"id"}, false); again != nil {
			t.Errorf("%s: truncated twice", name)
		}
	}
}

// Of a dead letter that is rejected because of a header, the key and the value remain.
func TestTruncateDeadLetterWithABadHeader(t *testing.T) {
	rec := &sink.Record{Topic: "orders", Partition: 2, Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{header("id", "1"), header("outbox_key", "x")}}
	short := TruncateDeadLetter(DeadRecord("dead", Origin{Slot: "s", Tx: tx}, rec, "it has a bad header"), ColumnNames{"id"}, false)
	l, ok := ParseDeadLetter(short)
	want := []sink.Header{header("id", "1")}
	if !ok || string(short.Key) != "k" || string(short.Value) != "v" || l.Truncated != "header outbox_key: 1 bytes" || !cmp.Equal(l.Record.Headers, want) {
		t.Errorf("%+v", l)
	}
	if again := TruncateDeadLetter(short, ColumnNames{"id"}, false); again != nil {
		t.Errorf("without headers twice: %+v", again)
	}
	l, ok = ParseDeadLetter(TruncateDeadLetter(short, ColumnNames{"id"}, true))
	if !ok || l.Record.Value != nil || l.Truncated != "value: 1 bytes, header outbox_key: 1 bytes" {
		t.Errorf("then too large: %+v", l)
	}
}
