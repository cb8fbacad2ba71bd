package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// oldestServer is the oldest supported version. Queries depend on the version if later ones added row
// filters, column lists or generated columns.
const oldestServer = 140000

// Verify checks whether a stream of this publication and slot delivers rows. It returns the first
// problem of the server, the publication, the outbox tables or the slot, in this order. An active slot is no problem.
func (c *State) Verify() error {
	if err := c.verifyServer(); err != nil {
		return err
	}
	if err := c.verifyPublication(); err != nil {
		return err
	}
	if err := c.VerifyOutboxes(); err != nil {
		return err
	}
	return c.verifySlot()
}

// Decodes reports whether the WAL has what logical decoding needs, or has it as soon as there is a logical slot: from 19
// on, a primary with wal_level = replica raises its level for the first slot.
func (c *State) Decodes() bool {
	return cmp.Or(c.EffectiveWAL, c.WALLevel) == "logical" || c.EffectiveWAL != "" && c.WALLevel == "replica" && !c.InRecovery
}

func (c *State) verifyServer() error {
	switch {
	case c.ServerVersion < oldestServer:
		return fmt.Errorf("%w: the server is PostgreSQL %d.%d, and the oldest supported version is %d", replication.ErrConfig,
			c.ServerVersion/10000, c.ServerVersion%10000, oldestServer/10000)
	case !c.Decodes():
		return &WALLevelError{Level: c.WALLevel}
	case c.Encoding == "SQL_ASCII":
		return fmt.Errorf("%w: database %q has encoding SQL_ASCII, which cannot be converted to UTF8 reliably; use a database with another encoding", replication.ErrConfig, c.Database)
	case c.InRecovery && c.ServerVersion < 160000:
		return fmt.Errorf("%w: this server is a standby, which cannot decode the WAL before PostgreSQL 16: connect to the primary", replication.ErrUnreachable)
	}
	return nil
}

func (c *State) verifyPublication() error {
	p := c.Publication
	switch {
	case p == nil && c.SlotElsewhere():
		return c.slotElsewhere()
	case p == nil && c.Slot != nil:
		return fmt.Errorf("%w: publication %q does not exist in database %q, but slot %q does; %srows committed without a publication are not delivered, even if you re-create it: run %s",
			replication.ErrPublication, c.PublicationName, c.Database, c.SlotName, c.misspelled(), c.InstructStartOver())
	case p == nil:
		return fmt.Errorf("%w: publication %q does not exist in database %q; %screate it and the slot with: %s",
			replication.ErrPublication, c.PublicationName, c.Database, c.misspelled(), InstructSetup)
	case c.Messages && p.isEmpty():
		return nil
	case !p.Insert:
		return fmt.Errorf("%w: publication %q does not publish inserts, so rows that were inserted since it changed are not delivered: run %s",
			replication.ErrPublication, p.Name, c.Resume("ALTER PUBLICATION "+replication.QuoteIdent(p.Name)+" SET (publish = 'insert')"))
	case p.isEmpty() && len(c.MissingTables()) == 0:
		table := "<table>"
		if len(c.Outboxes) > 0 {
			table = c.Outboxes[0].table().SQLName()
		}
		return fmt.Errorf("%w: publication %q has no table, so rows that were inserted since it lost one are not delivered: run %s",
			replication.ErrPublication, p.Name, c.Resume(p.Add(table)))
	}
	return nil
}

// misspelled returns what to do if another publication is meant, as the beginning of a sentence, or an empty text if there is none.
func (c *State) misspelled() string {
	var names []string
	for _, name := range c.OtherPublications {
		names = append(names, strconv.Quote(name))
	}
	if names == nil {
		return ""
	}
	return "the database has " + strings.Join(names, ", ") + ": if that one is meant, correct source.publication and start the relay again, and no row is lost; otherwise "
}

// verifyTables checks that the outbox tables exist and that the WAL has their rows.
func (c *State) verifyTables() error {
	for i := range c.Outboxes {
		if err := c.verifyTable(&c.Outboxes[i]); err != nil {
			return err
		}
	}
	return nil
}

// verifyTable is [Outbox.verify], and names the published tables that may be a missing one under a new name.
func (c *State) verifyTable(o *Outbox) error {
	err, others := o.verify(c.Database), c.NameNeighbours()
	switch p := c.Publication; {
	case len(o.Parts) > 0:
		return err
	case others == "" && p != nil && p.isEmpty() && c.Slot != nil: // it was dropped
		return fmt.Errorf("%w; then, because its rows are not delivered before the publication has it, run %s",
			err, c.Resume(p.Add(o.Configured)))
	case others == "":
		return err
	}
	return o.noTable(c.Database, fmt.Sprintf("publication %q has %s: if the table is there under a new name, set outbox.tables to that and start the relay again, and no row is lost; otherwise ",
		c.PublicationName, others))
}

// MissingTables returns the tables of the configuration that do not exist under their names.
func (c *State) MissingTables() []string {
	var names []string
	for _, o := range c.Outboxes {
		if len(o.Parts) == 0 {
			names = append(names, o.Configured)
		}
	}
	return names
}

// VerifyOutboxes checks that the publication, if there is one, publishes every row of every outbox table. The error wraps
// ErrPublication or ErrConfig and says how to fix it.
func (c *State) VerifyOutboxes() error {
	if err := c.verifyTables(); err != nil || c.Publication == nil {
		return err
	}
	for i := range c.Outboxes {
		if err := c.verifyPublished(&c.Outboxes[i]); err != nil {
			return err
		}
	}
	return nil
}

// VerifyOutbox is VerifyOutboxes for one table of the configuration.
func (c *State) VerifyOutbox(configured string) error {
	for i := range c.Outboxes {
		if o := &c.Outboxes[i]; o.Configured == configured {
			err := c.verifyTable(o)
			if err == nil && c.Publication != nil {
				err = c.verifyPublished(o)
			}
			return err
		}
	}
	return nil
}

// verifyPublished checks that the publication publishes every row of an outbox table, and as a row of that table.
func (c *State) verifyPublished(o *Outbox) error {
	if part := c.Publication.missing(o); part != nil {
		return c.notPublished(o, part)
	}
	for _, part := range o.Parts {
		t := c.Publication.carrier(part)
		if t != nil && !slices.ContainsFunc(o.Parts, func(p Part) bool { return p.OID == t.OID }) {
			return fmt.Errorf("%w: publication %q sends the rows of %s as rows of %s, with those of its other partitions; name %[4]s in outbox.tables",
				replication.ErrConfig, c.Publication.Name, part.SQLName(), t.SQLName())
		}
	}
	return nil
}

// notPublished is the error for a part of an outbox table whose rows the publication does not send.
func (c *State) notPublished(o *Outbox, part *Part) error {
	what := "table " + part.SQLName()
	if table := o.table(); part.OID != table.OID {
		what += ", whose rows are those of " + table.SQLName() + ","
	}
	others := c.NameNeighbours()
	if others != "" {
		others = ", which has " + others
	}
	lost := ""
	if c.Slot != nil {
		lost = "rows that were inserted into it meanwhile are not delivered: "
	}
	return fmt.Errorf("%w: %s is not in publication %q%s; %srun %s",
		replication.ErrPublication, what, c.Publication.Name, others, lost, c.Resume(c.Publication.Add(part.SQLName())))
}

// Resume returns a statement with which the publication leaves out no more rows, and what to do then with those that it has left
// out: nothing if there is no slot yet.
func (c *State) Resume(statement string) string {
	if c.Slot == nil {
		return statement
	}
	return statement + ", then " + c.InstructLeftOut()
}

// NameNeighbours returns the first neighbours, written in SQL, and the number of the others, as a configuration would name them: a table in
// place of its partitions. It returns "" if there are none.
func (c *State) NameNeighbours() string {
	const most = 5
	var names []string
	for _, t := range c.Neighbours() {
		if name := cmp.Or(t.root, t.SQLName()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Add returns the statement that makes p publish a table, written in SQL, and what it does beside.
func (p *Publication) Add(table string) string {
	if p.AllTables { // to which no table can be added
		return "ALTER PUBLICATION " + replication.QuoteIdent(p.Name) + " SET ALL TABLES; it has that table after EXCEPT now, and the statement ends every exception that it does not repeat"
	}
	return "ALTER PUBLICATION " + replication.QuoteIdent(p.Name) + " ADD TABLE " + table
}

func (c *State) verifySlot() error {
	s := c.Slot
	switch {
	case s == nil && c.InRecovery: // the primary may have the slot
		return fmt.Errorf("%w: this server is a standby and has no slot %q: connect to the primary", replication.ErrUnreachable, c.SlotName)
	case s != nil && s.Synced && c.InRecovery: // such a copy may be temporary or invalidated until Postgres re-creates it
		return fmt.Errorf("%w: this server is a standby, and its slot %q is a copy of the primary's slot: connect to the primary", replication.ErrUnreachable, s.Name)
	case c.Orphaned():
		return fmt.Errorf("%w: this server is a standby, and its slot %q is left from when it was the primary: it does not get the new primary's rows, and prevents the synchronization of the new primary's slot; connect to the primary, and run on this standby: %s",
			replication.ErrUnreachable, s.Name, DropSlot(s.Name))
	case s == nil:
		return c.lostSlot(fmt.Errorf("%w: slot %q does not exist; the relay does not create one by itself once it has been set up, because rows committed in between would be missing",
			replication.ErrSlotMissing, c.SlotName), "for a relay that has never run, "+InstructSetup+" creates it; otherwise ")
	case s.Plugin == "":
		return fmt.Errorf("%w: slot %q is a physical slot; choose another slot name for the relay", replication.ErrConfig, s.Name)
	case s.Plugin != plugin:
		return fmt.Errorf("%w: slot %q belongs to output plugin %q, not %q; choose another slot name for the relay", replication.ErrConfig, s.Name, s.Plugin, plugin)
	case c.SlotElsewhere():
		return c.slotElsewhere()
	case c.lost():
		return c.lostSlot(fmt.Errorf("%w: slot %q is invalidated (%s): what it had not delivered, from %s to %s, is gone from the WAL",
			replication.ErrSlotLost, s.Name, s.invalidation(), s.ConfirmedFlushLSN, c.WALEnd), "")
	case s.TwoPhase:
		return fmt.Errorf("%w: slot %q has two_phase enabled, which is not supported; choose another slot name for the relay", replication.ErrConfig, s.Name)
	case s.Temporary:
		return fmt.Errorf("%w: slot %q is temporary and belongs to another session; choose another slot name for the relay", replication.ErrConfig, s.Name)
	}
	return nil
}

// lost reports whether the slot exists and is invalidated.
func (c *State) lost() bool {
	return c.Slot != nil && c.Reserve(time.Time{}).Judge(c.ReadAt).Danger == Lost
}

// lostSlot returns err, which is about the loss of the slot, with the instruction. The error is an [*UnrefillableError] if that is not
// [InstructRecover].
func (c *State) lostSlot(err error, first string) error {
	if table := c.unrefillable(); table != "" {
		return unrefillableError(err, first, table, InstructByHand)
	}
	return fmt.Errorf("%w; %s%s creates the slot and sends those rows from the table", err, first, InstructRecover)
}

// ExplainLoss returns err, which is about a slot that is gone, with the instruction. See [UnrefillableError].
func (c *State) ExplainLoss(err error) error { return c.lostSlot(err, "") }

// ExplainGap returns err, because the slot does not continue at the position record. It is an [*UnrefillableError] with the instruction if
// that is not [InstructRecover].
func (c *State) ExplainGap(err error) error {
	if table := c.unrefillable(); table != "" {
		return unrefillableError(err, "", table, instructReplay)
	}
	return err
}

// unrefillableError returns the error about a table that recover refuses. first is what to do before the instruction; it may be empty.
func unrefillableError(err error, first, table, instruction string) error {
	return &UnrefillableError{fmt.Errorf("%w; %stable %s lacks the column xid or position, so recover cannot send its rows: %s", err, first, table, instruction)}
}

// An UnrefillableError is an error about a lost slot, or a gap before it, of a table that lacks the columns for a refill.
type UnrefillableError struct{ Err error }

// Error returns the error about the slot, with the instruction.
func (e *UnrefillableError) Error() string { return e.Err.Error() }

// Unwrap returns the error about the slot.
func (e *UnrefillableError) Unwrap() error { return e.Err }

// SlotElsewhere reports whether the slot belongs to another database of the server, where its publication is.
func (c *State) SlotElsewhere() bool {
	return c.Slot != nil && c.Slot.Database != "" && c.Slot.Database != c.Database
}

func (c *State) slotElsewhere() error {
	return fmt.Errorf("%w: slot %q belongs to database %q, and source.dsn leads to %q: let it lead to that database; or choose another slot name, if no relay has used this one",
		replication.ErrConfig, c.Slot.Name, c.Slot.Database, c.Database)
}

// invalidation returns why the slot is invalidated, as far as known.
func (s *Slot) invalidation() string {
	reason := cmp.Or(s.InvalidationReason, "wal_status is "+s.WALStatus)
	if s.InactiveSince.IsZero() {
		return reason
	}
	return fmt.Sprintf("%s, inactive since %s", reason, s.InactiveSince.UTC().Format(time.RFC3339))
}
