package outbox_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

type traceKey struct{}

func trace(ctx context.Context) map[string]string {
	parent, _ := ctx.Value(traceKey{}).(string)
	return map[string]string{"traceparent": parent, "tracestate": "a=b"}
}

func TestHeadersOfFields(t *testing.T) {
	t.Parallel()
	id := uuid.Must(uuid.NewV7())
	for name, test := range map[string]struct {
		cfg    outbox.Config
		change func(*outbox.Event)
		want   map[string]string // nil: NULL
	}{
		"none":           {change: func(*outbox.Event) {}},
		"own":            {change: func(e *outbox.Event) { e.Headers = map[string]string{"a": "b"} }, want: map[string]string{"a": "b"}},
		"content type":   {change: func(e *outbox.Event) { e.ContentType = "text/plain" }, want: map[string]string{"content-type": "text/plain"}},
		"schema version": {change: func(e *outbox.Event) { e.SchemaVersion = 3 }, want: map[string]string{"schemaVersion": "3"}},
		"trace": {
			cfg: outbox.Config{Trace: trace}, change: func(*outbox.Event) {},
			want: map[string]string{"traceparent": "00-1-2-01", "tracestate": "a=b"},
		},
		"own over the trace": {
			cfg: outbox.Config{Trace: trace},
			change: func(e *outbox.Event) {
				e.Headers, e.ContentType = map[string]string{"traceparent": "mine"}, "text/plain"
			},
			want: map[string]string{"traceparent": "mine", "tracestate": "a=b", "content-type": "text/plain"},
		},
		"CloudEvent": {
			change: func(e *outbox.Event) { e.CloudEvent = &outbox.CloudEvent{Source: "/orders"} },
			want: map[string]string{
				"ce_specversion": "1.0", "ce_id": id.String(), "ce_source": "/orders", "ce_type": "OrderPaid", "content-type": "application/json",
			},
		},
		"CloudEvent with all": {
			cfg: outbox.Config{Trace: trace},
			change: func(e *outbox.Event) {
				e.Headers, e.ContentType, e.SchemaVersion = map[string]string{"a": "b"}, "application/vnd.order+json", 2
				e.CloudEvent = &outbox.CloudEvent{
					Source: "https://shop.example/orders", Subject: "order 7", DataSchema: "https://shop.example/order.json",
					Time:       time.Date(2026, 5, 1, 12, 30, 0, 5000, time.FixedZone("", 7200)),
					Extensions: map[string]string{"partitionkey": "7", "sequence1": ""},
				}
			},
			want: map[string]string{
				"a": "b", "traceparent": "00-1-2-01", "tracestate": "a=b", "content-type": "application/vnd.order+json", "schemaVersion": "2",
				"ce_specversion": "1.0", "ce_id": id.String(), "ce_source": "https://shop.example/orders", "ce_type": "OrderPaid",
				"ce_subject": "order 7", "ce_dataschema": "https://shop.example/order.json", "ce_time": "2026-05-01T12:30:00.000005+02:00",
				"ce_partitionkey": "7", "ce_sequence1": "",
			},
		},
		"CloudEvent without data": {
			change: func(e *outbox.Event) {
				e.Payload, e.Tombstone, e.CloudEvent = nil, true, &outbox.CloudEvent{Source: "/orders"}
			},
			want: map[string]string{"ce_specversion": "1.0", "ce_id": id.String(), "ce_source": "/orders", "ce_type": "OrderPaid"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := database(t, pgtest.Server(t))
			e := event(test.change)
			e.ID = id
			ctx := context.WithValue(t.Context(), traceKey{}, "00-1-2-01")
			if err := forms(false)[0].write(ctx, writer(t, test.cfg), db.Conn(t), "", e); err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			if text := rows(t, db.Conn(t))[0].Headers; text != nil {
				if err := json.Unmarshal([]byte(*text), &got); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraceIsChecked(t *testing.T) {
	w := writer(t, outbox.Config{Trace: func(context.Context) map[string]string { return map[string]string{"id": "1"} }})
	tx := &countingTx{}
	err := w.Write(t.Context(), tx, event(nil))
	if want := "outbox: event 0: Trace has a member id, which the relay sets"; err == nil || err.Error() != want || tx.statements != 0 {
		t.Errorf("Write = %v with %d statements, want %s", err, tx.statements, want)
	}
}

// The attributes are those of CloudEvents 1.0.2, "Required Attributes", "Optional Attributes",
// "Type System" and "Attribute Naming Convention".
func TestCloudEventAttributesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change        func(*outbox.CloudEvent)
		field, reason string // empty: no problem
	}{
		"relative reference":    {change: func(c *outbox.CloudEvent) { c.Source = "orders?a=b#c" }},
		"URN":                   {change: func(c *outbox.CloudEvent) { c.Source = "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66" }},
		"escaped":               {change: func(c *outbox.CloudEvent) { c.Source = "/caf%C3%A9" }},
		"no source":             {func(c *outbox.CloudEvent) { c.Source = "" }, "Source", "is empty"},
		"blank in source":       {func(c *outbox.CloudEvent) { c.Source = "/my orders" }, "Source", "is not a URI reference"},
		"source is not ASCII":   {func(c *outbox.CloudEvent) { c.Source = "/café" }, "Source", "is not a URI reference"},
		"bad escape":            {func(c *outbox.CloudEvent) { c.Source = "/%zz" }, "Source", "is not a URI reference"},
		"subject":               {change: func(c *outbox.CloudEvent) { c.Subject = "café ☃ 😀" }},
		"line break in subject": {func(c *outbox.CloudEvent) { c.Subject = "a\nb" }, "Subject", "contains a control character or noncharacter"},
		"C1 control":            {func(c *outbox.CloudEvent) { c.Subject = "a\u0085b" }, "Subject", "contains a control character or noncharacter"},
		"noncharacter":          {func(c *outbox.CloudEvent) { c.Subject = "\ufdd0" }, "Subject", "contains a control character or noncharacter"},
		"last of a plane":       {func(c *outbox.CloudEvent) { c.Subject = "\U0001fffe" }, "Subject", "contains a control character or noncharacter"},
		"subject is not UTF-8":  {func(c *outbox.CloudEvent) { c.Subject = "\xff" }, "Subject", "is not UTF-8"},
		"schema":                {change: func(c *outbox.CloudEvent) { c.DataSchema = "urn:a:b" }},
		"relative schema":       {func(c *outbox.CloudEvent) { c.DataSchema = "/order.json" }, "DataSchema", "is not an absolute URI"},
		"year of five digits": {
			func(c *outbox.CloudEvent) { c.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
			"Time", "is outside the years 0 to 9999 of RFC 3339",
		},
		"extension":              {change: func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"a1": "☃"} }},
		"extension in capitals":  {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"partitionKey": ""} }, "Extensions", extensionReason},
		"extension of two words": {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"a_b": ""} }, "Extensions", extensionReason},
		"extension without name": {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"": ""} }, "Extensions", extensionReason},
		"extension data":         {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"data": ""} }, "Extensions", extensionReason},
		"extension time":         {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"time": ""} }, "Extensions", extensionReason},
		"NUL in extension":       {func(c *outbox.CloudEvent) { c.Extensions = map[string]string{"a": "\x00"} }, "Extensions", "contains a control character or noncharacter"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &outbox.CloudEvent{Source: "/orders"}
			test.change(c)
			err := outbox.Write(t.Context(), &countingTx{}, event(func(e *outbox.Event) { e.CloudEvent = c }))
			want := "outbox: event 0: CloudEvent." + test.field + " " + test.reason
			if test.field == "" && err != nil || test.field != "" && (err == nil || err.Error() != want) {
				t.Errorf("Write = %v, want %s", err, strings.TrimSpace(want))
			}
		})
	}
	err := outbox.Write(t.Context(), &countingTx{}, event(func(e *outbox.Event) {
		e.Type, e.CloudEvent = "a\tb", &outbox.CloudEvent{Source: "/orders"}
	}))
	if want := "outbox: event 0: Type contains a control character or noncharacter, as the type of a CloudEvent"; err == nil || err.Error() != want {
		t.Errorf("Write = %v, want %s", err, want)
	}
}

const extensionReason = "has a name with other characters than a-z and 0-9, or the name of an attribute"
