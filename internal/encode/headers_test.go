package encode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A row cannot set a header that only the relay may set. The headers column with such a name, in any spelling, is
// an error of the row. In a trace context the router ignores it.
func TestOwnHeaders(t *testing.T) {
	own := []string{"id", "eventType", "lsn", "outbox_timestamp", "dead_letter_reason", "dead_letter_of_later_versions", `\u0069d`}
	r, err := New(defaultConfig(func(c *Config) { c.Columns.TraceContext, c.LSNHeader = ColumnNames{"tenant"}, true }))
	if err != nil {
		t.Fatal(err)
	}
	var rec sink.Record
	for _, name := range own {
		object := `{"a": "1", "` + name + `": "mine"}`
		err := r.Route(tx, 0, row(outboxTable(), map[string]string{"headers": object}), &rec)
		if _, ok := errors.AsType[*RowError](err); !ok || strings.Contains(err.Error(), "mine") {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Route(tx, 0, row(outboxTable(), map[string]string{"tenant": object}), &rec); err != nil {
			t.Errorf("%s in a trace context: %v", name, err)
		}
		var names []string
		for _, h := range rec.Headers {
			names = append(names, h.Key)
		}
		if diff := cmp.Diff([]string{"id", "eventType", "lsn", "a"}, names); diff != "" {
			t.Errorf("%s in a trace context (-want +got):\n%s", name, diff)
		}
	}
	if err := r.Route(tx, 0, row(outboxTable(), map[string]string{"headers": `{"ID": "1", "dead": "x", "outbox": "x"}`}), &rec); err != nil {
		t.Error(err)
	}
}

// Without the relay's header lsn, a row may have one, as with Debezium. A row that is read from a table has no position, and the
// relay adds no such header.
func TestRowWithoutAPosition(t *testing.T) {
	for _, tc := range []struct {
		ours bool
		tx   Tx
		want string
	}{{false, tx, "mine"}, {true, Tx{Timestamp: tx.Timestamp}, ""}} {
		r, err := New(defaultConfig(func(c *Config) { c.LSNHeader = tc.ours }))
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{"headers": null}
		if tc.want != "" {
			values["headers"] = `{"lsn": "mine"}`
		}
		var rec sink.Record
		if err := r.Route(tc.tx, 0, row(outboxTable(), values), &rec); err != nil {
			t.Fatal(err)
		}
		var got string
		for _, h := range rec.Headers {
			if h.Key == "lsn" {
				got += string(h.Value)
			}
		}
		if got != tc.want {
			t.Errorf("headers.lsn %t: header lsn %q, want %q", tc.ours, got, tc.want)
		}
	}
}

// The number of headers of a row is limited, since each uses memory.
func TestManyHeaders(t *testing.T) {
	r, err := New(defaultConfig(func(*Config) {}))
	if err != nil {
		t.Fatal(err)
	}
	var rec sink.Record
	for members, refused := range map[int]bool{maxMembers: false, maxMembers + 1: true} {
		object := "{" + strings.Repeat(`"a": 1, `, members-1) + `"a": 1}`
		err := r.Route(tx, 0, row(outboxTable(), map[string]string{"headers": object}), &rec)
		if _, ok := errors.AsType[*RowError](err); ok != refused || err != nil && !strings.Contains(err.Error(), "has more than 1600 members") {
			t.Errorf("%d members: %v", members, err)
		}
	}
}
