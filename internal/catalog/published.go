package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// published says which objects of the catalog publish the rows of the outbox tables. A relay records it, so that a later one
// detects that the publication left rows out while no relay was there to notice. It means something on one cluster only, with
// the promoted standbys.
type published struct {
	OID     uint32  `json:"oid"`
	Version uint32  `json:"xmin"` // see [Publication]
	Name    string  `json:"name"`
	Options string  `json:"options"` // what ALTER PUBLICATION sets, apart from the name and the tables
	Tables  []entry `json:"tables,omitempty"`
}

// An entry is a table that is published by itself, not as a partition of another table.
type entry struct {
	OID        uint32 `json:"oid"`
	Name       string `json:"name"`
	Membership uint32 `json:"membership,omitempty"` // see [member]; 0: published by ALL TABLES or TABLES IN SCHEMA
	Schema     uint32 `json:"schema,omitempty"`     // of the membership of its schema; 0: none
	Placed     uint32 `json:"placed,omitempty"`     // see [Part]; 0: unknown, or no schema is published
	Form       string `json:"form,omitempty"`       // its list of columns and its row filter

	born bool   // see [member]
	sql  string // the name, written in SQL
}

// Published returns a JSON value for [State.CheckPublished], empty if there is no publication.
func (c *State) Published() string {
	if c.Publication == nil {
		return ""
	}
	text, err := json.Marshal(c.published(carriers(c)))
	if err != nil {
		return ""
	}
	return string(text)
}

// published returns the published tables among the carriers.
func (c *State) published(carriers map[uint32]bool) published {
	p := c.Publication
	tables := slices.DeleteFunc(c.entries(), func(e entry) bool { return !carriers[e.OID] })
	return published{OID: p.oid, Version: p.version, Name: p.Name, Options: p.options(), Tables: tables}
}

// carriers returns the OIDs of the outbox tables, their parts and the tables of which these are partitions.
func carriers(states ...*State) map[uint32]bool {
	all := make(map[uint32]bool)
	for _, c := range states {
		for _, o := range c.Outboxes {
			for _, part := range o.Parts {
				all[part.OID] = true
				for _, ancestor := range part.ancestors {
					all[ancestor] = true
				}
			}
		}
	}
	return all
}

// entries returns [Publication.entries], with what the outbox tables say of them.
func (c *State) entries() []entry {
	parts, all := c.parts(), c.Publication.entries()
	for i, e := range all {
		if e.Schema != 0 {
			all[i].Placed = parts[e.OID].placed
		}
	}
	return all
}

// entries returns the tables that a publication names, or that are in its schemas.
func (p *Publication) entries() []entry {
	var all []entry
	for _, m := range p.members {
		e := entry{OID: m.table, Name: m.schema + "." + m.name, sql: sqlName(m.schema, m.name), Membership: m.oid, Schema: p.schemas[m.schema], Form: m.columns, born: m.born}
		if t := p.member(m.table); t != nil { // nil: a root whose partitions are published, or it has none
			e.Form += t.RowFilter
		}
		all = append(all, e)
	}
	if !p.AllTables && len(p.schemas) == 0 {
		return all // a table that it does not name is a partition, perhaps one that was just detached
	}
	for _, t := range p.Tables {
		if !t.partition && !slices.ContainsFunc(all, func(e entry) bool { return e.OID == t.OID }) {
			all = append(all, entry{OID: t.OID, Name: t.Schema + "." + t.Name, sql: t.SQLName(), Schema: p.schemas[t.Schema]})
		}
	}
	return all
}

// viaRoot is the word of options for publish_via_partition_root.
const viaRoot = "via_root"

// options returns the owner and the options of p as text.
func (p *Publication) options() string {
	var all []string
	for name, on := range map[string]bool{"insert": p.Insert, "update": p.Update, "delete": p.Delete, "truncate": p.Truncate, viaRoot: p.ViaRoot, "all_tables": p.AllTables} {
		if on {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return fmt.Sprintf("of %d: %s", p.owner, strings.Join(all, ","))
}

// CheckPublished returns an error if rows of an outbox table may not have been published at some time since recorded, which an
// earlier [State.Published] has returned, perhaps for another publication. It wraps ErrPublication. It cannot notice that the
// publication did not publish inserts for a while if other options have changed too, see [State.CheckUnaltered], nor that ALL TABLES
// excepted a table for a while, nor a change on a primary that a promoted standby does not have.
func (c *State) CheckPublished(recorded string) error {
	was, ok := parsePublished(recorded)
	if !ok || c.Publication == nil || len(c.Outboxes) == 0 { // every publication has the logical messages
		return nil
	}
	if was.OID != c.Publication.oid && was.Name != c.Publication.Name {
		instruction := "to leave out no row: " + c.InstructLeftOut() + "; if this one, with its tables, is older than that position: start the relay once with outbox-cdc run --accept-gap"
		return &LeftOutError{fmt.Errorf("%w: the position was recorded with another publication than %q", replication.ErrPublication, c.Publication.Name), instruction}
	}
	return c.checkSince(was, sinceRecord, carriers(c))
}

const sinceRecord = "has changed since a relay last recorded its position"

// CheckUnaltered is CheckPublished with its doubt: it also returns an error if other options of the publication have changed, because it may
// not have published inserts for a while before that. A relay that starts warns of it, and an operator can recover.
func (c *State) CheckUnaltered(recorded string) error {
	was, ok := parsePublished(recorded)
	if err := c.CheckPublished(recorded); err != nil || !ok || c.Publication == nil || len(c.Outboxes) == 0 || was.Version == c.Publication.version {
		return err
	}
	return c.leftOutError(sinceRecord, "it was altered, and may not have published inserts for a while", "if it has not, the rows of that time are not delivered: ")
}

// CheckKnown returns an error if an outbox table was none at recorded, which an earlier [State.Published] has returned: nobody has sent the
// rows that it had then. It does not know tables that are published by their partitions only.
func (c *State) CheckKnown(recorded string) error {
	was, ok := parsePublished(recorded)
	if !ok || c.Publication == nil || strings.Contains(was.Options, viaRoot) != c.Publication.ViaRoot {
		return nil
	}
	now := c.published(carriers(c))
	for _, o := range c.Outboxes {
		if len(o.Parts) == 0 {
			continue
		}
		table := o.table()
		e, published := find(now.Tables, func(e entry) bool { return e.OID == table.OID })
		_, known := find(was.Tables, func(e entry) bool { return e.OID == table.OID || e.Name == table.text() })
		if published && !known && !e.born {
			return &LeftOutError{
				fmt.Errorf("table %s was no outbox when the position was recorded: rows that it had then are not delivered", table.text()),
				fmt.Sprintf("to send them: outbox-cdc replay --table %s --where '…' --dsn \"$OPERATOR_DSN\"", argument(o.Configured)),
			}
		}
	}
	return nil
}

// checkSince returns an error if rows of the carriers, the outbox tables, may not have been published at some time since was. changed is for
// its text.
func (c *State) checkSince(was published, changed string, carriers map[uint32]bool) error {
	now := c.published(carriers)
	if what := c.leftOut(was, now); what != "" {
		return c.leftOutError(changed, what, "rows inserted in between are not delivered: ")
	}
	for _, t := range now.Tables {
		if old, ok := find(was.Tables, func(e entry) bool { return e.OID == t.OID }); ok && reset(old, t) {
			return c.reformedError(changed, t)
		}
	}
	return nil
}

// reformedError is the error about a table with another row filter or column list. The catalog does not show whether one statement has set
// it, or two, and rows were left out in between.
func (c *State) reformedError(changed string, now entry) error {
	first := ""
	if t := c.Publication.member(now.OID); t != nil && t.Republish != "" {
		first = "unless you want it, run " + t.Republish + ". "
	}
	err := c.leftOutError(changed, fmt.Sprintf("table %s has another row filter or column list, and may have been removed and added again for that", now.Name), first+"Rows that were left out are not delivered: ")
	err.instruction += "; if one ALTER PUBLICATION … SET TABLE has set what you want, there are none: start the relay once with outbox-cdc run --accept-gap"
	return err
}

func (c *State) leftOutError(changed, what, follows string) *LeftOutError {
	return &LeftOutError{
		fmt.Errorf("%w: publication %q %s: %s", replication.ErrPublication, c.Publication.Name, changed, what),
		follows + c.InstructLeftOut(),
	}
}

// leftOut returns how rows were left out between was and now, or an empty text.
func (c *State) leftOut(was, now published) string {
	switch {
	case was.OID != now.OID:
		return "it was dropped and re-created"
	case was.Version != now.Version && was.Name == now.Name && was.Options == now.Options:
		return "it was altered and restored, and may not have published inserts in between"
	}
	if what := c.addedPart(was, now); what != "" {
		return what
	}
	all := c.entries()
	for _, t := range was.Tables {
		if what := now.since(was, t, all); what != "" {
			return what
		}
	}
	return ""
}

// parsePublished returns the value of [State.Published]. ok is false if there is nothing to compare with: the record is older, or forged.
func parsePublished(recorded string) (was published, ok bool) {
	ok = recorded != "" && json.Unmarshal([]byte(recorded), &was) == nil && was.OID != 0
	return was, ok
}

// A LeftOutError says that rows may have been left out until now, and that all rows are published from now on.
type LeftOutError struct {
	reason      error
	instruction string
}

// Error returns the reason with the instruction.
func (e *LeftOutError) Error() string { return e.reason.Error() + "; " + e.instruction }

// Reason returns the text without the instruction, for a start that follows it.
func (e *LeftOutError) Reason() string { return e.reason.Error() }

// Unwrap returns the reason.
func (e *LeftOutError) Unwrap() error { return e.reason }

// addedPart returns which part of a recorded outbox may have had rows before it was published by itself, or an empty text.
func (c *State) addedPart(was, now published) string {
	recorded, named := was.has, now.has
	for _, o := range c.Outboxes {
		if !slices.ContainsFunc(o.Parts, func(p Part) bool { return recorded(p.OID) }) {
			continue
		}
		for _, p := range o.Parts {
			e, ok := find(now.Tables, func(t entry) bool { return t.OID == p.OID })
			if ok && e.addedLater() && !recorded(p.OID) && !slices.ContainsFunc(p.ancestors, named) {
				return fmt.Sprintf("table %s was added after it was created", e.Name)
			}
		}
	}
	return ""
}

func (p published) has(oid uint32) bool {
	return slices.ContainsFunc(p.Tables, func(t entry) bool { return t.OID == oid })
}

// since returns how rows of a table of was were left out, or an empty text. all are the tables of the publication, with those that are
// no outbox tables any more.
func (p published) since(was published, table entry, all []entry) string {
	now, ok := find(all, func(t entry) bool { return t.OID == table.OID })
	if ok && readded(table, now) {
		return fmt.Sprintf("table %s was removed and added again", now.Name)
	}
	successor, replaced := find(p.Tables, func(t entry) bool { return t.Name == table.Name && !was.has(t.OID) })
	if replaced && (successor.addedLater() || !ok && successor.Membership != 0) {
		return fmt.Sprintf("table %s was dropped or renamed, and the one that has its name now may not have been published all the time", table.Name)
	}
	return ""
}

// addedLater reports whether the table may have had rows before it was published.
func (e entry) addedLater() bool { return e.Membership != 0 && !e.born }

// readded reports whether a table was temporarily not in its publication.
func readded(was, now entry) bool {
	if was.Membership == 0 && now.Membership == 0 {
		return was.Schema != 0 && now.Schema != 0 && (was.Schema != now.Schema || was.Placed != 0 && now.Placed != 0 && was.Placed != now.Placed)
	}
	return reset(was, now) && was.Form == now.Form
}

// reset reports whether a table has another membership than before. ALTER PUBLICATION SET TABLE makes one if it changes the row filter or
// the columns, without a gap.
func reset(was, now entry) bool {
	return was.Membership != 0 && now.Membership != 0 && was.Membership != now.Membership
}
