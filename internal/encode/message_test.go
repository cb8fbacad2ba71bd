package encode

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func logical(content string) *decoder.LogicalMessage {
	return &decoder.LogicalMessage{Transactional: true, Prefix: "outbox", Content: []byte(content)}
}

func TestMessage(t *testing.T) {
	asJSON := func(c *Config) {
		c.Encoding.Value, c.Place = format.JSON, []Placement{{Column: "type", To: ToHeader, As: "eventType"}}
	}
	own := func(c *Config) { c.Encoding = Encodings{} }
	for name, tc := range map[string]struct {
		config  func(*Config)
		content string
		want    string // key, value and headers
	}{
		"text": {
			config: asJSON, content: `{"id":"1","aggregatetype":"order","aggregateid":"o-1","type":"Paid","payload":"just text"}`,
			want: "key o-1\nvalue \"just text\"\nid 1\neventType Paid",
		},
		"a document": {
			config: asJSON, content: `{"id":"1","aggregatetype":"order","aggregateid":"o-1","type":"Created","payload":{"total":9.50,"lines":[{"sku":"A"},{"sku":"B"}],"gone":null}}`,
			want: "key o-1\nvalue {\"total\":9.5,\"lines\":[{\"sku\":\"A\"},{\"sku\":\"B\"}]}\nid 1\neventType Created",
		},
		"numbers": {
			config: asJSON, content: `{"id":1,"aggregatetype":"order","aggregateid":7,"type":"Numeric","payload":12,"more":"members"}`,
			want: "key 7\nvalue 12\nid 1\neventType Numeric",
		},
		"doubles": {
			config: asJSON, content: `{"id":3000000000,"aggregatetype":"order","aggregateid":"o","type":true,"payload":100000e2}`,
			want: "key o\nvalue 1.0E7\nid 3000000000\neventType true",
		},
		"what the members are": {
			config: own, content: `{"payload":{"b": 1.50, "n":null},"id":"\u0031","aggregatetype":"order","aggregateid":7.0}`,
			want: "key 7.0\nvalue {\"b\": 1.50, \"n\":null}\nid 1",
		},
		"null is NULL": {
			config: own, content: `{"payload":null,"id":"1","aggregatetype":"order","aggregateid":null}`,
			want: "key null\nvalue null\nid 1",
		},
		"null members of an envelope": {
			config: func(c *Config) {
				c.Debezium.Exact, c.Debezium.Expansion.Nulls = true, true
				c.Encoding.Value, c.Place = format.JSON, place(ToEnvelope, "type")
			},
			content: `{"payload":{"a":null},"id":"1","aggregatetype":"order","aggregateid":"o-1","type":null}`,
			want:    "key o-1\nvalue {\"payload\":{\"a\":null},\"type\":null}\nid 1",
		},
		"the schema of a null member": {
			config:  func(c *Config) { c.Encoding.Value, c.Place = format.JSONSchema, place(ToEnvelope, "type") },
			content: `{"payload":null,"id":"1","aggregatetype":"order","aggregateid":"o-1","type":null}`,
			want: `key o-1` + "\n" + `value {"schema":{"type":"struct","fields":[{"type":"bytes","optional":true,"field":"payload"},` +
				`{"type":"bytes","optional":true,"field":"type"}],"optional":false,"name":"order"},` +
				`"payload":{"payload":null,"type":null}}` + "\nid 1",
		},
		"the last of a name counts": {
			config: own, content: `{"payload":"a","id":"1","aggregatetype":"order","aggregateid":"k","payload":true}`,
			want: "key k\nvalue true\nid 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := debezium(tc.config)
			cfg.Debezium.ContextHeaders = true // these headers apply only to rows of tables
			r := newRouter(t, cfg)
			var rec sink.Record
			for range 2 {
				if err := r.RouteMessage(tx, 0, logical(tc.content), &rec); err != nil {
					t.Fatal(err)
				}
				want := "topic outbox.event.order\n" + tc.want + "\nat 2026-03-01T11:30:00.123456Z"
				if diff := cmp.Diff(want, lines(&rec)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestRefusedMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		config  func(*Config)
		content string
		want    string
	}{
		"no JSON":        {content: `{"id":`, want: "row of message outbox: is not JSON"},
		"nested":         {content: deepMessage(jsontext.MaxDepth), want: "row of message outbox: is nested more than 1000 levels deep"},
		"4 MiB nested":   {content: strings.Repeat("[", 4<<20), want: "row of message outbox: is nested more than 1000 levels deep"},
		"4 MiB of text":  {content: `"` + strings.Repeat("[", 4<<20) + `"`, want: "row of message outbox: is not a JSON object"},
		"many members":   {content: manyMembers(maxMembers + 1), want: "row of message outbox: has more than 1600 members"},
		"256 k members":  {content: manyMembers(256 << 10), want: "row of message outbox: has more than 1600 members"},
		"empty":          {content: ``, want: "row of message outbox: is not JSON"},
		"no object":      {content: `[1]`, want: "row of message outbox: is not a JSON object"},
		"members missed": {content: `{"id":"1","aggregateid":"a"}`, want: `row 1 of message outbox: no column "aggregatetype" (outbox.columns.route); no column "payload" (outbox.columns.payload); no column "aggregatetype" (outbox.topic)`},
		"no id":          {content: `{"id":null,"aggregatetype":"o","aggregateid":"a","payload":1}`, want: "row of message outbox: column id: is NULL; every event needs an id"},
		"null that Debezium drops": {
			config: func(c *Config) { c.Debezium.Exact = true }, content: `{"id":"1","aggregatetype":"o","aggregateid":"a","payload":null}`,
			want: `row 1 of message outbox: no column "payload" (outbox.columns.payload)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, debezium(tc.config))
			m := logical(tc.content)
			err := r.RouteMessage(tx, 2, m, new(sink.Record))
			refused, ok := errors.AsType[*RowError](err)
			if !ok || err.Error() != tc.want {
				t.Fatalf("error is %v, want %s", err, tc.want)
			}
			want := []string{
				"topic dead", "key null", "value " + tc.content, DeadLetterReason + " " + tc.want, DeadLetterSlot + " s",
				DeadLetterLSN + " 16/B374D848", DeadLetterIndex + " 2", DeadLetterTable + " message outbox",
			}
			if diff := cmp.Diff(want, printed(r.DeadMessage("dead", Origin{Slot: "s", Tx: tx, Index: 2}, m, refused))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// deepMessage returns a message whose payload has n levels.
func deepMessage(n int) string {
	return `{"id":"1","aggregatetype":"order","aggregateid":"o-1","type":"T","payload":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// A message at the limits is a valid row.
func TestMessageAtTheLimits(t *testing.T) {
	r := newRouter(t, debezium(nil))
	for _, content := range []string{
		deepMessage(jsontext.MaxDepth - 1),
		`{"id":"1","aggregatetype":"o","aggregateid":"a","payload":"p",` + manyMembers(maxMembers - 4)[1:],
	} {
		if err := r.RouteMessage(tx, 0, logical(content), new(sink.Record)); err != nil {
			t.Error(err)
		}
	}
}

// TestMessageShapes: messages with ever different members do not use more and more memory.
func TestMessageShapes(t *testing.T) {
	r := newRouter(t, debezium(nil))
	for i := range messageShapes + 10 {
		content := fmt.Sprintf(`{"id":"1","aggregatetype":"o","aggregateid":"a","payload":"p","m%d":1}`, i)
		if err := r.RouteMessage(tx, 0, logical(content), new(sink.Record)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.messages) > messageShapes {
		t.Errorf("%d shapes are kept", len(r.messages))
	}
	for i := range 100 {
		content := fmt.Sprintf(`{"id":"1","aggregatetype":"o","aggregateid":"a","payload":"p","m%d%s":1}`, i, strings.Repeat("x", (1+i%9)<<17))
		if err := r.RouteMessage(tx, 0, logical(content), new(sink.Record)); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for shape := range r.messages {
			kept += len(shape)
		}
		if kept > messageShapeBytes {
			t.Fatalf("%d bytes of shapes are kept", kept)
		}
	}
}

// FuzzMessage: no content causes a panic, and an error is a single line.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"id":"1","aggregatetype":"o","aggregateid":"a","payload":{"a":[1,null]}}`))
	r, err := New(debezium(func(c *Config) { c.Encoding.Value = format.JSON }))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		err := r.RouteMessage(tx, 0, &decoder.LogicalMessage{Prefix: "p", Content: content}, new(sink.Record))
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error in several lines: %v", err)
		}
	})
}
