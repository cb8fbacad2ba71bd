package owner

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// ofTable returns a message about the table of outboxRelation as one about another table.
func ofTable(b []byte, oid uint32) []byte {
	b = append([]byte(nil), b...)
	binary.BigEndian.PutUint32(b[1:], oid)
	return b
}

// named returns the Relation message of another table.
func named(oid uint32, name string, columns ...string) []byte {
	return ofTable([]byte(strings.Replace(string(streamtest.RelationOf(columns...)), "public\x00outbox\x00", "public\x00"+name+"\x00", 1)), oid)
}

// truncateOf returns a Truncate message of one table.
func truncateOf(oid uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{'T', 0, 0, 0, 1, 0}, oid)
}

// The rows of neighbours are skipped, whatever columns they have and whatever happens to them. Those of a table that the catalog does
// not publish any more are relayed if they could be events.
func TestPumpSkipsNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hb, archive, dropped, other = 1, 2, 3, 4
		row := func(oid uint32, key, n string) []byte {
			return ofTable(streamtest.InsertOf("id-"+n, "order", key, "T", n), oid)
		}
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			streamtest.Begin(100),
			streamtest.WALData(named(hb, "hb", "id")), streamtest.WALData(ofTable(streamtest.InsertOf("1"), hb)), streamtest.WALData(truncateOf(hb)),
			streamtest.OutboxRelation(), streamtest.Insert("a", 1),
			streamtest.WALData(named(archive, "archive", streamtest.OutboxColumns()...)), streamtest.WALData(row(archive, "b", "2")),
			streamtest.WALData(named(dropped, "outbox_0", streamtest.OutboxColumns()...)), streamtest.WALData(row(dropped, "c", "3")), streamtest.WALData(row(dropped, "c", "4")),
			streamtest.WALData(named(other, "old_hb", "id")), streamtest.WALData(ofTable(streamtest.InsertOf("1"), other)), streamtest.WALData(ofTable(streamtest.InsertOf("2"), other)),
			streamtest.Insert("a", 5), streamtest.Commit(100, 110),
		}}
		prod := newScriptedProducer()
		s, log := newTestSessionWith(t, settings{tables: []string{"outbox"}}, src, prod, 0)
		state := streamtest.OutboxCatalog()
		state.Publication.Tables = append(state.Publication.Tables, catalog.Table{OID: hb, Schema: "public", Name: "hb"}, catalog.Table{OID: archive, Schema: "public", Name: "archive"})
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), state, func(t catalog.Table) bool { return t.OID == archive })
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), state, func(known catalog.Table) bool {
			t.Errorf("the columns of %s are looked at again", known.Name)
			return true
		})
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
			t.Errorf("session ended with %v", err)
		}
		if got, want := prod.records(), "a/1 c/3 c/4 a/5"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		for _, line := range []string{"table=public.hb", "table=public.archive", "add it to outbox.tables", "table=public.outbox_0", "table=public.old_hb"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%d log lines with %q:\n%s", n, line, log)
			}
		}
	})
}

// The rows of a table that the catalog does not publish any more are not skipped because of the type of a column, or because they
// lack one that the configuration adds.
func TestPumpStopsAtUnsuitableColumnsOfADroppedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dropped = 1
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			streamtest.Begin(100), streamtest.WALData(named(dropped, "outbox_0", streamtest.OutboxColumns()...)), streamtest.WALData(ofTable(streamtest.InsertOf("id-1", "order", "k", "T", "1"), dropped)), streamtest.Commit(100, 110),
		}}
		prod := newScriptedProducer()
		cfg := settings{tables: []string{"outbox"}}
		cfg.route.Place = []encode.Placement{{Column: "tenant", To: encode.ToHeader}}
		s, _ := newTestSessionWith(t, cfg, src, prod, 0)
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), streamtest.OutboxCatalog(), func(catalog.Table) bool { return true })
		err := s.run(t.Context())
		if !isA[*encode.ColumnError](err) || fault.ExitCode(err) != exit.NoDelivery || !strings.Contains(err.Error(), `"tenant"`) || prod.records() != "" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
	})
}

// A neighbour that may have been a part of an outbox is relayed up to the position where the catalog shows it as a neighbour, also
// if the stream repeats its definition later.
func TestPumpRelaysFormerParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const detached, archive = 1, 2
		row := func(oid uint32, n string) []byte {
			return ofTable(streamtest.InsertOf("id-"+n, "order", "k", "T", n), oid)
		}
		define := func(oid uint32, name string) *replication.WALData {
			return streamtest.WALData(named(oid, name, streamtest.OutboxColumns()...))
		}
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			streamtest.Begin(100), define(detached, "outbox_0"), streamtest.WALData(row(detached, "1")), define(archive, "archive"), streamtest.WALData(row(archive, "2")), streamtest.Commit(100, 110),
			streamtest.Begin(200), streamtest.WALData(row(detached, "3")), streamtest.Commit(200, 210),
			streamtest.Begin(300), define(detached, "outbox_0"), streamtest.WALData(row(detached, "4")), streamtest.OutboxRelation(), streamtest.Insert("k", 5), streamtest.Commit(300, 310),
		}}
		prod := newScriptedProducer()
		s, log := newTestSessionWith(t, settings{tables: []string{"outbox"}}, src, prod, 0)
		state := streamtest.OutboxCatalog()
		state.Publication.Tables = append(state.Publication.Tables, catalog.Table{OID: detached, Schema: "public", Name: "outbox_0"}, catalog.Table{OID: archive, Schema: "public", Name: "archive"})
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), state, func(catalog.Table) bool { return true })
		asked := 0
		s.catalog.Pasts = func(_ context.Context, table uint32) (catalog.Past, error) {
			asked++
			past := catalog.Past{Until: pglogrepl.LSN(150 * asked)}
			if table == detached {
				past.Change = "attached 7"
			}
			return past, nil
		}
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
			t.Errorf("session ended with %v", err)
		}
		if got, want := prod.records(), "k/1 k/5"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if n := strings.Count(log.String(), "rows=relayed"); n != 1 || !strings.Contains(log.String(), "committed before 0/96") {
			t.Errorf("%d log lines about relayed rows:\n%s", n, log)
		}
	})
}

// A table that is not published any more, but was no part of an outbox since the confirmed position, is a neighbour.
func TestPumpSkipsAnArchiveThatWasRemoved(t *testing.T) {
	for alone, want := range map[bool]string{true: "a/2", false: "k/1 a/2"} {
		synctest.Test(t, func(t *testing.T) {
			const archive = 1
			src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
				streamtest.Begin(100), streamtest.WALData(named(archive, "archive", streamtest.OutboxColumns()...)), streamtest.WALData(ofTable(streamtest.InsertOf("id-1", "order", "k", "T", "1"), archive)),
				streamtest.OutboxRelation(), streamtest.Insert("a", 2), streamtest.Commit(100, 110),
			}}
			prod := newScriptedProducer()
			s, log := newTestSessionWith(t, settings{tables: []string{"outbox"}}, src, prod, 0)
			s.owner.cfg.Pump.Neighbours.Update(t.Context(), streamtest.OutboxCatalog(), func(catalog.Table) bool { return true })
			s.catalog.Pasts = func(context.Context, uint32) (catalog.Past, error) { return catalog.Past{Alone: alone}, nil }
			if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
				t.Errorf("session ended with %v", err)
			}
			if got := prod.records(); got != want || strings.Count(log.String(), "table=public.archive") != 1 {
				t.Errorf("alone %t: sent %s, want %s\n%s", alone, got, want, log)
			}
		})
	}
}

// The catalog is asked about a neighbour once, not at each row between those of the outbox.
func TestPumpRemembersNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const archive = 1
		row := func(n string) *replication.WALData {
			return streamtest.WALData(ofTable(streamtest.InsertOf("id-"+n, "order", "k", "T", n), archive))
		}
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			streamtest.Begin(100), streamtest.WALData(named(archive, "archive", streamtest.OutboxColumns()...)), row("1"), streamtest.OutboxRelation(), streamtest.Insert("a", 2), streamtest.Commit(100, 110),
			streamtest.Begin(200), row("3"), streamtest.Insert("a", 4), row("5"), streamtest.Commit(200, 210),
		}}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, settings{tables: []string{"outbox"}}, src, prod, 0)
		state := streamtest.OutboxCatalog()
		state.Publication.Tables = append(state.Publication.Tables, catalog.Table{OID: archive, Schema: "public", Name: "archive"})
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), state, func(catalog.Table) bool { return true })
		asked := 0
		s.catalog.Pasts = func(context.Context, uint32) (catalog.Past, error) {
			asked++
			return catalog.Past{}, nil
		}
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
			t.Errorf("session ended with %v", err)
		}
		if prod.records() != "a/2 a/4" || asked != 1 {
			t.Errorf("sent %s, asked %d times", prod.records(), asked)
		}
	})
}

// A neighbour becomes a part of an outbox, which changes nothing in its definition. The stream repeats it, and all rows after that are
// relayed, whether or not others come in between.
func TestPumpRelaysANeighbourThatWasAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const part = 1
		row := func(n string) *replication.WALData {
			return streamtest.WALData(ofTable(streamtest.InsertOf("id-"+n, "order", "k", "T", n), part))
		}
		define := streamtest.WALData(named(part, "outbox_1", streamtest.OutboxColumns()...))
		src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
			streamtest.Begin(100), define, row("1"), streamtest.Commit(100, 110),
			streamtest.Begin(200), define, row("2"), streamtest.Commit(200, 210), streamtest.Begin(300), row("3"), streamtest.Commit(300, 310),
		}}
		prod := newScriptedProducer()
		s, _ := newTestSessionWith(t, settings{tables: []string{"outbox"}}, src, prod, 0)
		state := streamtest.OutboxCatalog()
		state.Publication.Tables = append(state.Publication.Tables, catalog.Table{OID: part, Schema: "public", Name: "outbox_1"})
		s.owner.cfg.Pump.Neighbours.Update(t.Context(), state, func(catalog.Table) bool { return true })
		s.catalog.State = state
		s.catalog.Pasts = func(context.Context, uint32) (catalog.Past, error) {
			later := *state
			later.Outboxes = []catalog.Outbox{{Configured: "outbox", Parts: append(slices.Clone(state.Outboxes[0].Parts), catalog.Part{OID: part, Schema: "public", Name: "outbox_1"})}}
			s.catalog.State = &later
			return catalog.Past{Until: 150}, nil
		}
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
			t.Errorf("session ended with %v", err)
		}
		if prod.records() != "k/2 k/3" {
			t.Errorf("sent %s", prod.records())
		}
	})
}
