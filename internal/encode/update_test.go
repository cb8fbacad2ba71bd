package encode

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const otherID = "5f0c7a7e-0000-7000-8000-000000000002"

// update returns an update of the default row to after, as a table with the relation's replica identity sends it.
func update(rel *decoder.Relation, after map[string]string) *decoder.Update {
	u := &decoder.Update{Relation: rel, New: row(rel, after).Row, Old: row(rel, nil).Row, OldKind: decoder.OldRow}
	if rel.ReplicaIdentity == 'f' {
		return u
	}
	u.OldKind = decoder.OldKey
	for i, c := range rel.Columns {
		if !c.Key {
			u.Old[i] = decoder.Value{Kind: decoder.Null}
		}
	}
	if after["id"] == "" {
		u.Old, u.OldKind = nil, decoder.OldNone
	}
	return u
}

func TestUpdate(t *testing.T) {
	moved, paid := map[string]string{"id": otherID, "payload": "{}"}, map[string]string{"payload": `{"paid": true}`}
	for name, tc := range map[string]struct {
		identity byte
		config   func(*Config)
		after    map[string]string
		want     string // "": dropped
	}{
		"same identity":           {after: paid},
		"same identity, all sent": {identity: 'f', after: paid},
		"new identity": {
			after: moved,
			want:  "id " + otherID,
		},
		"new identity, all sent": {
			identity: 'f', after: moved,
			want: "id " + otherID,
		},
		"new identity, with context": {
			config: func(c *Config) { c.Debezium.ContextHeaders = true },
			after:  moved,
			want: `__debezium.oldkey {"id":"` + eventID + "\"}\n__debezium.context.connectorLogicalName shop\n__debezium.context.taskId 0\n" +
				"__debezium.context.connectorName postgresql\n__debezium.context.runId *\nid " + otherID,
		},
		"new identity, exact": {
			config: func(c *Config) { c.Debezium.Exact, c.Encoding.Headers = true, format.JSONSchema },
			after:  moved,
			want: `__debezium.oldkey {"schema":{"type":"struct","fields":[{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1,"field":"id"}],"optional":false,"name":"shop.public.outbox.Key"},"payload":{"id":"` + eventID + "\"}}\n" +
				`id {"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1},"payload":"` + otherID + `"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := debezium(tc.config)
			cfg.OnUpdate = UpdateWarn
			rel := typedTable()
			if tc.identity != 0 {
				rel.ReplicaIdentity = tc.identity
			}
			r := newRouter(t, cfg)
			var rec sink.Record
			for range 2 {
				routed, err := r.RouteUpdate(tx, 0, update(rel, tc.after), &rec)
				if err != nil || routed != (tc.want != "") {
					t.Fatalf("routed = %t, %v", routed, err)
				}
				if !routed {
					return
				}
				for i := range rec.Headers {
					if rec.Headers[i].Key == "__debezium.context.runId" {
						rec.Headers[i].Value = []byte("*")
					}
				}
				want := "topic outbox.event.order\nkey order-7\nvalue {}\n" + tc.want + "\nat 2026-03-01T11:30:00.123456Z"
				if diff := cmp.Diff(want, lines(&rec)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestUpdateOfALargeRow: Postgres sends an unchanged TOASTed value only with the old row, if the replica identity
// is full.
func TestUpdateOfALargeRow(t *testing.T) {
	r := newRouter(t, debezium(func(c *Config) { c.OnUpdate = UpdateIgnore }))
	for identity, want := range map[byte]string{'f': `{"total": 12345678901234567890.10}`, 'd': ""} {
		rel := typedTable()
		rel.ReplicaIdentity = identity
		u := update(rel, map[string]string{"id": otherID})
		u.New[4] = decoder.Value{Kind: decoder.Unchanged}
		var rec sink.Record
		routed, err := r.RouteUpdate(tx, 0, u, &rec)
		if want != "" {
			if !routed || err != nil || string(rec.Value) != want {
				t.Errorf("%c: routed = %t, %v; value %s", identity, routed, err, rec.Value)
			}
			continue
		}
		if refused, ok := errors.AsType[*RowError](err); !ok || refused.column != "payload" || refused.ID != otherID {
			t.Errorf("%c: error is %v", identity, err)
		}
	}
}

func TestUpdateStops(t *testing.T) {
	for _, policy := range []Updates{"", UpdateStop} {
		r := newRouter(t, debezium(func(c *Config) { c.OnUpdate = policy }))
		routed, err := r.RouteUpdate(tx, 0, update(typedTable(), map[string]string{"id": otherID}), new(sink.Record))
		const want = "row " + otherID + " of public.outbox: was changed by an UPDATE, and only INSERTs are events"
		if _, ok := errors.AsType[*RowError](err); !ok || routed || err.Error() != want {
			t.Errorf("%q: routed = %t, %v", policy, routed, err)
		}
	}
}

// TestUpdateWithoutCatalog: an unavailable catalog is not an error of the row.
func TestUpdateWithoutCatalog(t *testing.T) {
	r := newRouter(t, debezium(func(c *Config) {
		c.OnUpdate, c.Debezium.ContextHeaders, c.Encoding.Headers = UpdateWarn, true, format.JSONSchema
	}))
	rel := typedTable()
	if err := r.Check(rel); err != nil {
		t.Fatal(err)
	}
	down := errors.New("server is starting")
	r.SetDescribe(func(*decoder.Relation) ([]format.Column, error) { return nil, down })
	if _, err := r.RouteUpdate(tx, 0, update(rel, map[string]string{"id": otherID}), new(sink.Record)); !errors.Is(err, down) {
		t.Errorf("error is %v", err)
	}
}
