package catalog

import (
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A comparison collects the differences between two reads of a publication, as far as they are about outbox tables.
type comparison struct {
	was, now *Publication
	carriers map[uint32]bool // OIDs of the outbox tables in both reads, their parts and the tables of which these are partitions
	parts    map[uint32]Part // the outbox tables and their parts in the later read, by OID
	warnings []Warning

	instruction string // [State.InstructLeftOut]
}

// replaced adds to err if the name of an outbox table belongs to another table than before.
func replaced(was, now *State, err error) error {
	for i := range min(len(was.Outboxes), len(now.Outboxes)) {
		old, current := was.Outboxes[i].Parts, now.Outboxes[i].Parts
		if len(old) == 0 || len(current) == 0 || old[0].OID == current[0].OID || now.Publication == nil {
			continue
		}
		if t := now.Publication.member(old[0].OID); t != nil {
			return fmt.Errorf("%w; another table has this name now: the one that had it is %s", err, t.SQLName())
		}
		return fmt.Errorf("%w; the table was dropped and re-created", err)
	}
	return err
}

func (c *comparison) publications(was, now *State) error {
	c.was, c.now, c.carriers, c.parts, c.instruction = was.Publication, now.Publication, carriers(was, now), now.parts(), now.InstructLeftOut()
	if err := now.checkSince(was.published(c.carriers), "has changed", c.carriers); err != nil {
		return err
	}
	c.options()
	if err := c.members(); err != nil {
		return err
	}
	c.roots(was)
	c.tables()
	return nil
}

// parts returns the outbox tables and their parts by OID.
func (c *State) parts() map[uint32]Part {
	parts := make(map[uint32]Part)
	for _, o := range c.Outboxes {
		for _, p := range o.Parts {
			parts[p.OID] = p
		}
	}
	return parts
}

func (c *comparison) warn(object, format string, args ...any) {
	c.warnings = append(c.warnings, Warning{Object: object, Text: fmt.Sprintf(format, args...)})
}

// options compares the options of CREATE PUBLICATION … WITH.
func (c *comparison) options() {
	was, now, object := c.was, c.now, fmt.Sprintf("publication %q", c.now.Name)
	if now.Update && !was.Update {
		c.warn(object, "it now publishes UPDATEs, and an UPDATE of an outbox row stops the relay unless outbox.on_update is set: ALTER PUBLICATION %s SET (publish = 'insert')", replication.QuoteIdent(now.Name))
	}
	if now.Delete && !was.Delete || now.Truncate && !was.Truncate {
		c.warn(object, "it now publishes DELETEs or TRUNCATEs, and the first one stops the relay: ALTER PUBLICATION %s SET (publish = 'insert'), or restart the relay, which then ignores them", replication.QuoteIdent(now.Name))
	}
	if was.ViaRoot != now.ViaRoot {
		c.warn(object, "publish_via_partition_root is now %t: rows may have their columns in another order", now.ViaRoot)
	}
}

// members compares which tables are published, apart from what [State.CheckPublished] finds.
func (c *comparison) members() error {
	neighbour := func(e entry) bool { return !c.carriers[e.OID] }
	old, current := slices.DeleteFunc(c.was.entries(), neighbour), slices.DeleteFunc(c.now.entries(), neighbour)
	for _, was := range old {
		now, ok := find(current, func(e entry) bool { return e.OID == was.OID })
		_, replaced := find(current, func(e entry) bool { return e.Name == was.Name && e.OID != was.OID })
		switch {
		case ok && replaced:
			c.warn("table "+now.Name, "it was renamed from %s, which is another table now: its rows up to now are delivered, and later ones only if outbox.tables has it", was.Name)
		case ok && now.Name != was.Name:
			c.renamed(now.Name, was.Name)
		case ok:
		case replaced:
			c.warn("table "+was.Name, "it was dropped and re-created; the publication includes it automatically, and no row is left out")
		case was.Membership == 0 && c.was.ViaRoot != c.now.ViaRoot: // a root in place of its partitions, or the reverse
		case c.attached(was, current):
		default:
			return c.noLongerPublished(was)
		}
	}
	return nil
}

// attached reports whether the publication still has a table, which is a partition now: by itself, or through a table above it.
func (c *comparison) attached(was entry, current []entry) bool {
	above := c.parts[was.OID].ancestors
	return c.now.member(was.OID) != nil || slices.ContainsFunc(current, func(e entry) bool { return slices.Contains(above, e.OID) })
}

func (c *comparison) renamed(now, was string) {
	c.warn("table "+now, "it was renamed from %s; its rows are still delivered; if outbox.tables has the old name, change it before the next start", was)
}

// roots compares the names of the outbox tables that are published by their partitions.
func (c *comparison) roots(was *State) {
	entries := c.was.entries()
	for _, o := range was.Outboxes {
		if len(o.Parts) == 0 || slices.ContainsFunc(entries, func(e entry) bool { return e.OID == o.table().OID }) {
			continue
		}
		table := o.table()
		if now, ok := c.parts[table.OID]; ok && now.text() != table.text() {
			c.renamed(now.text(), table.text())
		}
	}
}

// noLongerPublished is the error about a table that the publication had.
func (c *comparison) noLongerPublished(was entry) error {
	what, table := was.Name, was.sql
	how, unless := "it was removed from it, or moved out of its schemas", ""
	switch now, ok := c.parts[was.OID]; {
	case !ok:
		how, unless = "it was removed or dropped (a re-created table must be added again)", ", unless the table is dropped"
	case now.SQLName() != table:
		what, table = fmt.Sprintf("%s, which is %s now,", what, now.text()), now.SQLName()
	}
	return fmt.Errorf("%w: table %s is no longer in publication %q: %s; rows inserted since then are not delivered: run %s%s, then %s",
		replication.ErrPublication, what, c.now.Name, how, c.now.Add(table), unless, c.instruction)
}

// tables compares the columns of each table.
func (c *comparison) tables() {
	for i := range c.now.Tables {
		now := &c.now.Tables[i]
		was := c.was.member(now.OID)
		if was == nil || !c.carriers[now.OID] {
			continue
		}
		c.columns(now.Schema+"."+now.Name, was.Columns, now.Columns)
	}
}

func (c *comparison) columns(table string, was, now []Column) {
	for _, old := range was {
		current, ok := find(now, func(c Column) bool { return c.Name == old.Name })
		switch {
		case !ok:
			c.warn("table "+table, "column %q is no longer published: it was dropped or renamed", old.Name)
		case current.TypeName != old.TypeName:
			c.warn("table "+table, "column %q is now %s and was %s: the text of its values may differ", old.Name, current.TypeName, old.TypeName)
		}
	}
}

// find returns the first element for which wanted returns true.
func find[E any](all []E, wanted func(E) bool) (found E, ok bool) {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return found, false
}
