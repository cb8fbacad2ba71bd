package encode

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// TestCatalog: the router asks the catalog only if the stream does not contain enough, and once per table
// definition. An error of the catalog is not an error of a row or table.
func TestCatalog(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		asked  int
	}{
		"columns' own bytes": {config: defaultConfig(nil)},
		"built-in types":     {config: debezium(func(c *Config) { c.Place = place(ToHeader, "amount", "tags") })},
		"a domain's bytes":   {config: defaultConfig(func(c *Config) { c.Place = place(ToHeader, "blob_domain") }), asked: 1},
		"a domain":           {config: debezium(func(c *Config) { c.Place = place(ToHeader, "blob_domain") }), asked: 1},
		"schemas":            {config: debezium(func(c *Config) { c.Encoding.Value = format.JSONSchema }), asked: 1},
		"exact":              {config: debezium(func(c *Config) { c.Debezium.Exact = true }), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			r.SetDescribe(func(rel *decoder.Relation) ([]format.Column, error) { asked++; return catalog(rel) })
			rel := typedTable()
			for range 2 {
				if err := r.Route(tx, 0, row(rel, nil), new(sink.Record)); err != nil {
					t.Fatal(err)
				}
			}
			if asked != tc.asked {
				t.Errorf("asked %d times, want %d", asked, tc.asked)
			}
			down := errors.New("server is starting")
			r.SetDescribe(func(*decoder.Relation) ([]format.Column, error) { return nil, down })
			if err := r.Check(typedTable()); (tc.asked > 0) != errors.Is(err, down) {
				t.Errorf("Check = %v", err)
			}
			r.SetDescribe(nil)
			if err := r.Check(typedTable()); (tc.asked > 0) != (err != nil) {
				t.Errorf("Check without a catalog = %v", err)
			}
		})
	}
}

// TestTableOfAnotherTime: for built-in types, the stream takes precedence over the catalog, which may be newer. A
// column that the catalog no longer has can still be used.
func TestTableOfAnotherTime(t *testing.T) {
	r := newRouter(t, debezium(func(c *Config) { c.Encoding.Key, c.Place = format.JSONSchema, place(ToHeader, "attempt") }))
	r.SetDescribe(func(*decoder.Relation) ([]format.Column, error) {
		return []format.Column{{Name: "aggregateid", Type: format.Type{OID: oidInt8, Name: "int8", Kind: 'b', Modifier: -1}}}, nil
	})
	var rec sink.Record
	if err := r.Route(tx, 0, row(typedTable(), map[string]string{"attempt": "5"}), &rec); err != nil {
		t.Fatal(err)
	}
	if got, want := string(rec.Key), `{"schema":{"type":"string","optional":false},"payload":"order-7"}`; got != want {
		t.Errorf("key is %s, want %s", got, want)
	}
}

// TestDroppedTypes: if the catalog does not have a type any more, the name in the stream says what its values are. A part that
// needs more of it stops the relay, and the bytes of a row are never others.
func TestDroppedTypes(t *testing.T) {
	gone := func(*decoder.Relation) ([]format.Column, error) { return nil, nil }
	for name, tc := range map[string]struct {
		namespace, typ string
		value          string
		change         func(*Config)
		want           string // of header x, or a part of the error
	}{
		"domain over bytea":                      {"", "bytea", `\x6869`, nil, "hi"},
		"domain over bytea, encoded":             {"", "bytea", `\x6869`, encodeHeaders(format.JSON), `"aGk="`},
		"domain over text, encoded":              {"", "text", `hi`, encodeHeaders(format.JSON), `"hi"`},
		"domain over int8, with a schema":        {"", "int8", `7`, encodeHeaders(format.JSONSchema), `{"schema":{"type":"int64","optional":true},"payload":7}`},
		"domain over text[]":                     {"", "_text", `{a,b}`, encodeHeaders(format.JSON), `["a","b"]`},
		"type of an extension":                   {"public", "citext", `hi`, encodeHeaders(format.JSON), `"hi"`},
		"enum":                                   {"public", "mood", `sad`, nil, `sad`},
		"enum, encoded":                          {"public", "mood", `sad`, encodeHeaders(format.JSON), `was of type mood`},
		"domain over numeric":                    {"", "numeric", `1.50`, nil, `1.50`},
		"domain over numeric, encoded":           {"", "numeric", `1.50`, encodeHeaders(format.JSON), `was of type numeric, or of a domain over it, which was dropped`},
		"domain over numeric, as text":           {"", "numeric", `1.50`, func(c *Config) { encodeHeaders(format.JSON)(c); c.Debezium.Modes.Decimal = "string" }, `"1.50"`},
		"domain over timestamptz[], with schema": {"", "_timestamptz", `{}`, encodeHeaders(format.JSONSchema), `which was dropped`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaultConfig(func(c *Config) {
				c.Place, c.Columns.Headers, c.OnMissingColumn = place(ToHeader, "blob_domain"), nil, MissingIgnore
				if tc.change != nil {
					tc.change(c)
				}
			})
			r := newRouter(t, cfg)
			r.SetDescribe(gone)
			rel := typedTable()
			i := slices.IndexFunc(rel.Columns, func(c decoder.Column) bool { return c.Name == "blob_domain" })
			rel.Columns[i].BaseNamespace, rel.Columns[i].BaseName = tc.namespace, tc.typ
			var rec sink.Record
			err := r.Route(tx, 0, row(rel, map[string]string{"blob_domain": tc.value}), &rec)
			got := ""
			for _, h := range rec.Headers {
				if h.Key == "blob_domain" {
					got = string(h.Value)
				}
			}
			if _, refused := errors.AsType[*ColumnError](err); refused {
				if !strings.Contains(err.Error(), tc.want) || !r.HasColumns(rel) {
					t.Errorf("%v, want %s", err, tc.want)
				}
			} else if err != nil || got != tc.want {
				t.Errorf("header %s, want %s; %v", got, tc.want, err)
			}
		})
	}
}

func encodeHeaders(enc format.Encoding) func(*Config) {
	return func(c *Config) { c.Encoding.Headers = enc }
}

// TestDroppedTypeOfATimestamp: the timestamp of a record is read from a domain that is gone, because its text is that of the base type.
func TestDroppedTypeOfATimestamp(t *testing.T) {
	r := newRouter(t, defaultConfig(func(c *Config) { c.Columns.Timestamp = ColumnNames{"blob_domain"} }))
	r.SetDescribe(func(*decoder.Relation) ([]format.Column, error) { return nil, nil })
	rel := typedTable()
	for i := range rel.Columns {
		if rel.Columns[i].Name == "blob_domain" {
			rel.Columns[i].BaseName = "timestamptz"
		}
	}
	var rec sink.Record
	if err := r.Route(tx, 0, row(rel, map[string]string{"blob_domain": "2026-01-02 03:04:05+00"}), &rec); err != nil || rec.Timestamp.Unix() != 1767323045 {
		t.Errorf("%v, %v", rec.Timestamp, err)
	}
}
