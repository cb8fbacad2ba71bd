package encode

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

const (
	oidVarchar = 1043
	oidDate    = 1082
	oidNumeric = 1700
	oidOwn     = 16400 // of types that are not built in
)

// typedTable returns a table with columns of many types.
func typedTable() *decoder.Relation {
	return &decoder.Relation{OID: 16390, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd', Columns: []decoder.Column{
		{Name: "id", TypeOID: oidUUID, TypeModifier: -1, Key: true},
		{Name: "aggregatetype", TypeOID: oidVarchar, TypeModifier: 259},
		{Name: "aggregateid", TypeOID: oidVarchar, TypeModifier: 259},
		{Name: "type", TypeOID: oidVarchar, TypeModifier: 259},
		{Name: "payload", TypeOID: oidJSONB, TypeModifier: -1},
		{Name: "tenant", TypeOID: oidText, TypeModifier: -1},
		{Name: "attempt", TypeOID: oidInt4, TypeModifier: -1},
		{Name: "amount", TypeOID: oidNumeric, TypeModifier: 10<<16 | 2 + 4},
		{Name: "at", TypeOID: oidTimestamp, TypeModifier: -1},
		{Name: "at_zone", TypeOID: oidTimestamptz, TypeModifier: -1},
		{Name: "day", TypeOID: oidDate, TypeModifier: -1},
		{Name: "blob", TypeOID: oidBytea, TypeModifier: -1},
		{Name: "pair", TypeOID: oidOwn, TypeModifier: -1},
		{Name: "blob_domain", TypeOID: oidOwn + 1, TypeModifier: -1},
		{Name: "version", TypeOID: oidInt4, TypeModifier: -1},
		{Name: "tags", TypeOID: 1009, TypeModifier: -1},
	}}
}

// catalog describes typedTable: id, aggregatetype, aggregateid, type and version are NOT NULL, and tenant has a
// default.
func catalog(rel *decoder.Relation) ([]format.Column, error) {
	var types typing
	var out []format.Column
	for i, c := range rel.Columns {
		column := format.Column{Name: c.Name, Nullable: i > 3 && c.Name != "version", Type: types.builtIn(c.TypeOID, c.TypeModifier)}
		switch c.Name {
		case "tenant":
			column.Default = new("acme")
		case "pair":
			column.Type = format.Type{OID: c.TypeOID, Name: "pair", Kind: 'c', Modifier: -1}
		case "blob_domain":
			column.Type = types.builtIn(oidBytea, -1)
		}
		out = append(out, column)
	}
	return out, nil
}

// debezium returns a configuration as the importer writes it.
func debezium(change func(*Config)) Config {
	cfg := Config{
		Names:    kafka.Names{},
		Columns:  Columns{ID: ColumnNames{"id"}, Key: ColumnNames{"aggregateid"}, Route: ColumnNames{"aggregatetype"}, Payload: ColumnNames{"payload"}},
		Encoding: Encodings{Key: format.String, Value: format.String, Headers: format.Simple},
		Debezium: Debezium{Name: "shop"},
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func newRouter(t *testing.T, cfg Config) *Router {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.SetDescribe(catalog)
	return r
}

const eventID = "5f0c7a7e-0000-7000-8000-000000000001"

func place(to Target, columns ...string) []Placement {
	var out []Placement
	for _, c := range columns {
		out = append(out, Placement{Column: c, To: to})
	}
	return out
}

// lines returns all parts of a record, one per line.
func lines(rec *sink.Record) string {
	out := append(printed(rec), "at "+rec.Timestamp.UTC().Format(time.RFC3339Nano))
	return strings.Join(out, "\n")
}

func TestProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		config func(*Config)
		row    map[string]string
		want   string // key, value, headers except id; at if it differs from the transaction's time
	}{
		"strings": {
			row:  map[string]string{"payload": `{"b": 2.50, "aa": [1, 2]}`},
			want: "key order-7\nvalue {\"b\": 2.50, \"aa\": [1, 2]}\nid " + eventID,
		},
		"NULL is null": {
			row:  map[string]string{"payload": null, "aggregateid": null},
			want: "key null\nvalue null\nid " + eventID,
		},
		"JSON": {
			config: func(c *Config) {
				c.Encoding = Encodings{Key: format.JSON, Value: format.JSON, Headers: format.JSON}
				c.Place = place(ToHeader, "tenant", "attempt", "tags")
			},
			row:  map[string]string{"payload": `{"a": 1}`, "attempt": "7", "tags": `{x,"y\"z",NULL}`},
			want: "key \"order-7\"\nvalue \"{\\\"a\\\": 1}\"\nid \"" + eventID + "\"\ntenant null\nattempt 7\ntags [\"x\",\"y\\\"z\",null]",
		},
		"NULL as JSON": {
			config: func(c *Config) { c.Encoding.Key, c.Encoding.Value = format.JSON, format.JSON },
			row:    map[string]string{"payload": null, "aggregateid": null},
			want:   "key null\nvalue null\nid " + eventID,
		},
		"JSON with schemas": {
			config: func(c *Config) {
				c.Encoding = Encodings{Key: format.JSONSchema, Value: format.JSONSchema, Headers: format.JSONSchema}
				c.Static = []StaticHeader{{"source", "shop"}}
			},
			row: map[string]string{"payload": `{}`},
			want: `key {"schema":{"type":"string","optional":false},"payload":"order-7"}` + "\n" +
				`value {"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":"{}"}` + "\n" +
				`id {"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1},"payload":"` + eventID + `"}` + "\n" +
				`source {"schema":{"type":"string","optional":false},"payload":"shop"}`,
		},
		"bytes": {
			config: func(c *Config) {
				c.Columns.Payload, c.Columns.Key, c.Encoding.Value, c.Encoding.Key = ColumnNames{"blob"}, ColumnNames{"blob_domain"}, format.Bytes, format.Bytes
			},
			row:  map[string]string{"blob": `\x4142`, "blob_domain": `\x6b6b`},
			want: "key kk\nvalue AB\nid " + eventID,
		},
		"bytes, with a delegate for what is not bytea": {
			config: func(c *Config) {
				c.Columns.Key, c.Encoding.Value, c.Encoding.Key = ColumnNames{"blob"}, format.Bytes, format.Bytes
				c.Debezium.KeyDelegate, c.Debezium.ValueDelegate = format.String, format.JSON
			},
			row:  map[string]string{"blob": `\x6b6b`, "payload": `{"a": 1}`},
			want: "key kk\nvalue \"{\\\"a\\\": 1}\"\nid " + eventID,
		},
		"a delegate for an expanded payload": {
			config: func(c *Config) {
				c.Encoding.Value, c.Encoding.Key = format.Bytes, format.Bytes
				c.Debezium.KeyDelegate, c.Debezium.ValueDelegate, c.Debezium.Expand = format.JSON, format.JSON, true
			},
			row:  map[string]string{"payload": `{"a": [1]}`},
			want: "key \"order-7\"\nvalue {\"a\":[1]}\nid " + eventID,
		},
		"a delegate for bytea that is text": {
			config: func(c *Config) {
				c.Columns.Payload, c.Encoding.Value, c.Debezium.ValueDelegate = ColumnNames{"blob"}, format.Bytes, format.JSON
				c.Debezium.Modes.Binary = "hex"
			},
			row:  map[string]string{"blob": `\x6b6b`},
			want: "key order-7\nvalue \"6b6b\"\nid " + eventID,
		},
		"an expanded payload of bytea, with a delegate": {
			config: func(c *Config) {
				c.Columns.Payload, c.Encoding.Value, c.Debezium.ValueDelegate, c.Debezium.Expand = ColumnNames{"blob"}, format.Bytes, format.JSON, true
			},
			row:  map[string]string{"blob": `\x7b7d`},
			want: "key order-7\nvalue {}\nid " + eventID,
		},
		"headers in order, with names that repeat": {
			config: func(c *Config) {
				c.Columns.Type = ColumnNames{"type"}
				c.Place = []Placement{{"type", ToHeader, ""}, {"tenant", ToHeader, "id"}, {"amount", ToHeader, ""}}
				c.Static = []StaticHeader{{"source", "shop-db"}}
			},
			row:  map[string]string{"payload": "{}", "tenant": "", "amount": "12.30"},
			want: "key order-7\nvalue {}\nid " + eventID + "\neventType OrderPlaced\ntype OrderPlaced\nid \namount 12.30\nsource shop-db",
		},
		"columns that are missing": {
			config: func(c *Config) {
				c.OnMissingColumn = MissingIgnore
				c.Place = append(place(ToHeader, "nope", "pair", "type"), Placement{Column: "part", To: ToPartition})
			},
			row:  map[string]string{"payload": "{}", "pair": "(1,2)"},
			want: "key order-7\nvalue {}\nid " + eventID + "\ntype OrderPlaced",
		},
		"timestamp": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"at"} },
			row:    map[string]string{"payload": "{}", "at": "2019-03-24 20:52:59.123987"},
			want:   "key order-7\nvalue {}\nid " + eventID + "\nat 2019-03-24T20:52:59.123Z",
		},
		"timestamp with time zone": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"at_zone"} },
			row:    map[string]string{"payload": "{}", "at_zone": "2019-03-24 21:52:59.5+01"},
			want:   "key order-7\nvalue {}\nid " + eventID + "\nat 2019-03-24T20:52:59.5Z",
		},
		"no timestamp": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"at"} },
			row:    map[string]string{"payload": "{}"},
			want:   "key order-7\nvalue {}\nid " + eventID,
		},
		"blank payload": {
			config: func(c *Config) { c.TombstoneOnEmpty = true; c.Encoding.Value = format.JSON },
			row:    map[string]string{"payload": " \x00\t\x1f\n"},
			want:   "key order-7\nvalue null\nid " + eventID,
		},
		"blank beyond ASCII": {
			config: func(c *Config) { c.TombstoneOnEmpty = true },
			row:    map[string]string{"payload": "\u00a0\u2003"},
			want:   "key order-7\nvalue \u00a0\u2003\nid " + eventID,
		},
		"empty bytea": {
			config: func(c *Config) {
				c.TombstoneOnEmpty, c.Columns.Payload, c.Encoding.Value = true, ColumnNames{"blob"}, format.Bytes
			},
			row:  map[string]string{"blob": `\x`},
			want: "key order-7\nvalue \nid " + eventID,
		},
		"empty bytea as text": {
			config: func(c *Config) {
				c.TombstoneOnEmpty, c.Columns.Payload, c.Debezium.Modes.Binary = true, ColumnNames{"blob"}, "hex"
			},
			row:  map[string]string{"blob": `\x`},
			want: "key order-7\nvalue null\nid " + eventID,
		},
		"explicit NULL is no default": {
			config: func(c *Config) { c.Place = place(ToHeader, "tenant") },
			row:    map[string]string{"payload": "{}"},
			want:   "key order-7\nvalue {}\nid " + eventID + "\ntenant null",
		},
		"partition of any integer": {
			config: func(c *Config) { c.Place = place(ToPartition, "attempt") },
			row:    map[string]string{"payload": "{}", "attempt": "3"},
			want:   "key order-7\nvalue {}\nid " + eventID,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, debezium(tc.config))
			want := "topic outbox.event.order\n" + tc.want
			if !strings.Contains(want, "\nat 2") {
				want += "\nat " + tx.Timestamp.UTC().Format(time.RFC3339Nano)
			}
			var got sink.Record
			for range 2 { // the second time with reused buffers
				if err := r.Route(tx, 0, row(typedTable(), tc.row), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, lines(&got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if json := name == "NULL as JSON"; json != (string(got.Value) == "null") || json != (string(got.Key) == "null") {
				t.Errorf("key %q, value %q: null and the word null are not the same", got.Key, got.Value)
			}
		})
	}
}

// TestContextHeaders: the context headers come first. Each Router has its own run id.
func TestContextHeaders(t *testing.T) {
	cfg := debezium(func(c *Config) { c.Debezium.ContextHeaders, c.Encoding.Headers = true, format.JSON })
	seen := map[string]bool{}
	for range 2 {
		var rec sink.Record
		if err := newRouter(t, cfg).Route(tx, 0, row(typedTable(), nil), &rec); err != nil {
			t.Fatal(err)
		}
		runID := rec.Headers[3]
		seen[string(runID.Value)] = true
		rec.Headers[3].Value = []byte("*")
		want := []sink.Header{
			header("__debezium.context.connectorLogicalName", `"shop"`), header("__debezium.context.taskId", `"0"`),
			header("__debezium.context.connectorName", `"postgresql"`), header("__debezium.context.runId", "*"), header("id", `"`+eventID+`"`),
		}
		if diff := cmp.Diff(want, rec.Headers); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if len(seen) != 2 {
		t.Errorf("run ids: %v", seen)
	}
}

func TestTopicRules(t *testing.T) {
	r := newRouter(t, debezium(func(c *Config) {
		c.Topic = "${route}"
		c.TopicRules = []TopicRule{{`(?<routedByValue>[A-Z].*)`, "outbox.event.${routedByValue}"}, {`outbox\.event\.(.*)`, "eu.$1.events"}}
	}))
	for value, want := range map[string]string{"Order": "eu.Order.events", "order": "order"} {
		var rec sink.Record
		for range 2 {
			if err := r.Route(tx, 0, row(typedTable(), map[string]string{"aggregatetype": value}), &rec); err != nil || rec.Topic != want {
				t.Errorf("topic of %s is %s, %v; want %s", value, rec.Topic, err, want)
			}
		}
	}
	err := r.Route(tx, 0, row(typedTable(), map[string]string{"aggregatetype": "O/"}), new(sink.Record))
	if refused, ok := errors.AsType[*RowError](err); !ok || !strings.Contains(refused.reason, `the topic name contains '/'`) {
		t.Errorf("error is %v", err)
	}
}

func TestRefusedRows(t *testing.T) {
	for name, tc := range map[string]struct {
		config func(*Config)
		row    map[string]string
		want   RowError
	}{
		"timestamp before 1970": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"at"} },
			row:    map[string]string{"at": "1969-12-30 00:00:00"},
			want:   RowError{column: "at", reason: "is before 1970, where records have no timestamps"},
		},
		"infinite timestamp": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"at"} },
			row:    map[string]string{"at": "infinity"},
			want:   RowError{column: "at", reason: "infinity has no milliseconds"},
		},
		"default in place of an explicit NULL": {
			config: func(c *Config) { c.Place, c.Debezium.Exact = place(ToHeader, "tenant"), true },
			want:   RowError{column: "tenant", reason: "is NULL, for which Debezium sends the column's default (debezium.exact)"},
		},
		"version beyond 32 bits": {
			config: func(c *Config) {
				c.Columns.SchemaVersion, c.Place, c.Encoding.Value = ColumnNames{"version"}, place(ToEnvelope, "tenant"), format.JSONSchema
			},
			row:  map[string]string{"version": "4294967296"},
			want: RowError{column: "version", reason: "is not a schema's version"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := newRouter(t, debezium(tc.config)).Route(tx, 0, row(typedTable(), tc.row), new(sink.Record))
			got, ok := errors.AsType[*RowError](err)
			if !ok {
				t.Fatalf("error is %v, want a RowError", err)
			}
			tc.want.table, tc.want.ID = "public.outbox", eventID
			if *got != tc.want {
				t.Errorf("error is %+v, want %+v", *got, tc.want)
			}
		})
	}
}

// TestRefusedTables: Check rejects a table with unsuitable columns before its first row.
func TestRefusedTables(t *testing.T) {
	for name, tc := range map[string]struct {
		config func(*Config)
		want   []string
	}{
		"missing": {
			config: func(c *Config) {
				c.Place = append(place(ToHeader, "nope"), place(ToEnvelope, "gone")...)
				c.Encoding.Value = format.JSON
			},
			want: []string{`no column "nope" (outbox.place[0])`, `no column "gone" (outbox.place[1])`},
		},
		"what Debezium leaves out": {
			config: func(c *Config) { c.Place = place(ToHeader, "pair") },
			want:   []string{`column "pair" is of type pair, which only the encoding raw can send: Debezium leaves such a column out (outbox.place[0])`},
		},
		"bytes of text": {
			config: func(c *Config) { c.Encoding.Value, c.Encoding.Key = format.Bytes, format.Bytes },
			want: []string{
				`column "aggregateid" is not bytea, which the encoding bytes requires (outbox.encoding.key)`,
				`column "payload" is not bytea, which the encoding bytes requires (outbox.encoding.value)`,
			},
		},
		"no timestamp": {
			config: func(c *Config) { c.Columns.Timestamp = ColumnNames{"day"} },
			want:   []string{`column "day" is no timestamp, with or without time zone (outbox.columns.timestamp)`},
		},
		"no version": {
			config: func(c *Config) {
				c.Columns.SchemaVersion, c.Place, c.Encoding.Value = ColumnNames{"tenant"}, place(ToEnvelope, "type"), format.JSONSchema
			},
			want: []string{`column "tenant" is not an integer (outbox.columns.schema_version)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := newRouter(t, debezium(tc.config)).Check(typedTable())
			got, ok := errors.AsType[*ColumnError](err)
			if !ok {
				t.Fatalf("error is %v, want a ColumnError", err)
			}
			if diff := cmp.Diff(tc.want, got.Problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
