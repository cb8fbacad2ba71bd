package encode

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/javaregex"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

var (
	commitTime = time.Date(2026, 3, 1, 12, 30, 0, 123456000, time.UTC)
	tx         = Tx{CommitLSN: 0x16B374D848, CommitTime: commitTime, Timestamp: commitTime.Add(-time.Hour)}
)

const oidUUID = 2950

// outboxTable returns the table of package migrations, as the stream describes it.
func outboxTable() *decoder.Relation {
	return &decoder.Relation{OID: 16385, Namespace: "public", Name: "outbox", Columns: []decoder.Column{
		{Name: "id", TypeOID: oidUUID, Key: true},
		{Name: "position", TypeOID: oidInt8},
		{Name: "aggregatetype", TypeOID: oidText},
		{Name: "aggregateid", TypeOID: oidText},
		{Name: "type", TypeOID: oidText},
		{Name: "payload", TypeOID: oidJSONB},
		{Name: "headers", TypeOID: oidJSONB},
		{Name: "tenant", TypeOID: oidText},
		{Name: "shard", TypeOID: oidInt4},
		{Name: "blob", TypeOID: oidBytea},
	}}
}

// null represents SQL NULL in the values for row.
const null = "\x00null"

// row returns an insert into rel. Columns that are not in values have the values of a plain order event.
func row(rel *decoder.Relation, values map[string]string) *decoder.Insert {
	plain := map[string]string{
		"id": "5f0c7a7e-0000-7000-8000-000000000001", "position": "1",
		"aggregatetype": "order", "aggregateid": "order-7", "type": "OrderPlaced",
		"payload": `{"total": 12345678901234567890.10}`,
	}
	ins := &decoder.Insert{Relation: rel}
	for _, c := range rel.Columns {
		v, ok := values[c.Name]
		if !ok {
			v, ok = plain[c.Name]
		}
		if !ok || v == null {
			ins.Row = append(ins.Row, decoder.Value{Kind: decoder.Null})
			continue
		}
		ins.Row = append(ins.Row, decoder.Value{Kind: decoder.Text, Data: []byte(v)})
	}
	return ins
}

func header(key, value string) sink.Header { return sink.Header{Key: key, Value: []byte(value)} }

func defaultConfig(change func(*Config)) Config {
	cfg := Config{Names: kafka.Names{}, Columns: DefaultColumns()}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func TestRecord(t *testing.T) {
	id, eventType := header("id", "5f0c7a7e-0000-7000-8000-000000000001"), header("eventType", "OrderPlaced")
	for name, tc := range map[string]struct {
		config func(*Config)
		row    map[string]string
		want   func(*sink.Record)
	}{
		"plain": {},
		"payload is verbatim": {
			row:  map[string]string{"payload": `{"b": 1e400, "a": 1.00, "a": 12345678901234567890}`},
			want: func(r *sink.Record) { r.Value = []byte(`{"b": 1e400, "a": 1.00, "a": 12345678901234567890}`) },
		},
		"null payload is a tombstone": {
			row:  map[string]string{"payload": null},
			want: func(r *sink.Record) { r.Value = nil },
		},
		"empty payload is empty": {
			row:  map[string]string{"payload": ""},
			want: func(r *sink.Record) { r.Value = []byte{} },
		},
		"empty payload is a tombstone when asked for": {
			config: func(c *Config) { c.TombstoneOnEmpty = true },
			row:    map[string]string{"payload": " \n\t"},
			want:   func(r *sink.Record) { r.Value = nil },
		},
		"null key": {
			row:  map[string]string{"aggregateid": null},
			want: func(r *sink.Record) { r.Key = nil },
		},
		"empty key": {
			row:  map[string]string{"aggregateid": ""},
			want: func(r *sink.Record) { r.Key = []byte{} },
		},
		"bytea is its bytes": {
			config: func(c *Config) { c.Columns.Payload, c.Columns.Key = ColumnNames{"blob"}, ColumnNames{"blob"} },
			row:    map[string]string{"blob": `\x00ff5c78`},
			want:   func(r *sink.Record) { r.Value = []byte("\x00\xff\\x"); r.Key = r.Value },
		},
		"empty bytea is not null": {
			config: func(c *Config) { c.Columns.Payload = ColumnNames{"blob"} },
			row:    map[string]string{"blob": `\x`},
			want:   func(r *sink.Record) { r.Value = []byte{} },
		},
		"headers column": {
			row: map[string]string{"headers": `{"traceparent": "00-ab-cd-01", "n": 1.50, "nested": {"a": [1, null]}, "none": null, "é\n": "\"ü\"", "empty": ""}`},
			want: func(r *sink.Record) {
				r.Headers = append(r.Headers, header("traceparent", "00-ab-cd-01"), header("n", "1.50"),
					header("nested", `{"a": [1, null]}`), header("none", "null"), header("é\n", `"ü"`), header("empty", ""))
			},
		},
		"headers column is JSON null": {row: map[string]string{"headers": "null"}},
		"no type header": {
			config: func(c *Config) { c.Columns.Type = nil },
			want:   func(r *sink.Record) { r.Headers = r.Headers[:1] },
		},
		"placed columns": {
			config: func(c *Config) {
				c.Place = []Placement{{Column: "tenant", To: ToHeader, As: "x-tenant"}, {Column: "position", To: ToHeader}, {Column: "blob", To: ToHeader}, {Column: "shard", To: ToPartition}}
			},
			row: map[string]string{"tenant": "acme", "shard": "11"},
			want: func(r *sink.Record) {
				r.Partition = 11
				r.Headers = append(r.Headers, header("x-tenant", "acme"), header("position", "1"), sink.Header{Key: "blob"})
			},
		},
		"null partition is by key": {config: func(c *Config) { c.Place = []Placement{{Column: "shard", To: ToPartition}} }},
		"position": {
			config: func(c *Config) { c.LSNHeader = true },
			want:   func(r *sink.Record) { r.Headers = append(r.Headers, header("lsn", "16/B374D848:3")) },
		},
		"position, with headers as JSON": {
			config: func(c *Config) { c.LSNHeader, c.Encoding.Headers, c.Columns.Type = true, format.JSON, nil },
			want: func(r *sink.Record) {
				r.Headers = []sink.Header{header("id", `"`+string(r.Headers[0].Value)+`"`), header("lsn", `"16/B374D848:3"`)}
			},
		},
		"topic template": {
			config: func(c *Config) { c.Topic = "${tenant}.${route}-${type}_${key}" },
			row:    map[string]string{"tenant": "acme"},
			want:   func(r *sink.Record) { r.Topic = "acme.order-OrderPlaced_order-7" },
		},
		"fixed topic": {
			config: func(c *Config) { c.Topic = "events" },
			want:   func(r *sink.Record) { r.Topic = "events" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(defaultConfig(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			want := sink.Record{
				Topic: "outbox.event.order", Partition: sink.AnyPartition,
				Key: []byte("order-7"), Value: []byte(`{"total": 12345678901234567890.10}`),
				Headers: []sink.Header{id, eventType}, Timestamp: tx.Timestamp,
			}
			if tc.want != nil {
				tc.want(&want)
			}
			var got sink.Record
			for range 2 { // the second time with reused buffers
				if err := r.Route(tx, 3, row(outboxTable(), tc.row), &got); err != nil {
					t.Fatal(err)
				}
				// cmp distinguishes nil from empty, as null is not empty.
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("record (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestBadRow(t *testing.T) {
	for name, tc := range map[string]struct {
		config func(*Config)
		row    map[string]string
		want   RowError
	}{
		"null id":        {row: map[string]string{"id": null}, want: RowError{column: "id", reason: "is NULL; every event needs an id"}},
		"null route":     {row: map[string]string{"aggregatetype": null}, want: RowError{column: "aggregatetype", reason: "is NULL, and the topic's name needs it"}},
		"illegal topic":  {row: map[string]string{"aggregatetype": "or der"}, want: RowError{column: "aggregatetype", reason: `the topic name contains ' '; Kafka allows letters, digits, '.', '_' and '-'`}},
		"internal topic": {config: func(c *Config) { c.Topic = "${route}" }, row: map[string]string{"aggregatetype": "__consumer_offsets"}, want: RowError{column: "aggregatetype", reason: `the topic name begins with __, which is reserved for the cluster's own topics`}},
		"empty topic":    {config: func(c *Config) { c.Topic = "${route}" }, row: map[string]string{"aggregatetype": ""}, want: RowError{column: "aggregatetype", reason: `the topic name is empty`}},
		"dots":           {config: func(c *Config) { c.Topic = "${route}" }, row: map[string]string{"aggregatetype": ".."}, want: RowError{column: "aggregatetype", reason: `the topic name is reserved`}},
		"long topic":     {config: func(c *Config) { c.Topic = "${route}" }, row: map[string]string{"aggregatetype": strings.Repeat("x", 250)}, want: RowError{column: "aggregatetype", reason: `the topic name has 250 characters, Kafka allows 249`}},
		"costly topic rule": {
			config: func(c *Config) {
				c.TopicRules = []TopicRule{{Match: "x", Replace: "y"}, {Match: `(\w|\.)*`, Replace: "z"}}
			},
			row:  map[string]string{"aggregatetype": strings.Repeat("x", 200_000)},
			want: RowError{column: "aggregatetype", reason: "the topic name cannot be rewritten by outbox.topic_rules[1]: " + javaregex.ErrBacktracking.Error()},
		},
		"headers array":   {row: map[string]string{"headers": `[1]`}, want: RowError{column: "headers", reason: "is not a JSON object"}},
		"headers no JSON": {config: func(c *Config) { c.Columns.Headers = ColumnNames{"tenant"} }, row: map[string]string{"tenant": `{"a":`}, want: RowError{column: "tenant", reason: "is not JSON"}},
		"partition":       {config: func(c *Config) { c.Place = []Placement{{Column: "shard", To: ToPartition}} }, row: map[string]string{"shard": "-1"}, want: RowError{column: "shard", reason: "is not a partition's number"}},
		"escape bytea":    {config: func(c *Config) { c.Columns.Payload = ColumnNames{"blob"} }, row: map[string]string{"blob": `\336\255`}, want: RowError{column: "blob", reason: "bytea is not in hex form; the session's bytea_output was changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(defaultConfig(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			err = r.Route(tx, 0, row(outboxTable(), tc.row), new(sink.Record))
			got, ok := errors.AsType[*RowError](err)
			if !ok {
				t.Fatalf("error is %v, want a RowError", err)
			}
			if tc.want.table = "public.outbox"; tc.row["id"] != null {
				tc.want.ID = "5f0c7a7e-0000-7000-8000-000000000001"
			}
			if *got != tc.want {
				t.Errorf("error is %+v, want %+v", *got, tc.want)
			}
		})
	}
}

func TestUnsentValues(t *testing.T) {
	r, err := New(defaultConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[decoder.Kind]string{
		decoder.Unchanged: "the value was not sent (unchanged TOAST)",
		decoder.Binary:    "the value came in binary form, which was not asked for",
	} {
		ins := row(outboxTable(), nil)
		ins.Row[5] = decoder.Value{Kind: kind, Data: []byte("x")}
		if err := r.Route(tx, 0, ins, new(sink.Record)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error is %v, want …%s", err, want)
		}
	}
}

func TestColumns(t *testing.T) {
	narrow := &decoder.Relation{Namespace: "app", Name: "events", Columns: []decoder.Column{
		{Name: "id", TypeOID: oidUUID}, {Name: "aggregatetype", TypeOID: oidText}, {Name: "payload", TypeOID: oidText}, {Name: "shard", TypeOID: oidText},
	}}
	for name, tc := range map[string]struct {
		config func(*Config)
		want   []string
	}{
		"defaults": {want: []string{`no column "aggregateid" (outbox.columns.key)`, `no column "type" (outbox.columns.type)`}},
		"all kinds": {
			config: func(c *Config) {
				c.Columns = Columns{ID: ColumnNames{"id"}, Key: ColumnNames{"id"}, Route: ColumnNames{"aggregatetype"}, Payload: ColumnNames{"payload"}, Headers: ColumnNames{"meta"}}
				c.Topic = "${region}"
				c.Place = []Placement{{Column: "shard", To: ToPartition}, {Column: "who", To: ToHeader}}
			},
			want: []string{
				`no column "meta" (outbox.columns.headers)`, `no column "region" (outbox.topic)`,
				`column "shard" is not an integer (outbox.place[0])`, `no column "who" (outbox.place[1])`,
			},
		},
		"a missing headers column of the default name is fine": {
			config: func(c *Config) { c.Columns.Key, c.Columns.Type = ColumnNames{"id"}, nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(defaultConfig(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			var want error
			if tc.want != nil {
				want = &ColumnError{Table: "app.events", Problems: tc.want, Have: []string{"id", "aggregatetype", "payload", "shard"}}
			}
			if diff := cmp.Diff(want, r.Check(narrow), cmp.AllowUnexported(ColumnError{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// If the definition of a table changes, the stream returns a new *Relation, whose columns may have another order.
func TestDefinitionChanges(t *testing.T) {
	r, err := New(defaultConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	var before, after sink.Record
	if err := r.Route(tx, 0, row(outboxTable(), nil), &before); err != nil {
		t.Fatal(err)
	}
	before.Headers = append([]sink.Header(nil), before.Headers...)
	moved := outboxTable()
	moved.Columns = append(moved.Columns[4:], moved.Columns[:4]...)
	if err := r.Route(tx, 0, row(moved, nil), &after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := New(Config{Names: kafka.Names{}, Topic: "${oops", Place: []Placement{{To: "envelop"}, {Column: "a", To: ToPartition}, {Column: "b", To: ToPartition}}})
	want := strings.Join([]string{
		"columns.id: a column name is needed", "columns.key: a column name is needed",
		"columns.route: a column name is needed", "columns.payload: a column name is needed",
		"place[0].column: a column name is needed", `place[0].to: "envelop" is not one of header, envelope, partition`,
		"place: only one column can be the partition",
		`topic: in "${oops", $ must start ${column} or be written as $$`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("error is\n%v\nwant\n%s", err, want)
	}
}

func TestTemplate(t *testing.T) {
	for template, want := range map[string][]part{
		"":            {{text: "outbox.event."}, {column: "route"}},
		"a$$b":        {{text: "a$b"}},
		"${a}${b}c":   {{column: "a"}, {column: "b"}, {text: "c"}},
		"x.${a}.$$.y": {{text: "x."}, {column: "a"}, {text: ".$.y"}},
	} {
		got, err := parseTemplate(template)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(part{})); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", template, err, diff)
		}
	}
	for _, bad := range []string{"$", "a$b", "${}", "${a", "$}a}"} {
		if _, err := parseTemplate(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// Routing a row allocates nothing, even with headers and bytea.
func TestAllocations(t *testing.T) {
	r, err := New(defaultConfig(func(c *Config) { c.Place, c.LSNHeader = []Placement{{Column: "blob", To: ToHeader}}, true }))
	if err != nil {
		t.Fatal(err)
	}
	ins := row(outboxTable(), map[string]string{"headers": `{"traceparent": "00-ab-cd-01", "n": 1}`, "blob": `\x0102`})
	var rec sink.Record
	if n := testing.AllocsPerRun(1000, func() { _ = r.Route(tx, 0, ins, &rec) }); n > 0 {
		t.Errorf("%v allocations per row", n)
	}
}

func BenchmarkRoute(b *testing.B) {
	for name, headers := range map[string]string{"plain": null, "headers": `{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`} {
		b.Run(name, func(b *testing.B) {
			r, err := New(defaultConfig(func(c *Config) { c.LSNHeader = true }))
			if err != nil {
				b.Fatal(err)
			}
			ins := row(outboxTable(), map[string]string{"headers": headers})
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

func TestFixedTopic(t *testing.T) {
	for _, tt := range []struct {
		topic string
		rules []TopicRule
		want  string
	}{
		{"orders", nil, "orders"},
		{"", nil, ""}, // the default requires a column
		{"orders.${type}", nil, ""},
		{"a.b", []TopicRule{{Match: `(.*)\.(.*)`, Replace: "$2-$1"}}, "b-a"},
		{"$$", nil, ""}, // not a legal topic name
	} {
		if got := (Config{Names: kafka.Names{}, Topic: tt.topic, TopicRules: tt.rules}).FixedTopic(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.topic, got, tt.want)
		}
	}
}

// TestLargeRowIsGivenBack: the router releases the memory of a large row with the next record.
func TestLargeRowIsGivenBack(t *testing.T) {
	table := outboxTable()
	for i := range table.Columns {
		if table.Columns[i].Name == "payload" {
			table.Columns[i].TypeOID = oidBytea
		}
	}
	r, err := New(defaultConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	route := func(payload string) weak.Pointer[byte] {
		var rec sink.Record
		if err := r.Route(tx, 0, row(table, map[string]string{"payload": payload}), &rec); err != nil {
			t.Fatal(err)
		}
		return weak.Make(&rec.Value[0])
	}
	held := route(`\x` + strings.Repeat("61", 2*largeScratch))
	route(`\x61`)
	runtime.GC()
	if held.Value() != nil {
		t.Error("the large value is still in memory")
	}
	runtime.KeepAlive(r)
}
