package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtest"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

func event(change func(*outbox.Event)) outbox.Event {
	e := outbox.Event{AggregateType: "order", AggregateID: "1", Type: "OrderPaid", Payload: []byte(`{}`)}
	if change != nil {
		change(&e)
	}
	return e
}

func TestWriteChecksEventsBeforeItWrites(t *testing.T) {
	const topicReason = "is not 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'"
	for name, test := range map[string]struct {
		table  outbox.Table
		change func(*outbox.Event)
		field  string // empty: nothing is wrong
		reason string
	}{
		"complete":                 {},
		"no aggregate type":        {change: func(e *outbox.Event) { e.AggregateType = "" }, field: "AggregateType", reason: topicReason},
		"aggregate type as path":   {change: func(e *outbox.Event) { e.AggregateType = "a/b" }, field: "AggregateType", reason: topicReason},
		"aggregate type too long":  {change: func(e *outbox.Event) { e.AggregateType = strings.Repeat("x", 250) }, field: "AggregateType", reason: topicReason},
		"aggregate type with dots": {change: func(e *outbox.Event) { e.AggregateType = "Billing.invoice_v2-eu" }},
		"no aggregate id":          {change: func(e *outbox.Event) { e.AggregateID = "" }, field: "AggregateID", reason: "is empty"},
		"NUL in aggregate id":      {change: func(e *outbox.Event) { e.AggregateID = "a\x00" }, field: "AggregateID", reason: "contains a NUL byte"},
		"no type":                  {change: func(e *outbox.Event) { e.Type = "" }, field: "Type", reason: "is empty"},
		"Latin-1 in type":          {change: func(e *outbox.Event) { e.Type = "caf\xe9" }, field: "Type", reason: "is not UTF-8"},
		"header":                   {change: func(e *outbox.Event) { e.Headers = map[string]string{"a": "1 <é>", "b": ""} }},
		"NUL in header": {
			change: func(e *outbox.Event) { e.Headers = map[string]string{"a": "\x00"} },
			field:  "Headers", reason: "has a member that contains a NUL byte",
		},
		"header name is not UTF-8": {
			change: func(e *outbox.Event) { e.Headers = map[string]string{"\xff": ""} },
			field:  "Headers", reason: "has a member that is not UTF-8",
		},
		"header without a column": {
			table:  outbox.Table{Columns: outbox.Columns{Headers: outbox.NoColumn}},
			change: func(e *outbox.Event) { e.Headers = map[string]string{"a": "1"} },
			field:  "Headers", reason: "has no column in this table",
		},
		"tombstone":         {change: func(e *outbox.Event) { e.Payload = nil }},
		"empty payload":     {change: func(e *outbox.Event) { e.Payload = []byte{} }, field: "Payload", reason: "is not valid JSON"},
		"truncated payload": {change: func(e *outbox.Event) { e.Payload = []byte(`{"a":`) }, field: "Payload", reason: "is not valid JSON"},
		"Latin-1 in JSON":   {change: func(e *outbox.Event) { e.Payload = []byte("\"\xe9\"") }, field: "Payload", reason: "is not UTF-8"},
		"NUL escape": {
			change: func(e *outbox.Event) { e.Payload = []byte(`"\u0000"`) },
			field:  "Payload", reason: `contains the escape \u0000, which jsonb refuses`,
		},
		"NUL escape in json": {
			table:  outbox.Table{PayloadType: outbox.JSON},
			change: func(e *outbox.Event) { e.Payload = []byte(`"\u0000"`) },
		},
		"text is not JSON": {
			table:  outbox.Table{PayloadType: outbox.Text},
			change: func(e *outbox.Event) { e.Payload = []byte(`{`) },
		},
		"NUL in text": {
			table:  outbox.Table{PayloadType: outbox.Text},
			change: func(e *outbox.Event) { e.Payload = []byte{0} },
			field:  "Payload", reason: "contains a NUL byte",
		},
		"any bytes": {
			table:  outbox.Table{PayloadType: outbox.Bytea},
			change: func(e *outbox.Event) { e.Payload = []byte{0, 0xff} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := outbox.NewWriter(test.table)
			if err != nil {
				t.Fatal(err)
			}
			tx := &countingTx{}
			err = w.Write(t.Context(), tx, event(nil), event(test.change))
			if test.field == "" {
				if err != nil || tx.statements != 1 {
					t.Errorf("Write = %v with %d statements, want success with 1", err, tx.statements)
				}
				return
			}
			var got *outbox.EventError
			if !errors.As(err, &got) {
				t.Fatalf("Write = %v, want an EventError", err)
			}
			if diff := cmp.Diff(&outbox.EventError{Index: 1, Field: test.field, Reason: test.reason}, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if tx.statements != 0 {
				t.Errorf("%d statements were sent", tx.statements)
			}
		})
	}
}

func TestEventErrorNamesEventAndField(t *testing.T) {
	err := outbox.Write(t.Context(), &countingTx{}, event(nil), event(nil), event(func(e *outbox.Event) { e.Type = "" }))
	if got, want := err.Error(), "outbox: event 2: Type is empty"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What we say jsonb refuses must be what jsonb refuses.
func TestPayloadCheckAgreesWithTheServer(t *testing.T) {
	conn := database(t, pgtest.Server(t)).Conn(t)
	for _, payload := range []string{
		`null`, `""`, `"\\u0000"`, `"\\\u0000"`, `"a\u0000b"`, `"\u00000"`, `"\u0001"`, `"\u000a\n\"\\\/"`, `{"\u0000":1}`,
		`"\uD83D\uDE00"`, `"\ud83d\ude00x"`, `"\uD83D"`, `"\uDE00"`, `"\uDE00\uD83D"`, `"\uD83Dx\uDE00"`, `"\uD83D\n\uDE00"`,
		`"\uD83D\uD83D\uDE00"`, `"\uD83D\uDE00\uDE00"`, `["\uD83D","\uDE00"]`, `"\uD83D\\uDE00"`, `"\uDBFF\uDFFF"`, `"\uD7FF\uE000"`,
		`"😀"`, "\"\u007f\"", `{"a":1,"a":2}`, ` [1e400, -0.0] `, `1.5E+3`, `01`, `"`, "\"\t\"", `nul`, `{} {}`,
	} {
		var accepted bool
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT $1::text::jsonb`, payload)
			accepted = err == nil
			return err
		}); err != nil && accepted {
			t.Fatal(err)
		}
		err := outbox.Write(t.Context(), &countingTx{}, event(func(e *outbox.Event) { e.Payload = []byte(payload) }))
		if (err == nil) != accepted {
			t.Errorf("payload %s: Write = %v, but the server accepts it: %v", payload, err, accepted)
		}
	}
}
