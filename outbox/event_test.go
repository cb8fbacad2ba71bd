package outbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func event(change func(*outbox.Event)) outbox.Event {
	e := outbox.Event{AggregateType: "order", AggregateID: "1", Type: "OrderPaid", Payload: []byte(`{}`)}
	if change != nil {
		change(&e)
	}
	return e
}

func TestWriteChecksEventsBeforeItWrites(t *testing.T) {
	const topicReason = "must be 1 to 236 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
	const noHeaders = "cannot be written: this table has no column for them (Config.Columns.Headers); Config.Trace, SchemaVersion, ContentType and CloudEvent need it too"
	for name, test := range map[string]struct {
		cfg    outbox.Config
		change func(*outbox.Event)
		field  string // empty: no problem
		reason string
	}{
		"complete":                 {},
		"no aggregate type":        {change: func(e *outbox.Event) { e.AggregateType = "" }, field: "AggregateType", reason: topicReason},
		"aggregate type as path":   {change: func(e *outbox.Event) { e.AggregateType = "a/b" }, field: "AggregateType", reason: topicReason},
		"aggregate type too long":  {change: func(e *outbox.Event) { e.AggregateType = strings.Repeat("x", 237) }, field: "AggregateType", reason: topicReason},
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
			cfg:    outbox.Config{Columns: outbox.Columns{Headers: outbox.NoColumn}},
			change: func(e *outbox.Event) { e.Headers = map[string]string{"a": "1"} },
			field:  "Headers", reason: noHeaders,
		},
		"aggregate type of the longest topic": {change: func(e *outbox.Event) { e.AggregateType = strings.Repeat("x", 236) }},
		"header without a name": {
			change: func(e *outbox.Event) { e.Headers = map[string]string{"": "x"} },
			field:  "Headers", reason: "has a member without a name",
		},
		"header of the relay": {
			change: func(e *outbox.Event) { e.Headers = map[string]string{"eventType": "x"} },
			field:  "Headers", reason: "has a member eventType, which the relay sets",
		},
		"content type twice": {
			change: func(e *outbox.Event) {
				e.Headers, e.ContentType = map[string]string{"content-type": "text/plain"}, "text/plain"
			},
			field: "Headers", reason: "has a member content-type, which another field sets",
		},
		"content type":           {change: func(e *outbox.Event) { e.ContentType = "application/json; charset=utf-8" }},
		"content type of a word": {change: func(e *outbox.Event) { e.ContentType = "json" }, field: "ContentType", reason: "is not a media type"},
		"content type without a column": {
			cfg:    outbox.Config{Columns: outbox.Columns{Headers: outbox.NoColumn}},
			change: func(e *outbox.Event) { e.ContentType = "text/plain" },
			field:  "Headers", reason: noHeaders,
		},
		"schema version":          {change: func(e *outbox.Event) { e.SchemaVersion = 7 }},
		"schema version below 1":  {change: func(e *outbox.Event) { e.SchemaVersion = -1 }, field: "SchemaVersion", reason: "must be from 1 to 2147483647"},
		"schema version too high": {change: func(e *outbox.Event) { e.SchemaVersion = 1 << 31 }, field: "SchemaVersion", reason: "must be from 1 to 2147483647"},
		"partition without a column": {
			change: func(e *outbox.Event) { e.Partition = new(int32(0)) },
			field:  "Partition", reason: "has no column in this table (Config.Columns.Partition)",
		},
		"partition below 0": {
			cfg:    outbox.Config{Columns: outbox.Columns{Partition: "partition"}},
			change: func(e *outbox.Event) { e.Partition = new(int32(-1)) },
			field:  "Partition", reason: "is negative",
		},
		"tombstone":           {change: func(e *outbox.Event) { e.Payload, e.Tombstone = nil, true }},
		"tombstone of no use": {change: func(e *outbox.Event) { e.Tombstone = true }, field: "Payload", reason: "is not nil, and Tombstone is set"},
		"no payload":          {change: func(e *outbox.Event) { e.Payload = nil }, field: "Payload", reason: "is nil, and Tombstone is not set"},
		"no bytes":            {change: func(e *outbox.Event) { e.Payload = []byte(nil) }, field: "Payload", reason: "is nil, and Tombstone is not set"},
		"no raw message":      {change: func(e *outbox.Event) { e.Payload = json.RawMessage(nil) }, field: "Payload", reason: "is nil, and Tombstone is not set"},
		"value":               {change: func(e *outbox.Event) { e.Payload = struct{ Cents int }{4200} }},
		"channel": {
			change: func(e *outbox.Event) { e.Payload = struct{ C chan int }{} },
			field:  "Payload", reason: "of type struct { C chan int } cannot be marshaled: json: unsupported type: chan int",
		},
		"string of JSON": {change: func(e *outbox.Event) { e.Payload = `{"cents": 4200}` }},
		"string of no JSON": {
			change: func(e *outbox.Event) { e.Payload = "paid" },
			field:  "Payload", reason: "is a string that is not valid JSON; if you want a JSON string, marshal it first",
		},
		"string in a text column": {cfg: outbox.Config{PayloadType: outbox.Text}, change: func(e *outbox.Event) { e.Payload = "paid" }},
		"number that is none":     {change: func(e *outbox.Event) { e.Payload = math.NaN() }, field: "Payload", reason: "of type float64 cannot be marshaled: json: unsupported value: NaN"},
		"number beyond numeric": {
			change: func(e *outbox.Event) { e.Payload = []byte(`[1e131073]`) },
			field:  "Payload", reason: "contains a number that is too large or too precise for jsonb",
		},
		"payload too large": {
			cfg:    outbox.Config{MaxBytes: 1000},
			change: func(e *outbox.Event) { e.Payload = []byte(`"` + strings.Repeat("x", 1000) + `"`) },
			field:  "Payload", reason: "is too large: the record would have about 1176 bytes, and Config.MaxBytes is 1000",
		},
		"headers too large": {
			cfg:    outbox.Config{MaxBytes: 1000},
			change: func(e *outbox.Event) { e.Headers = map[string]string{"a": strings.Repeat("x", 1000)} },
			field:  "Headers", reason: "is too large: the record would have about 1187 bytes, and Config.MaxBytes is 1000",
		},
		"payload larger as jsonb prints it": {
			cfg:    outbox.Config{MaxBytes: 1000},
			change: func(e *outbox.Event) { e.Payload = []byte("[" + strings.Repeat("1,", 350) + "1]") },
			field:  "Payload", reason: "is too large: the record would have about 1227 bytes, and Config.MaxBytes is 1000",
		},
		"empty payload":     {change: func(e *outbox.Event) { e.Payload = []byte{} }, field: "Payload", reason: "is not valid JSON"},
		"truncated payload": {change: func(e *outbox.Event) { e.Payload = []byte(`{"a":`) }, field: "Payload", reason: "is not valid JSON"},
		"Latin-1 in JSON":   {change: func(e *outbox.Event) { e.Payload = []byte("\"\xe9\"") }, field: "Payload", reason: "is not UTF-8"},
		"NUL escape": {
			change: func(e *outbox.Event) { e.Payload = []byte(`"\u0000"`) },
			field:  "Payload", reason: `contains the escape \u0000, which jsonb rejects`,
		},
		"NUL escape in json": {
			cfg:    outbox.Config{PayloadType: outbox.JSON},
			change: func(e *outbox.Event) { e.Payload = []byte(`"\u0000"`) },
		},
		"text is not JSON": {
			cfg:    outbox.Config{PayloadType: outbox.Text},
			change: func(e *outbox.Event) { e.Payload = []byte(`{`) },
		},
		"NUL in text": {
			cfg:    outbox.Config{PayloadType: outbox.Text},
			change: func(e *outbox.Event) { e.Payload = []byte{0} },
			field:  "Payload", reason: "contains a NUL byte",
		},
		"any bytes": {
			cfg:    outbox.Config{PayloadType: outbox.Bytea},
			change: func(e *outbox.Event) { e.Payload = []byte{0, 0xff} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := outbox.NewWriter(test.cfg)
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
			if diff := cmp.Diff(&outbox.EventError{Index: 1, Field: test.field, Reason: test.reason}, got, cmpopts.IgnoreFields(outbox.EventError{}, "Err")); diff != "" {
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

// Write rejects exactly the JSON that jsonb rejects.
func TestPayloadCheckAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	for _, payload := range []string{
		`null`, `""`, `"\\u0000"`, `"\\\u0000"`, `"a\u0000b"`, `"\u00000"`, `"\u0001"`, `"\u000a\n\"\\\/"`, `{"\u0000":1}`,
		`"\uD83D\uDE00"`, `"\ud83d\ude00x"`, `"\uD83D"`, `"\uDE00"`, `"\uDE00\uD83D"`, `"\uD83Dx\uDE00"`, `"\uD83D\n\uDE00"`,
		`"\uD83D\uD83D\uDE00"`, `"\uD83D\uDE00\uDE00"`, `["\uD83D","\uDE00"]`, `"\uD83D\\uDE00"`, `"\uDBFF\uDFFF"`, `"\uD7FF\uE000"`,
		`"😀"`, "\"\u007f\"", `{"a":1,"a":2}`, ` [1e400, -0.0] `, `1.5E+3`, `01`, `"`, `1e131071`, `1e131072`, `12e131071`, `1e-16383`, `1e-16384`, `0.1e-16382`, `0.1e-16383`, `-5.25e-3`, `1e99999999999`, "\"\t\"", `nul`, `{} {}`,
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

// The computed size of a payload is its size in jsonb, or a little more.
func TestSizeOfJSONB(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t)).Conn(t)
	for payload, slack := range map[string]int{
		`{"a":1,"b":[true,null,"x,y:z"]}`: 2, " {\n\t\"a\" : [ 1 , 2 ] } ": 4, `[]`: 0, `"\"\\ ,:[1e5"`: 0, `"é☃"`: 0, `"\u00e9\/"`: 5,
		`[-1.50,0,1e3,2.5E-4,12345678901234567890,1.2e+1]`: 0, `{"a":1,"a":2}`: 8, `-0`: 1,
	} {
		w, err := outbox.NewWriter(outbox.Config{MaxBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		counted := func(p any) (size int) {
			t.Helper()
			problem, ok := errors.AsType[*outbox.EventError](w.Write(t.Context(), &countingTx{}, event(func(e *outbox.Event) { e.Payload = p })))
			if !ok {
				t.Fatalf("%s is not too large", p)
			}
			if _, err := fmt.Sscanf(problem.Reason, "is too large: the record would have about %d bytes", &size); err != nil {
				t.Fatalf("%s: %v", problem.Reason, err)
			}
			return size
		}
		var printed int
		if err := conn.QueryRow(t.Context(), `SELECT octet_length($1::text::jsonb::text)`, payload).Scan(&printed); err != nil {
			t.Fatal(err)
		}
		if got := counted([]byte(payload)) - counted([]byte(`[]`)) + len(`[]`); got < printed || got > printed+slack {
			t.Errorf("%s: computed %d bytes, printed %d", payload, got, printed)
		}
	}
}
