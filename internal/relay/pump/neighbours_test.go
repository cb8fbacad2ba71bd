package pump

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// A published table that could be an outbox cannot be added to outbox.tables if the relay takes messages in place of tables.
func TestHintToANeighbourWithEvents(t *testing.T) {
	for messages, want := range map[bool]string{false: "add it to outbox.tables", true: "run another relay for it"} {
		log := new(bytes.Buffer)
		state := &catalog.State{Messages: messages, Publication: &catalog.Publication{Tables: []catalog.Table{{OID: 1, Schema: "public", Name: "outbox"}}}}
		NewNeighbours(slog.New(slog.NewTextHandler(log, nil))).Update(t.Context(), state, func(catalog.Table) bool { return true })
		if !strings.Contains(log.String(), "table=public.outbox rows=skipped") || !strings.Contains(log.String(), want) {
			t.Errorf("messages %t: %s, want %q", messages, log, want)
		}
	}
}

// The names that an outbox had while the relay ran are names of that table only: rows of another table that takes one are skipped.
func TestNamesOfARenamedOutbox(t *testing.T) {
	t.Parallel()
	n := NewNeighbours(slog.New(slog.DiscardHandler))
	look := func(oid uint32, name string, others ...catalog.Table) {
		state := &catalog.State{
			Publication: &catalog.Publication{Tables: append([]catalog.Table{{OID: oid, Schema: "public", Name: name}}, others...)},
			Outboxes:    []catalog.Outbox{{Configured: "outbox", Parts: []catalog.Part{{OID: oid, Schema: "public", Name: name}}}},
		}
		n.Update(t.Context(), state, func(catalog.Table) bool { return true })
	}
	relayed := func(oid uint32, name string) bool {
		is, _ := n.known(&decoder.Relation{OID: oid, Namespace: "public", Name: name})
		return is
	}
	look(1, "outbox")
	look(1, "tmp")
	look(1, "outbox")
	look(1, "outbox", catalog.Table{OID: 2, Schema: "public", Name: "tmp"})
	if relayed(2, "tmp") || !relayed(1, "tmp") || !relayed(1, "outbox") {
		t.Error("a table with a former name of the outbox is relayed, or the outbox is not")
	}
	look(1, "events")
	look(3, "outbox", catalog.Table{OID: 1, Schema: "public", Name: "events"})
	events := &decoder.Relation{OID: 1, Namespace: "public", Name: "events"}
	if relayed(1, "events") || n.relayUntil(t.Context(), events, catalog.Past{Until: 7}) != 7 || n.relayUntil(t.Context(), events, catalog.Past{Until: 8}) != 7 {
		t.Error("rows of the former outbox are not relayed up to the position of the first look, or later")
	}
	if !relayed(1, "outbox") || !relayed(3, "outbox") {
		t.Error("rows under the configured name are not relayed")
	}
}
