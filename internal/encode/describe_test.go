package encode

import (
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
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
		"schemas":            {config: debezium(func(c *Config) { c.Encoding.Value = connect.JSONSchema }), asked: 1},
		"exact":              {config: debezium(func(c *Config) { c.Debezium.Exact = true }), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			r.SetDescribe(func(rel *decoder.Relation) ([]connect.Column, error) { asked++; return catalog(rel) })
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
			r.SetDescribe(func(*decoder.Relation) ([]connect.Column, error) { return nil, down })
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
	r := newRouter(t, debezium(func(c *Config) { c.Encoding.Key, c.Place = connect.JSONSchema, place(ToHeader, "attempt") }))
	r.SetDescribe(func(*decoder.Relation) ([]connect.Column, error) {
		return []connect.Column{{Name: "aggregateid", Type: connect.Type{OID: oidInt8, Name: "int8", Kind: 'b', Modifier: -1}}}, nil
	})
	var rec sink.Record
	if err := r.Route(tx, 0, row(typedTable(), map[string]string{"attempt": "5"}), &rec); err != nil {
		t.Fatal(err)
	}
	if got, want := string(rec.Key), `{"schema":{"type":"string","optional":false},"payload":"order-7"}`; got != want {
		t.Errorf("key is %s, want %s", got, want)
	}
}
