package pump

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// Neighbours tells the outbox tables from the other tables of the publication, whose rows the relay skips. The watcher reads the
// catalog into it, and the pump asks it about each relation of the stream.
//
// A row belongs to the table that it was written to. The stream has the name that this table had then, and its identity; the
// catalog has the present. So a table is an outbox if it had the name of one, or if it is a part of one now. A table that the
// catalog does not publish any more, such as a dropped or detached partition, is an outbox if it has the columns of one and was
// never a neighbour: to skip its rows would lose them. For the same reason, a neighbour that may have been a part of an outbox
// while unconfirmed rows were written is one up to the position where the catalog shows it as a neighbour.
type Neighbours struct {
	log *slog.Logger

	mu      sync.Mutex
	names   map[tableName]bool  // of the outbox tables in the configuration
	renamed map[namedTable]bool // outbox tables, under each name that they had while the process ran
	tables  map[string]uint32   // OIDs of the outbox tables, by their names in the configuration
	relayed map[uint32]bool     // OIDs of outbox tables and their parts
	skipped map[uint32]bool     // OIDs of neighbours
	former  map[uint32]former   // neighbours that may have been a part of an outbox, by OID
	told    map[told]bool       // logged
	present []string            // neighbours in the newest catalog
}

type tableName struct{ schema, name string }

// A namedTable is a table with a name that it had. Another table with the name is another one.
type namedTable struct {
	oid uint32
	tableName
}

// A former is a neighbour whose rows are relayed up to a position.
type former struct {
	change string // [catalog.Past.Change]
	until  pglogrepl.LSN
}

// A told is a log line about a table.
type told struct {
	tableName
	rows string
}

// NewNeighbours returns the Neighbours of a process.
func NewNeighbours(log *slog.Logger) *Neighbours {
	return &Neighbours{
		log: log, names: make(map[tableName]bool), renamed: make(map[namedTable]bool), tables: make(map[string]uint32),
		relayed: make(map[uint32]bool), skipped: make(map[uint32]bool), former: make(map[uint32]former), told: make(map[told]bool),
	}
}

// Update takes the tables of a catalog, and logs each new neighbour. hasColumns reports whether rows of a table could become
// records.
func (n *Neighbours) Update(ctx context.Context, state *catalog.State, hasColumns func(catalog.Table) bool) {
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
		delete(n.relayed, t.OID) // a partition, for example, that is detached now
		n.skipped[t.OID] = true
		name := tableName{t.Schema, t.Name}
		if n.told[told{name, "skipped"}] {
			continue
		}
		hint := "Postgres decodes and sends its changes for nothing: a publication for the outbox tables alone avoids that"
		switch {
		case hasColumns(t) && state.Messages:
			hint = "it has the columns of an outbox, and outbox.messages takes messages in place of tables: if its rows are events, run another relay for it"
		case hasColumns(t):
			hint = "it has the columns of an outbox: if its rows are events, add it to outbox.tables; if it was an outbox, the rows from before its renaming are relayed all the same"
		}
		n.announce(ctx, name, "skipped", hint)
	}
}

// takeName takes a table of the configuration. It has the configured name, unless it was taken before and has another name now.
func (n *Neighbours) takeName(configured string, table catalog.Part) {
	name := tableName{table.Schema, table.Name}
	if n.tables[configured] != table.OID {
		n.names[name] = true
	}
	n.tables[configured] = table.OID
	n.renamed[namedTable{table.OID, name}] = true
}

// announce logs what happens to the rows of a table, once.
func (n *Neighbours) announce(ctx context.Context, t tableName, rows, hint string) {
	if !n.told[told{t, rows}] {
		n.told[told{t, rows}] = true
		n.log.WarnContext(ctx, "published table is not in outbox.tables", slog.String("table", t.schema+"."+t.name), slog.String("rows", rows), slog.String("hint", hint))
	}
}

// List returns the names of the neighbours in the newest catalog.
func (n *Neighbours) List() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.present
}

// known reports whether rows of rel are relayed. ok is false if the catalog has not had the table yet.
func (n *Neighbours) known(rel *decoder.Relation) (relayed, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names[tableName{rel.Namespace, rel.Name}] || n.relayed[rel.OID] {
		return true, true
	}
	return false, n.skipped[rel.OID]
}

// relayUntil returns the position up to which rows of rel, a neighbour, are relayed. It is 0 if rel was none but a neighbour.
func (n *Neighbours) relayUntil(ctx context.Context, rel *decoder.Relation, past catalog.Past) pglogrepl.LSN {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := tableName{rel.Namespace, rel.Name}
	change := past.Change
	if change == "" && n.renamed[namedTable{rel.OID, name}] {
		change = "renamed"
	}
	if change == "" {
		return 0
	}
	f, ok := n.former[rel.OID]
	if !ok || f.change != change {
		f = former{change, past.Until}
		n.former[rel.OID] = f
		n.announce(ctx, name, "relayed",
			"those that were committed before "+f.until.String()+": until then it may have been a part of an outbox, which was attached, detached or renamed meanwhile")
	}
	return f.until
}

// decide remembers whether rows of a relation are relayed that the catalog does not publish any more.
// hint says why they are skipped.
func (n *Neighbours) decide(ctx context.Context, rel *decoder.Relation, relayed bool, hint string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := tableName{rel.Namespace, rel.Name}
	if relayed {
		n.relayed[rel.OID] = true
		n.announce(ctx, name, "relayed",
			"it is not published any more, and has the columns of an outbox: a partition that was dropped or detached after these rows were written")
		return
	}
	n.skipped[rel.OID] = true
	n.announce(ctx, name, "skipped", hint)
}
