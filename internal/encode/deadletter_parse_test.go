package encode

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// stored returns a record as a consumer reads it. If restamped is set, it has the header that the sink adds when
// the topic rejects the timestamp.
func stored(rec *sink.Record, restamped bool) *sink.Record {
	if restamped {
		rec.Headers = append(rec.Headers, header(sink.TimestampHeader, rec.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z07:00")))
		rec.Timestamp = time.Now()
	}
	rec.Topic, rec.Partition = "dead", 0
	return rec
}

// ParseDeadLetter returns the original record, whether its timestamp was replaced or not.
func TestParseDeadRecord(t *testing.T) {
	for name, restamped := range map[string]bool{"as it is": false, "restamped": true} {
		t.Run(name, func(t *testing.T) {
			want := sink.Record{
				Topic: "orders", Partition: 2, Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(1_700_000_000_123).UTC(),
				Headers: []sink.Header{header("id", "1"), header("reason", "mine"), {Key: TypeHeader}},
			}
			rec := want
			began := time.Now().Truncate(time.Millisecond)
			dead := stored(DeadRecord("dead", Origin{Slot: "s", Tx: tx, Index: 3}, &rec, "too large"), restamped)
			l, ok := ParseDeadLetter(dead)
			if !ok {
				t.Fatal("not recognized as a dead letter")
			}
			if diff := cmp.Diff(want, l.Record); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if l.Reason != "too large" || l.Slot != "s" || l.LSN != tx.CommitLSN || l.Index != 3 || l.At.Before(began) || l.At.After(time.Now()) || l.Table != "" {
				t.Errorf("dead letter %+v", l)
			}
		})
	}
}

// A record with more dead-letter headers than the relay writes is not a dead letter: it may be a row that was sent
// to the topic, or a dead letter of an earlier version whose row set such headers.
func TestParseDeadLetterRejectsForgedHeaders(t *testing.T) {
	genuine := func() []sink.Header {
		return DeadRecord("dead", Origin{Slot: "s", Tx: tx}, &sink.Record{Topic: "orders", Headers: []sink.Header{header("id", "1")}}, "too large").Headers
	}
	if _, ok := ParseDeadLetter(&sink.Record{Headers: genuine()}); !ok {
		t.Fatal("not recognized as a dead letter")
	}
	for name, headers := range map[string][]sink.Header{
		"reason only":      {header(DeadLetterReason, "nothing else")},
		"forged before":    append([]sink.Header{header(DeadLetterTopic, "mine")}, genuine()...),
		"reason before":    append([]sink.Header{header(DeadLetterReason, "mine")}, genuine()...),
		"topic twice":      append(genuine(), header(DeadLetterTopic, "mine")),
		"column twice":     append(genuine(), header(DeadLetterColumn+"a", "1"), header(DeadLetterColumn+"a", "2")),
		"record and a row": append(genuine(), header(DeadLetterTable, "public.outbox")),
	} {
		if l, ok := ParseDeadLetter(&sink.Record{Headers: headers}); ok {
			t.Errorf("%s: recognized as a dead letter: %+v", name, l)
		}
	}
}

// JetStream does not keep the order of headers: a reader sorts them by name.
func TestParseDeadLetterInAnyOrder(t *testing.T) {
	rec := DeadRecord("dead", Origin{Slot: "s", Tx: tx}, &sink.Record{
		Topic: "orders", Headers: []sink.Header{header("created", "now"), header("id", "1")},
	}, "too large")
	slices.SortFunc(rec.Headers, func(a, b sink.Header) int { return strings.Compare(a.Key, b.Key) })
	l, ok := ParseDeadLetter(rec)
	if !ok {
		t.Fatal("not recognized as a dead letter")
	}
	if diff := cmp.Diff([]sink.Header{header("created", "now"), header("id", "1")}, l.Record.Headers); diff != "" || l.Reason != "too large" || l.Record.Topic != "orders" {
		t.Errorf("(-want +got):\n%s\n%+v", diff, l)
	}
}

// When the cause is fixed, Revive returns the record of a rejected row. Before that, it returns the same error as
// before.
func TestRevive(t *testing.T) {
	blob := func(rel *decoder.Relation) { rel.Columns[5] = decoder.Column{Name: "payload", TypeOID: oidBytea} }
	for name, tc := range map[string]struct {
		table  func(*decoder.Relation) // of the row; nil: the default table
		now    func(*decoder.Relation) // changes of the table since then
		values map[string]string
		refuse bool // even with the correct configuration
	}{
		"a row":                {},
		"NULL":                 {values: map[string]string{"payload": null, "headers": null}},
		"bytea":                {table: blob, values: map[string]string{"payload": `\x00ff41`}},
		"a column was added":   {now: func(rel *decoder.Relation) { rel.Columns = append(rel.Columns, decoder.Column{Name: "new"}) }},
		"a column was dropped": {now: func(rel *decoder.Relation) { rel.Columns = rel.Columns[:7] }},
		"the key was dropped":  {now: func(rel *decoder.Relation) { rel.Columns = append(rel.Columns[:3:3], rel.Columns[4:]...) }, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			was, err := New(defaultConfig(func(cfg *Config) { cfg.Topic = "no topic: ${key}" }))
			if err != nil {
				t.Fatal(err)
			}
			rel := outboxTable()
			if tc.table != nil {
				tc.table(rel)
			}
			ins := row(rel, tc.values)
			commit := tx
			commit.Timestamp = time.UnixMilli(1_700_000_000_123)
			var rec sink.Record
			refused, ok := errors.AsType[*RowError](was.Route(commit, 3, ins, &rec))
			if !ok {
				t.Fatal("the row is not refused")
			}
			l, ok := ParseDeadLetter(stored(was.DeadRow("dead", Origin{Slot: "s", Tx: commit, Index: 3}, ins, refused), false))
			if !ok || !l.IsRow() {
				t.Fatalf("dead letter %+v", l)
			}

			table := outboxTable()
			if tc.table != nil {
				tc.table(table)
			}
			if tc.now != nil {
				tc.now(table)
			}
			if err := was.Revive(l, table, &rec); !tc.refuse && (err == nil || err.Error() != refused.Error()) {
				t.Errorf("as it was: %v, want %v", err, refused)
			}
			now, err := New(defaultConfig(nil))
			if err != nil {
				t.Fatal(err)
			}
			err = now.Revive(l, table, &rec)
			if tc.refuse {
				if _, ok := errors.AsType[*ColumnError](err); !ok {
					t.Errorf("Revive: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			meant, err := New(defaultConfig(nil))
			if err != nil {
				t.Fatal(err)
			}
			var want sink.Record
			if err := meant.Route(commit, 3, ins, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, rec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReviveMessage(t *testing.T) {
	r, err := New(defaultConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	m := &decoder.LogicalMessage{Prefix: "a b", Content: []byte(`{"id": "1"}`)}
	var rec sink.Record
	refused, ok := errors.AsType[*RowError](r.RouteMessage(tx, 0, m, &rec))
	if !ok {
		t.Fatal("the message is not refused")
	}
	l, ok := ParseDeadLetter(r.DeadMessage("dead", Origin{Slot: "s", Tx: tx}, m, refused))
	if !ok || l.IsRow() {
		t.Fatalf("dead letter %+v", l)
	}
	if err := r.Revive(l, nil, &rec); err == nil || err.Error() != refused.Error() {
		t.Errorf("as it was: %v, want %v", err, refused)
	}
	now, err := New(Config{Names: kafka.Names{}, Columns: Columns{ID: ColumnNames{"id"}, Key: ColumnNames{"id"}, Route: ColumnNames{"id"}, Payload: ColumnNames{"id"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := now.Revive(l, nil, &rec); err != nil || rec.Topic != "outbox.event.1" || string(rec.Value) != "1" {
		t.Errorf("record %+v: %v", rec, err)
	}
}
