package relay

import (
	"context"
	"log/slog"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// neighbours tells the outbox tables from the other tables of the publication, whose rows the relay skips. The watcher reads the
// catalog into it, and the pump asks it about each relation of the stream.
//
// A row belongs to the table that it was written to. The stream has the name that this table had then, and its identity; the
// catalog has the present. So a table is an outbox if it had the name of one, or if it is a part of one now. A table that the
// catalog does not publish any more, such as a dropped or detached partition, is an outbox if it has the columns of one and was
// never a neighbour: to skip its rows would lose them.
type neighbours struct {
	log *slog.Logger

	mu      sync.Mutex
	names   map[tableName]bool // of the outbox tables
	tables  map[string]uint32  // OIDs of the outbox tables, by their names in the configuration
	relayed map[uint32]bool    // OIDs of outbox tables and their parts; a part stays one while the process runs
	skipped map[uint32]bool    // OIDs of neighbours
	told    map[tableName]bool // logged
	present []string           // neighbours in the newest catalog
}

type tableName struct{ schema, name string }

func newNeighbours(log *slog.Logger) *neighbours {
	return &neighbours{
		log: log, names: make(map[tableName]bool), tables: make(map[string]uint32), relayed: make(map[uint32]bool), skipped: make(map[uint32]bool),
		told: make(map[tableName]bool),
	}
}

// update takes the tables of a catalog, and logs each new neighbour. hasColumns reports whether rows of a table could become
// records.
func (n *neighbours) update(ctx context.Context, state *catalog.State, hasColumns func(catalog.Table) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range state.Outboxes {
		for j, part := range state.Outboxes[i].Parts {
			if j == 0 {
				n.takeName(state.Outboxes[i].Configured, part)
			}
			n.relayed[part.OID] = true
			delete(n.skipped, part.OID)
		}
	}
	for _, t := range state.Carriers() {
		n.relayed[t.OID] = true
	}
	n.present = nil
	for _, t := range state.Neighbours() {
		n.present = append(n.present, t.Schema+"."+t.Name)
		if n.relayed[t.OID] { // it was a part of an outbox, such as a partition that is detached now
			continue
		}
		n.skipped[t.OID] = true
		hint := "Postgres decodes and sends its changes for nothing: a publication for the outbox tables alone avoids that"
		switch {
		case hasColumns(t) && state.Messages:
			hint = "it has the columns of an outbox, and outbox.messages takes messages in place of tables: if its rows are events, run another relay for it"
		case hasColumns(t):
			hint = "it has the columns of an outbox: if its rows are events, add it to outbox.tables"
		}
		n.tell(ctx, tableName{t.Schema, t.Name}, "skipped", hint)
	}
}

// takeName takes a table of the configuration. If another table had its name before, that one is relayed only for rows that were
// written under the name.
func (n *neighbours) takeName(configured string, table catalog.Part) {
	if was, ok := n.tables[configured]; ok && was != table.OID {
		delete(n.relayed, was)
	}
	n.tables[configured] = table.OID
	n.names[tableName{table.Schema, table.Name}] = true
}

// tell logs what happens to the rows of a table, once.
func (n *neighbours) tell(ctx context.Context, t tableName, rows, hint string) {
	if !n.told[t] {
		n.told[t] = true
		n.log.WarnContext(ctx, "published table is not in outbox.tables", slog.String("table", t.schema+"."+t.name), slog.String("rows", rows), slog.String("hint", hint))
	}
}

// list returns the names of the neighbours in the newest catalog.
func (n *neighbours) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.present
}

// known reports whether rows of rel are relayed. ok is false if the catalog has not had the table yet.
func (n *neighbours) known(rel *decoder.Relation) (relayed, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names[tableName{rel.Namespace, rel.Name}] || n.relayed[rel.OID] {
		return true, true
	}
	return false, n.skipped[rel.OID]
}

// decide remembers whether rows of a relation are relayed that the catalog does not publish any more.
func (n *neighbours) decide(ctx context.Context, rel *decoder.Relation, relayed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := tableName{rel.Namespace, rel.Name}
	if relayed {
		n.relayed[rel.OID] = true
		n.tell(ctx, name, "relayed",
			"it is not published any more, and has the columns of an outbox: a partition that was dropped or detached after these rows were written")
		return
	}
	n.skipped[rel.OID] = true
	n.tell(ctx, name, "skipped", "it is not published any more, and has not the columns of an outbox")
}

// relays reports whether rows of rel become records. It reads the catalog if it does not know the table.
func (p *pump) relays(ctx context.Context, rel *decoder.Relation) (bool, error) {
	if rel == p.relation {
		return p.relayed, nil
	}
	relayed, ok := p.neighbours.known(rel)
	if !ok && p.lookUp != nil {
		if err := p.lookUp(ctx); err != nil {
			return false, err
		}
		relayed, ok = p.neighbours.known(rel)
	}
	if !ok {
		err := p.router.Check(rel)
		if err != nil && !as[*encode.ColumnError](err) {
			return false, err
		}
		relayed = err == nil
		p.neighbours.decide(ctx, rel, relayed)
	}
	p.relation, p.relayed = rel, relayed
	return relayed, nil
}
