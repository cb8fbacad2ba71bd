package pump

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Each key that is parked is logged once, without the key, however many of its records follow.
func TestParkedKeysAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	set := parking.NewSet(10)
	d := NewDeadLetters(DeadLetterConfig{Topic: "dead", Slot: "s", Parked: set, Log: slog.New(slog.NewTextHandler(&out, nil))})
	record := func(key string) *sink.Record { return &sink.Record{Topic: "orders", Key: []byte(key)} }
	logs := func(want string) {
		t.Helper()
		out.Reset()
		d.logOnce(t.Context())
		_, got, _ := strings.Cut(out.String(), `msg="keys parked`)
		if !strings.Contains(got, want) || want == "" && got != "" || strings.Contains(got, "secret") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for i, key := range []string{"secret 1", "secret 2"} {
		o := encode.Origin{Tx: encode.Tx{CommitLSN: 7}, Index: i}
		if d.replaceRecord(o.Tx, i, record(key), &sink.RecordError{Topic: "orders", TooLarge: true, Size: 2, Limit: 1}) == nil {
			t.Fatal("the relay would stop")
		}
	}
	newest := set.List()[1]
	logs(`number=2 topic=orders newest="` + newest.Reason + `" fix="fix the cause, then outbox-cdc dead-letter release --id ` + newest.ShortID() + `"`)
	large := &sink.RecordError{Topic: "dead", TooLarge: true}
	d.idColumn = encode.ColumnNames{"id"}
	for id, fix := range map[string]string{
		"4f1c7a7e-0000-4000-8000-000000000001": `outbox-cdc replay --ids 4f1c7a7e-0000-4000-8000-000000000001 --dsn \"$OPERATOR_DSN\", then the later records: outbox-cdc dead-letter discard --id `,
		"'; rm -rf ~":                          `outbox-cdc replay --where '…' --dsn `,
	} {
		o := encode.Origin{Tx: encode.Tx{CommitLSN: 9}, Index: 5}
		bad := record(id)
		bad.Headers = []sink.Header{{Key: encode.IDHeader, Value: []byte(id)}}
		dead := d.replaceRecord(o.Tx, o.Index, bad, &sink.RecordError{Topic: "orders", TooLarge: true})
		if dead == nil || d.replaceRecord(o.Tx, o.Index, dead, large) == nil {
			t.Fatal("the relay would stop")
		}
		logs(`fix="let topic orders accept larger records, then send the row from its table: ` + fix)
	}
	if d.follow(record("secret 2"), encode.Origin{Tx: encode.Tx{CommitLSN: 8}}) == nil {
		t.Fatal("a record overtakes a parked one")
	}
	logs("")
	if out.Len() > 0 {
		t.Errorf("a busy parked key is logged: %s", &out)
	}
}

// A rejected dead letter has another error than a rejected record: another value of on_bad_record does not help.
func TestRejectedDeadLetter(t *testing.T) {
	d := NewDeadLetters(DeadLetterConfig{Topic: "dead"})
	for topic, want := range map[string]bool{"dead": true, "orders": false} {
		if err := d.explain(&sink.RecordError{Topic: topic}); errors.Is(err, ErrDeadLetter) != want {
			t.Errorf("topic %s: %v", topic, err)
		}
	}
}

// A dead letter that is rejected because of a header goes without headers. The relay stops only if that is rejected, too.
func TestDeadLetterWithABadHeader(t *testing.T) {
	var out bytes.Buffer
	d := NewDeadLetters(DeadLetterConfig{Topic: "dead", Slot: "s", IDColumn: encode.ColumnNames{"id"}, Log: slog.New(slog.NewTextHandler(&out, nil))})
	rec := &sink.Record{Topic: "orders", Value: []byte("v"), Headers: []sink.Header{{Key: "outbox_key", Value: []byte("x")}}}
	bad := &sink.RecordError{Topic: "orders", BadHeader: true, Reason: errors.New("a header is reserved")}
	dead := d.replaceRecord(encode.Tx{}, 0, rec, bad)
	if other := d.replaceRecord(encode.Tx{}, 0, dead, &sink.RecordError{Topic: "dead", Reason: errors.New("no route")}); other != nil {
		t.Errorf("for another reason: %+v", other)
	}
	short := d.replaceRecord(encode.Tx{}, 0, dead, bad)
	if short == nil || string(short.Value) != "v" || slices.ContainsFunc(short.Headers, func(h sink.Header) bool { return h.Key == "outbox_key" }) {
		t.Fatalf("%+v", short)
	}
	if again := d.replaceRecord(encode.Tx{}, 0, short, bad); again != nil {
		t.Errorf("again: %+v", again)
	}
	d.logOnce(t.Context())
	if !strings.Contains(out.String(), `msg="dead letters truncated, the topic rejects them as they were" number=1 topic=dead newest="record for topic orders, partition 0, 0 bytes: a header is reserved"`) {
		t.Errorf("logged: %s", &out)
	}
}
