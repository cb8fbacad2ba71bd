package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// publication checks that the publication exists and publishes inserts only.
func (s *sourceChecker) publication() {
	c := s.catalog
	p := c.Publication
	switch {
	case s.creates():
		s.ok("publication", "", fmt.Sprintf("publication %s does not exist; run creates it and the slot", c.PublicationName))
		return
	case p == nil && c.SlotElsewhere():
		s.fail("publication", "", fmt.Sprintf("publication %s does not exist in database %s, and slot %s is one of database %s", c.PublicationName, c.Database, c.SlotName, c.Slot.Database),
			anotherDatabase)
		return
	case p == nil && c.Slot != nil:
		s.fail("publication", "", fmt.Sprintf("publication %s does not exist in database %s, but slot %s does: rows committed meanwhile are not delivered", c.PublicationName, c.Database, c.SlotName),
			c.InstructStartOver())
		return
	case p == nil:
		s.fail("publication", "", fmt.Sprintf("publication %s does not exist in database %s", c.PublicationName, c.Database), catalog.InstructSetup)
		return
	}
	s.ok("publication", "", p.Name)
	alter := "ALTER PUBLICATION " + replication.QuoteIdent(p.Name)
	publish := alter + " SET (publish = 'insert')"
	if s.Relay.Route.TakesUpdates() {
		publish = alter + " SET (publish = 'insert, update')"
	}
	switch {
	case !p.Insert && !c.Messages:
		s.fail("publish", "", "INSERTs are not published, and rows inserted meanwhile are not delivered", c.Resume(publish))
	case p.Update && !s.Relay.Route.TakesUpdates():
		s.warn("publish", "", "UPDATEs are published too, and the first UPDATE of an outbox row stops the relay (outbox.on_update)", publish)
	case !p.Update && s.Relay.Route.TakesUpdates():
		s.warn("publish", "", "UPDATEs are not published, so outbox.on_update has no effect", publish)
	default:
		s.ok("publish", "", strings.Join(published(p), ", "))
	}
	if cost := Neighbours(c); cost != nil {
		s.add(*cost)
	} else {
		s.ok("neighbours", "", "only outbox tables are published")
	}
}

// Neighbours returns the condition about published tables that are not in outbox.tables, or nil if there are none.
func Neighbours(c *catalog.State) *Condition {
	names := c.NameNeighbours()
	if names == "" {
		return nil
	}
	found := "published, but not in outbox.tables: " + names
	if missing := c.MissingTables(); len(missing) > 0 {
		return &Condition{
			Name: "neighbours", State: Doubt, Found: found + "; " + strings.Join(missing, ", ") + " may be there under a new name",
			Fix: "if it is, set outbox.tables to the new name",
		}
	}
	return &Condition{
		Name: "neighbours", State: Doubt, Found: found + "; the relay skips their rows, but Postgres decodes and sends them",
		Fix: "for less load: while the relay runs, create a publication of the outbox tables under another name; when the slot has caught up after that, set source.publication, and restart the relay once with outbox-cdc run --accept-gap",
	}
}

// published returns the kinds of changes that p publishes.
func published(p *catalog.Publication) []string {
	var kinds []string
	for _, k := range []struct {
		name string
		is   bool
	}{{"insert", p.Insert}, {"update", p.Update}, {"delete", p.Delete}, {"truncate", p.Truncate}} {
		if k.is {
			kinds = append(kinds, k.name)
		}
	}
	return kinds
}

// tables checks the configured tables, and looks for outboxes among their neighbours.
func (s *sourceChecker) tables(ctx context.Context, reader *catalog.Reader) {
	missing, owns := s.catalog.MissingTables(), true
	for _, name := range s.Relay.Tables {
		if slices.Contains(missing, name) {
			s.missingTable(name)
			owns = false // the role that creates it will own it
			continue
		}
		var t *catalog.TableDetails
		if !s.ask(ctx, &s.report, "table", name, func(ctx context.Context) (err error) {
			t, err = reader.Table(ctx, name, s.catalog.Publication)
			return err
		}) {
			continue
		}
		s.table(ctx, name, t)
		owns = owns && t.Owner
	}
	s.mayPublish(owns)
	if s.catalog.Publication == nil {
		return
	}
	if s.short || len(missing) > 0 {
		return // the relay logs them itself, or nothing tells them from a table that was renamed
	}
	for _, t := range s.catalog.Neighbours() {
		if rows.CheckTable(ctx, s.Relay.Rows(), t) != nil {
			continue
		}
		found, fix := "but is not in outbox.tables", "add it to outbox.tables"
		if s.catalog.Messages {
			found, fix = "but outbox.messages takes messages in place of tables", "run another relay for it"
		}
		s.warn("table", t.Schema+"."+t.Name, "has the columns of an outbox, "+found+": its rows are not relayed", "if its rows are events, "+fix)
	}
}

// missingTable adds the condition of a configured table that does not exist.
func (s *sourceChecker) missingTable(name string) {
	found, fix := remedy(s.catalog.VerifyOutbox(name))
	if slot := s.catalog.Slot; slot != nil && slot.Active {
		found += "; if it was renamed, a relay that runs since before still delivers its rows, but the next start ends with exit code 13"
	}
	s.fail("table", name, found, fix)
}

// table checks a configured table.
func (s *sourceChecker) table(ctx context.Context, name string, t *catalog.TableDetails) {
	p := s.catalog.Publication
	carried := t.Table
	switch {
	case p == nil:
		s.ok("table", name, "exists")
		if s.creates() && !t.Owner {
			s.fail("owner", name, fmt.Sprintf("run would create the publication, but %s does not own the table", s.Relay.Source.Conn.User), setUp)
		}
	case t.Published == nil && t.Missing == nil:
		s.ok("table", name, "has no partition yet, and every INSERT into a new one is published")
	case t.Published == nil:
		found := fmt.Sprintf("is not in publication %s", p.Name)
		if t.Missing.OID != t.OID {
			found = fmt.Sprintf("%s, whose rows are rows of this table, %s", t.Missing.SQLName(), found)
		}
		s.fail("table", name, found+", and rows inserted meanwhile are not delivered", s.catalog.Resume(p.Add(t.Missing.SQLName())))
		return
	case s.catalog.VerifyOutbox(name) != nil: // the conditions of run
		found, fix := remedy(s.catalog.VerifyOutbox(name))
		s.fail("table", name, found, fix)
		return
	default:
		if t.Published.RowFilter == "" {
			s.ok("row filter", name, "none")
		} else {
			s.warn("row filter", name, "the publication has a row filter, and rows that do not match it are not delivered: "+t.Published.RowFilter, s.catalog.Resume(t.Published.Republish))
		}
		carried = *t.Published
		s.ok("table", name, "every INSERT is published")
		s.viaRoot(name, t)
	}
	s.columns(ctx, name, carried)
	s.identity(name, t)
	s.refill(name, t)
	reads := ""
	switch {
	case s.Relay.RefillOnLoss:
		reads = "source.on_slot_loss: refill"
	case s.Relay.InitialCopy && s.createsSlot():
		reads = "source.initial_copy"
	}
	s.rowSecurity(name, t, reads)
	if reads != "" && !t.Select {
		s.fail("select", name, reads+" reads the table, but the role may not", useRelayRole+t.GrantSelect(s.Relay.Source.Conn.User))
	}
}

// rowSecurity checks that the role sees every row of the table. reads is the key that makes run read the table, or "".
func (s *sourceChecker) rowSecurity(name string, t *catalog.TableDetails, reads string) {
	const condition = "row security"
	switch h := t.Hidden; {
	case h == nil:
		s.ok(condition, name, "hides no row from "+s.Relay.Source.Conn.User)
	case reads != "":
		s.fail(condition, name, reads+" reads the table, and "+h.What(), h.Fix())
	default:
		s.warn(condition, name, h.What()+"; the relay delivers every row nevertheless, but recover, replay, audit and prune end with exit code 10 for this role", h.Fix())
	}
}

// refill says whether the rows of a lost slot could be sent from the table.
func (s *sourceChecker) refill(name string, t *catalog.TableDetails) {
	switch {
	case s.Relay.Positions.IsZero(): // nothing says what was delivered
	case t.RefillAlter == "" && s.byPartition(t): // viaRoot says what a refill needs
	case t.RefillAlter == "":
		s.ok("refill", name, "has xid and position: recover can send what a lost slot had not delivered")
	case s.Relay.RefillOnLoss:
		s.fail("refill", name, "source.on_slot_loss is refill, which is not available: without xid and position, nothing tells which rows were not delivered; the statement rewrites the table and locks it meanwhile",
			t.RefillAlter)
	default:
		s.warn("refill", name, "refill is not available: if the slot is lost, recover cannot tell which rows were not delivered; the statement rewrites the table and locks it meanwhile",
			t.RefillAlter)
	}
}

// byPartition reports whether changes of t are published as those of its partitions.
func (s *sourceChecker) byPartition(t *catalog.TableDetails) bool {
	p := s.catalog.Publication
	return t.Partitioned && p != nil && !p.ViaRoot
}

func (s *sourceChecker) viaRoot(name string, t *catalog.TableDetails) {
	if !s.byPartition(t) {
		return
	}
	const later = "the relay notices a partition with other columns only at its first row"
	what, fix := "is partitioned, and changes are published as changes of the partitions: ", catalog.PublishViaRoot(s.catalog.Publication.Name)
	switch {
	case s.Relay.Positions.IsZero():
		s.warn("via root", name, what+later, fix)
	case s.Relay.RefillOnLoss:
		s.fail("via root", name, what+"source.on_slot_loss is refill, which is not available without an order of all rows, and "+later, fix)
	default:
		s.warn("via root", name, what+"if the slot is lost, recover cannot refill without an order of all rows, and "+later, fix)
	}
}

// columns checks that rows of sent, the table as published, can become records.
func (s *sourceChecker) columns(ctx context.Context, name string, sent catalog.Table) {
	if s.short {
		return // the relay checks them itself when it starts
	}
	var refusal *encode.ColumnError
	if !s.ask(ctx, &s.report, "columns", name, func(ctx context.Context) error {
		err := rows.CheckTable(ctx, s.Relay.Rows(), sent)
		if errors.As(err, &refusal) {
			return nil
		}
		return err
	}) {
		return
	}
	whole := sent // without the column list
	whole.Columns = slices.Clone(sent.Columns)
	for _, c := range sent.Unsent {
		if !c.Generated {
			whole.Columns = append(whole.Columns, c.Column)
		}
	}
	list := len(whole.Columns) > len(sent.Columns)
	names := columnNames(sent)
	switch {
	case refusal != nil && list && rows.CheckTable(ctx, s.Relay.Rows(), whole) == nil:
		s.fail("columns", name, fmt.Sprintf("the publication has a column list with only %s: %s", names, strings.Join(refusal.Problems, ", ")), sent.Republish+", "+sent.InstructUnlisted())
	case refusal != nil:
		s.fail("columns", name, fmt.Sprintf("%s; it has %s", strings.Join(refusal.Problems, ", "), names),
			"name the table's columns in the keys in parentheses, or change the table")
	case list:
		s.ok("columns", name, fmt.Sprintf("the publication has a column list with only %s, which is enough", names))
	default:
		s.ok("columns", name, names)
	}
}

func columnNames(t catalog.Table) string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// identity checks the replica identity. Without one, Postgres rejects the application's UPDATEs and DELETEs if the
// publication publishes them.
func (s *sourceChecker) identity(name string, t *catalog.TableDetails) {
	p := s.catalog.Publication
	switch {
	case p == nil || t.Published == nil:
	case !p.Update && !p.Delete:
		s.ok("replica identity", name, "not needed, because UPDATEs and DELETEs are not published")
	case len(t.Unidentified) == 0:
		s.ok("replica identity", name, "the table has one")
	default:
		kinds := slices.DeleteFunc(published(p), func(kind string) bool { return kind != "update" && kind != "delete" })
		fix := fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", replication.QuoteIdent(p.Name))
		if s.Relay.Route.TakesUpdates() {
			fix = fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (…), or REPLICA IDENTITY FULL", t.SQLName())
		}
		s.fail("replica identity", name, fmt.Sprintf("%s has none, and %s are published: Postgres rejects the application's",
			strings.Join(t.Unidentified, ", "), strings.Join(kinds, " and ")), fix)
	}
}
