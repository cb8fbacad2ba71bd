package encode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The trace context column becomes headers, in any of its formats. They come after the row's own headers, and do
// not repeat them.
func TestTraceContext(t *testing.T) {
	const state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
	for name, tc := range map[string]struct{ column, headers, want string }{
		"a traceparent":        {column: traceparent, want: "traceparent " + traceparent},
		"nothing":              {column: null},
		"empty":                {column: ""},
		"something else":       {column: "b3 0", want: "traceparent b3 0"},
		"an object":            {column: `{"traceparent": "` + traceparent + `", "tracestate": "` + state + `", "baggage": "a=b", "none": null}`, want: "traceparent " + traceparent + "\ntracestate " + state + "\nbaggage a=b"},
		"no object":            {column: `{"traceparent": "`, want: `traceparent {"traceparent": "`},
		"properties":           {column: "#Sat Nov 21 22:00:00 UTC 2026\ntraceparent=" + traceparent + "\n", want: "traceparent " + traceparent},
		"escaped properties":   {column: "!x\r\n\ntracestate=" + strings.ReplaceAll(state, "=", `\=`) + "\r\ntraceparent = " + traceparent, want: "tracestate " + state + "\ntraceparent " + traceparent},
		"64 MiB of brackets":   {column: "{" + strings.Repeat("[", 64<<20)},
		"nested":               {column: `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}", want: `traceparent {"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}"},
		"a header of the name": {headers: `{"traceparent": "` + traceparent + `"}`, column: `{"traceparent": "other", "tracestate": "a=b"}`, want: "traceparent " + traceparent + "\ntracestate a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(defaultConfig(func(c *Config) {
				c.Columns.TraceContext = ColumnNames{"tenant"}
			}))
			if err != nil {
				t.Fatal(err)
			}
			if tc.headers == "" {
				tc.headers = null
			}
			var rec sink.Record
			if err := r.Route(tx, 0, row(outboxTable(), map[string]string{"tenant": tc.column, "headers": tc.headers}), &rec); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range rec.Headers[2:] {
				got = append(got, fmt.Sprintf("%s %s", h.Key, h.Value))
			}
			if strings.Join(got, "\n") != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// If the configured column is missing, the router rejects the table.
func TestTraceContextColumnMissing(t *testing.T) {
	r, err := New(defaultConfig(func(c *Config) { c.Columns.TraceContext = ColumnNames{"trace"} }))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(outboxTable()); err == nil || !strings.Contains(err.Error(), `no column "trace" (outbox.columns.trace_context)`) {
		t.Errorf("%v", err)
	}
}

// The trace context allocates nothing either.
func TestTraceContextAllocations(t *testing.T) {
	r, err := New(defaultConfig(func(c *Config) { c.Columns.TraceContext = ColumnNames{"tenant"} }))
	if err != nil {
		t.Fatal(err)
	}
	var rec sink.Record
	for _, column := range []string{traceparent, `{"traceparent": "` + traceparent + `", "tracestate": "a=b"}`} {
		ins := row(outboxTable(), map[string]string{"tenant": column})
		if n := testing.AllocsPerRun(1000, func() { _ = r.Route(tx, 0, ins, &rec) }); n > 0 {
			t.Errorf("%v allocations for %s", n, column)
		}
	}
}

// FuzzTraceContext: for any content of the column, the row becomes a record.
func FuzzTraceContext(f *testing.F) {
	f.Add(traceparent)
	f.Add("#x\na\\=b=c\\")
	f.Add(`{"a": {"b": [1]}, "": ""}`)
	r, err := New(defaultConfig(func(c *Config) { c.Columns.TraceContext = ColumnNames{"tenant"} }))
	if err != nil {
		f.Fatal(err)
	}
	ins := row(outboxTable(), nil)
	at := 0
	for i, c := range ins.Relation.Columns {
		if c.Name == "tenant" {
			at = i
		}
	}
	f.Fuzz(func(t *testing.T, column string) {
		var rec sink.Record
		ins.Row[at] = decoder.Value{Kind: decoder.Text, Data: []byte(column)}
		if err := r.Route(tx, 0, ins, &rec); err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, h := range rec.Headers {
			if names[h.Key] || h.Value == nil {
				t.Errorf("%q gives %q", column, rec.Headers)
			}
			names[h.Key] = true
		}
	})
}
