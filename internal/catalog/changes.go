package catalog

import (
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A comparison collects what is different between two looks at a publication.
type comparison struct {
	was, now *Publication
	warnings []Warning
}

// An entry is a table that is published by itself, not as a partition of another.
type entry struct {
	oid, membership uint32 // membership 0: the publication is of ALL TABLES or TABLES IN SCHEMA
	name            string
}

// entries returns the tables that a publication names, or finds in its schemas.
func (p *Publication) entries() []entry {
	var all []entry
	for _, m := range p.members {
		all = append(all, entry{m.table, m.oid, m.schema + "." + m.name})
	}
	if !p.AllTables && !p.schemas {
		return all // a table it does not name is a partition, also one that was detached while we read
	}
	for _, t := range p.Tables {
		if !t.partition && !slices.ContainsFunc(all, func(e entry) bool { return e.oid == t.OID }) {
			all = append(all, entry{t.OID, 0, t.Schema + "." + t.Name})
		}
	}
	return all
}

func (c *comparison) publications(was, now *Publication) error {
	c.was, c.now = was, now
	c.options()
	if err := c.members(); err != nil {
		return err
	}
	return c.tables()
}

func (c *comparison) warn(object, format string, args ...any) {
	c.warnings = append(c.warnings, Warning{Object: object, Text: fmt.Sprintf(format, args...)})
}

// options compares what CREATE PUBLICATION says behind WITH.
func (c *comparison) options() {
	was, now, object := c.was, c.now, fmt.Sprintf("publication %q", c.now.Name)
	before := len(c.warnings)
	if was.oid != now.oid {
		c.warn(object, "it was dropped and created again: rows committed in between, if there are any, end the relay when they are read")
	}
	if now.Update && !was.Update {
		c.warn(object, "it publishes UPDATEs now, and one of an outbox row ends the relay, unless outbox.on_update says otherwise: ALTER PUBLICATION %s SET (publish = 'insert')", replication.QuoteIdent(now.Name))
	}
	if now.Delete && !was.Delete || now.Truncate && !was.Truncate {
		c.warn(object, "it publishes DELETEs or TRUNCATEs now, and the first one ends the relay: ALTER PUBLICATION %s SET (publish = 'insert'), or start the relay again to have them ignored", replication.QuoteIdent(now.Name))
	}
	if was.ViaRoot != now.ViaRoot {
		c.warn(object, "publish_via_partition_root is %t now: columns come in the order of other tables", now.ViaRoot)
	}
	same := was.Update == now.Update && was.Delete == now.Delete && was.Truncate == now.Truncate
	if was.version != now.version && same && len(c.warnings) == before {
		c.warn(object, "it was altered, and is as before: if it did not publish inserts in between, rows inserted then are not delivered")
	}
}

// members compares which tables are published.
func (c *comparison) members() error {
	old, current := c.was.entries(), c.now.entries()
	for _, was := range old {
		now, ok := find(current, func(e entry) bool { return e.oid == was.oid })
		if !ok {
			if err := c.compareRemoved(was, current); err != nil {
				return err
			}
			continue
		}
		if now.name != was.name {
			c.warn("table "+now.name, "it was renamed from %s; its rows go on being delivered", was.name)
		}
		if c.readded(was, now) {
			return fmt.Errorf("%w: table %s was removed from publication %q and added again; rows inserted in between, if there are any, are not delivered: send them otherwise, then start again",
				replication.ErrPublication, now.name, c.now.Name)
		}
	}
	for _, now := range current {
		if _, ok := find(old, func(e entry) bool { return e.oid == now.oid || e.name == now.name }); !ok {
			c.warn("table "+now.name, "it is published now; of a transaction that was open at that moment, the earlier rows are not delivered")
		}
	}
	return nil
}

// compareRemoved returns the error about a table that is no longer published.
func (c *comparison) compareRemoved(was entry, current []entry) error {
	again, recreated := find(current, func(e entry) bool { return e.name == was.name })
	switch {
	case recreated && again.membership == 0:
		c.warn("table "+was.name, "it was dropped and created again; the publication has it by itself, and nothing is left out")
	case recreated:
		return fmt.Errorf("%w: table %s was dropped, created again and added to publication %q again; rows inserted before it was added, if there are any, are not delivered: send them otherwise, then start again",
			replication.ErrPublication, was.name, c.now.Name)
	case was.membership == 0 && c.was.ViaRoot != c.now.ViaRoot: // a root in place of its partitions, or the reverse
	default:
		return fmt.Errorf("%w: table %s is not in publication %q any more: it was removed from it, or dropped (one that was created again under the name is not in it); rows inserted since then are not delivered: send them otherwise, and ALTER PUBLICATION %s ADD TABLE <table>, then start again",
			replication.ErrPublication, was.name, c.now.Name, replication.QuoteIdent(c.now.Name))
	}
	return nil
}

// readded reports whether a table was out of the publication for a while. ALTER PUBLICATION
// SET TABLE makes the membership anew too, in one step, but only to change what comes of
// the table.
func (c *comparison) readded(was, now entry) bool {
	if was.membership == 0 || now.membership == 0 || was.membership == now.membership || c.was.oid != c.now.oid {
		return false
	}
	a, b := c.was.member(was.oid), c.now.member(was.oid)
	return a == nil || b == nil || a.RowFilter == b.RowFilter && slices.Equal(columnNames(a), columnNames(b))
}

// tables compares what comes of each table.
func (c *comparison) tables() error {
	for i := range c.now.Tables {
		now := &c.now.Tables[i]
		was := c.was.member(now.OID)
		if was == nil {
			continue
		}
		name := now.Schema + "." + now.Name
		switch {
		case was.RowFilter == now.RowFilter:
		case now.RowFilter == "":
			c.warn("table "+name, "its row filter was removed: all its rows are delivered now, those held back before are not")
		default:
			return fmt.Errorf("%w: table %s has another row filter in publication %q: rows that do not meet it are not delivered; remove it with ALTER PUBLICATION %s SET TABLE, or start again if it is meant",
				replication.ErrPublication, name, c.now.Name, replication.QuoteIdent(c.now.Name))
		}
		c.columns(name, was.Columns, now.Columns)
	}
	return nil
}

func (c *comparison) columns(table string, was, now []Column) {
	for _, old := range was {
		current, ok := find(now, func(c Column) bool { return c.Name == old.Name })
		switch {
		case !ok:
			c.warn("table "+table, "column %q does not come any more: it was dropped, renamed, or left out of the publication's column list", old.Name)
		case current.TypeName != old.TypeName:
			c.warn("table "+table, "column %q is %s now and was %s: its values may be printed differently", old.Name, current.TypeName, old.TypeName)
		}
	}
}

func columnNames(t *Table) []string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names
}

// find returns the first element that is wanted.
func find[E any](all []E, wanted func(E) bool) (found E, ok bool) {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return found, false
}
