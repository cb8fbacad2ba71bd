package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// A keepingTx records the arguments of the last statement.
type keepingTx struct {
	pgx.Tx
	args []any
}

func (tx *keepingTx) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	tx.args = args
	return pgconn.CommandTag{}, nil
}

// FuzzEvent checks that an event either causes an error or that the statement has all of its values: as
// one row, as one of many rows, and as a message.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"a":[1.50,"\u00e9"]}`), "order-7", "name", "value", uint8(0))
	f.Add([]byte(" \n\"\\ud83d\\ude00\" "), `{"\,NULL}`, "traceparent", "", uint8(1))
	f.Add([]byte("\x00\xff"), "\\", "", "\"", uint8(3))
	f.Add([]byte(`-1.5e-3`), "☃", "a", "<b>", uint8(2))
	types := []outbox.PayloadType{outbox.JSONB, outbox.JSON, outbox.Text, outbox.Bytea}
	f.Fuzz(func(t *testing.T, payload []byte, key, name, value string, kind uint8) {
		w := writer(t, outbox.Config{PayloadType: types[int(kind)%len(types)]})
		e := outbox.Event{AggregateType: "a", AggregateID: key, Type: "T", Payload: payload, Headers: map[string]string{name: value}}
		if payload == nil {
			return
		}
		var one, two, message keepingTx
		err := w.Write(t.Context(), &one, e)
		if again := w.Write(t.Context(), &two, e, e); (again == nil) != (err == nil) {
			t.Errorf("one event: %v, two: %v", err, again)
		}
		if problem, ok := errors.AsType[*outbox.EventError](err); err != nil && (!ok || one.args != nil || two.args != nil) {
			t.Errorf("error %v %v, but %v was sent", err, problem, one.args)
		}
		if err == nil {
			checkRow(t, e, one.args)
			for i, arg := range two.args {
				checkArray(t, one.args[i], arg, i == 0)
			}
		}
		if w.WriteMessage(t.Context(), &message, e) == nil {
			checkMessage(t, e, []byte(message.args[1].(string)))
		}
	})
}

func checkRow(t *testing.T, e outbox.Event, args []any) {
	t.Helper()
	var headers map[string]string
	if err := json.Unmarshal([]byte(args[5].(string)), &headers); err != nil {
		t.Fatal(err)
	}
	payload, ok := args[4].([]byte)
	if !ok {
		payload = []byte(args[4].(string))
	}
	if args[2] != e.AggregateID || !bytes.Equal(payload, e.Payload.([]byte)) || !cmp.Equal(headers, e.Headers) {
		t.Errorf("%q of %+v", args, e)
	}
}

// checkArray checks that an array has the value twice.
func checkArray(t *testing.T, value, array any, isID bool) {
	t.Helper()
	var elements []string
	if err := pgtype.NewMap().Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(array.(string)), &elements); err != nil {
		t.Fatalf("%q: %v", array, err)
	}
	want, ok := value.(string)
	if b, isBytes := value.([]byte); isBytes {
		text, err := pgtype.NewMap().Encode(pgtype.ByteaOID, pgtype.TextFormatCode, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, ok = string(text), true
	}
	if !ok || len(elements) != 2 || !isID && (elements[0] != want || elements[1] != want) {
		t.Errorf("%q of %q", elements, value)
	}
}

func checkMessage(t *testing.T, e outbox.Event, content []byte) {
	t.Helper()
	var got struct {
		AggregateID string            `json:"aggregateid"`
		Payload     json.RawMessage   `json:"payload"`
		Headers     map[string]string `json:"headers"`
	}
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	payload, want := []byte(got.Payload), e.Payload.([]byte)
	if payload[0] == '"' {
		var text string
		if err := json.Unmarshal(payload, &text); err != nil {
			t.Fatal(err)
		}
		payload = []byte(text)
	}
	if got.AggregateID != e.AggregateID || !bytes.Equal(bytes.TrimSpace(payload), bytes.TrimSpace(want)) || !cmp.Equal(got.Headers, e.Headers) {
		t.Errorf("%s of %+v", content, e)
	}
}
