package encode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func TestEnvelope(t *testing.T) {
	const schema = `{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"},` +
		`{"type":"string","optional":false,"field":"eventType"}],"optional":false,"name":"shop.public.outbox.order.Value"`
	for name, tc := range map[string]struct {
		config func(*Config)
		row    map[string]string
		want   string
	}{
		"members in order": {
			config: func(c *Config) {
				c.Place = append(c.Place, place(ToEnvelope, "amount", "tags", "blob", "attempt")...)
			},
			row:  map[string]string{"payload": `{"a": 1}`, "amount": "12.30", "tags": "{x,NULL}", "blob": `\x0001ff`},
			want: `{"payload":"{\"a\": 1}","eventType":"OrderPlaced","amount":"BM4=","tags":["x",null],"blob":"AAH/","attempt":null}`,
		},
		"no payload": {
			row:  map[string]string{"payload": null},
			want: `{"payload":null,"eventType":"OrderPlaced"}`,
		},
		"no payload is a tombstone when asked for": {
			config: func(c *Config) { c.TombstoneOnEmpty = true },
			row:    map[string]string{"payload": null},
			want:   "null",
		},
		"missing members": {
			config: func(c *Config) {
				c.OnMissingColumn = MissingIgnore
				c.Place = append(c.Place, place(ToEnvelope, "nope", "pair")...)
			},
			row:  map[string]string{"payload": "{}", "pair": "(1,2)"},
			want: `{"payload":"{}","eventType":"OrderPlaced"}`,
		},
		"nothing but missing members": {
			config: func(c *Config) { c.OnMissingColumn = MissingIgnore; c.Place = place(ToEnvelope, "nope") },
			row:    map[string]string{"payload": "{}"},
			want:   `{"payload":"{}"}`,
		},
		"expanded": {
			config: func(c *Config) { c.Debezium.Expand = true },
			row:    map[string]string{"payload": `{"a": 1.50, "n": null}`},
			want:   `{"payload":{"a":1.5},"eventType":"OrderPlaced"}`,
		},
		"schema": {
			config: func(c *Config) { c.Encoding.Value = format.JSONSchema },
			row:    map[string]string{"payload": "{}"},
			want:   schema + `},"payload":{"payload":"{}","eventType":"OrderPlaced"}}`,
		},
		"schema with a version": {
			config: func(c *Config) {
				c.Encoding.Value, c.Columns.SchemaVersion = format.JSONSchema, ColumnNames{"version"}
			},
			row:  map[string]string{"payload": "{}", "version": "3"},
			want: schema + `,"version":3},"payload":{"payload":"{}","eventType":"OrderPlaced"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, debezium(func(c *Config) {
				c.Encoding.Value, c.Place = format.JSON, []Placement{{Column: "type", To: ToEnvelope, As: "eventType"}}
				if tc.config != nil {
					tc.config(c)
				}
			}))
			var rec sink.Record
			for range 2 {
				if err := r.Route(tx, 0, row(typedTable(), tc.row), &rec); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, show(rec.Value)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestSchemaNames: the schema name comes from the row's route. Debezium, and Exact, keep the first name per schema
// version, or else per payload type, for all tables.
func TestSchemaNames(t *testing.T) {
	for _, tc := range []struct {
		exact   bool
		version string
		want    []string
	}{
		{false, "", []string{"shop.public.outbox.order.Value", "shop.app.events.user.Value", "shop.public.outbox.cart.Value"}},
		{true, "", []string{"shop.public.outbox.order.Value", "shop.public.outbox.order.Value", "shop.public.outbox.order.Value"}},
		{true, "version", []string{"shop.public.outbox.order.Value", "shop.app.events.user.Value", "shop.public.outbox.order.Value"}},
	} {
		r := newRouter(t, debezium(func(c *Config) {
			c.Encoding.Value, c.Place = format.JSONSchema, place(ToEnvelope, "type")
			c.Debezium.Exact = tc.exact
			if tc.version != "" {
				c.Columns.SchemaVersion = ColumnNames{tc.version}
			}
		}))
		outbox, events := typedTable(), typedTable()
		events.OID, events.Namespace, events.Name = 16399, "app", "events"
		for i, ins := range []struct {
			route, version string
		}{{"order", "1"}, {"user", "2"}, {"cart", "1"}} {
			rel := outbox
			if i == 1 {
				rel = events
			}
			var rec sink.Record
			if err := r.Route(tx, 0, row(rel, map[string]string{"aggregatetype": ins.route, "version": ins.version}), &rec); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(rec.Value), `"name":"`+tc.want[i]+`"`) {
				t.Errorf("exact %t, version %q, row %d: no %s in %s", tc.exact, tc.version, i, tc.want[i], rec.Value)
			}
		}
	}
}

// TestExpand: a payload that is a document is expanded. With Exact, a document without an exact equivalent is
// rejected.
func TestExpand(t *testing.T) {
	for _, tc := range []struct {
		config  func(*Config)
		payload string
		want    string
	}{
		{nil, `{"b": 2.50, "aa": [1, 2], "n": null, "e": [], "o": {}}`, `{"b":2.5,"aa":[1,2],"o":{}}`},
		{func(c *Config) { c.Debezium.Expansion.Nulls = true }, `{"n": null, "e": []}`, `{"n":null}`},
		{func(c *Config) { c.Debezium.Expansion.EmptyArrays = true }, `{"n": null, "e": []}`, `{"e":[]}`},
		{func(c *Config) { c.TombstoneOnEmpty = true }, `{}`, `{}`},
		{func(c *Config) { c.Debezium.Exact = true }, `[{"a": 1}]`, ""},
	} {
		r := newRouter(t, debezium(func(c *Config) {
			c.Encoding.Value, c.Debezium.Expand = format.JSON, true
			if tc.config != nil {
				tc.config(c)
			}
		}))
		var rec sink.Record
		err := r.Route(tx, 0, row(typedTable(), map[string]string{"payload": tc.payload}), &rec)
		refused, _ := errors.AsType[*RowError](err)
		if tc.want == "" && (refused == nil || refused.column != "payload") || tc.want != "" && (err != nil || string(rec.Value) != tc.want) {
			t.Errorf("%s: %s, %v; want %s", tc.payload, rec.Value, err, tc.want)
		}
	}
}

// Routing a row with encodings allocates nothing either.
func TestEncodedAllocations(t *testing.T) {
	r := newRouter(t, debezium(func(c *Config) {
		c.Encoding = Encodings{Key: format.JSON, Value: format.JSON, Headers: format.Simple}
		c.Place, c.Columns.Timestamp, c.Debezium.ContextHeaders = append(place(ToHeader, "tags", "at"), place(ToEnvelope, "type", "attempt")...), ColumnNames{"at"}, true
	}))
	ins := row(typedTable(), map[string]string{"tags": "{a,b}", "at": "2026-03-24 20:52:59", "attempt": "3"})
	var rec sink.Record
	if n := testing.AllocsPerRun(1000, func() { _ = r.Route(tx, 0, ins, &rec) }); n > 0 {
		t.Errorf("%v allocations per row", n)
	}
}

func BenchmarkDebezium(b *testing.B) {
	encodings := map[string]Encodings{
		"strings": {Key: format.String, Value: format.String, Headers: format.Simple},
		"json":    {Key: format.JSON, Value: format.JSON, Headers: format.Simple},
		"schemas": {Key: format.JSONSchema, Value: format.JSONSchema, Headers: format.Simple},
	}
	for name, encoding := range encodings {
		b.Run(name, func(b *testing.B) {
			r, err := New(debezium(func(c *Config) {
				c.Encoding, c.Place, c.Debezium.ContextHeaders = encoding, []Placement{{Column: "type", To: ToHeader, As: "eventType"}}, true
			}))
			if err != nil {
				b.Fatal(err)
			}
			r.SetDescribe(catalog)
			ins := row(typedTable(), nil)
			var rec sink.Record
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Route(tx, 0, ins, &rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
