package debezium

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/check"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Takeover has the facts about a slot with which the relay should continue.
type Takeover struct {
	Catalog   *catalog.State
	Offset    *Offset // of the connector; nil: unknown
	Arguments string  // of commands, for the configuration of outbox-cdc: -c relay.yaml

	// Next is what a start of the relay would find; nil: unknown, or there is no position store that can be read.
	Next *relay.NextStart
}

// CheckTakeover checks the conditions under which the relay can continue where the connector has stopped. The
// last one is about the offset and says where to start.
func CheckTakeover(t Takeover) []check.Condition {
	out := t.server()
	out = append(out, t.slot()...)
	out = append(out, t.publication()...)
	if t.Next != nil {
		out = append(out, t.record())
	}
	out = append(out, t.offset()...)
	terms := catalog.Terms{Slot: t.Catalog.SlotName, Publication: t.Catalog.PublicationName, Arguments: t.Arguments}
	for i := range out {
		out[i].Group, out[i].Found, out[i].Fix = check.Takeover, terms.Fill(out[i].Found), terms.Fill(out[i].Fix)
	}
	return out
}

// condition returns a condition.
func condition(name string, met bool, found, fix string) check.Condition {
	if met {
		return check.Condition{Name: name, State: check.Met, Found: found}
	}
	return check.Condition{Name: name, State: check.Failed, Found: found, Fix: fix}
}

func (t Takeover) server() []check.Condition {
	c := t.Catalog
	major := c.ServerVersion / 10000
	return []check.Condition{
		condition("server", major >= 14, fmt.Sprintf("PostgreSQL %d.%d", major, c.ServerVersion%10000), "PostgreSQL 14 or later is required"),
		condition("wal_level", c.Decodes(), c.WALLevel, "ALTER SYSTEM SET wal_level = logical, and restart the server"),
		condition("primary", !c.InRecovery, map[bool]string{false: "the server is not a standby", true: "the server is a standby"}[c.InRecovery], "connect to the primary"),
	}
}

func (t Takeover) slot() []check.Condition {
	c, s := t.Catalog, t.Catalog.Slot
	if s == nil {
		return []check.Condition{condition("slot", false, fmt.Sprintf("there is no slot %s", c.SlotName),
			"compare slot.name of the connector with SELECT slot_name FROM pg_replication_slots; slot.drop.on.stop drops the slot")}
	}
	plugin := s.Plugin
	if plugin == "" {
		plugin = "none: it is a physical slot"
	}
	out := []check.Condition{
		condition("slot", true, s.Name, ""),
		condition("plugin", s.Plugin == "pgoutput", plugin, "a slot cannot change its plugin; use a second slot: docs/migrating-from-debezium.md#another-plugin"),
		condition("database", s.Database == c.Database, fmt.Sprintf("the slot belongs to database %s, the connection to %s", s.Database, c.Database), "connect to the slot's database (source.dsn)"),
		condition("two_phase", !s.TwoPhase, onOffText(s.TwoPhase), "the relay cannot take over a slot with two_phase; use a second slot: docs/migrating-from-debezium.md#another-plugin"),
		condition("permanent", !s.Temporary, map[bool]string{false: "the slot is permanent", true: "the slot is temporary"}[s.Temporary], "Postgres drops a temporary slot with its session"),
	}
	if s.Active {
		out = append(out, condition("inactive", false, fmt.Sprintf("server process %d streams from it", s.ActivePID),
			"stop the connector (PUT /connectors/<name>/stop; pausing does not release the slot), and wait"))
	} else {
		out = append(out, condition("inactive", true, "nobody streams from it", ""))
	}
	switch risk := c.Reserve(time.Time{}).Judge(c.ReadAt); risk.Level() {
	case catalog.LevelLost:
		return append(out, condition("wal_status", false, strings.TrimSpace("lost "+s.InvalidationReason),
			fmt.Sprintf("Postgres removed the WAL from %s on: resend those rows from the table, and re-create the slot with outbox-cdc setup --drop", s.ConfirmedFlushLSN)))
	case catalog.LevelCritical:
		return append(out, check.Condition{
			Name: "wal_status", State: check.Doubt, Found: s.WALStatus + ": " + risk.Why,
			Fix: "start the relay now; ALTER SYSTEM SET max_slot_wal_keep_size raises the limit",
		})
	case catalog.LevelOK, catalog.LevelWarning:
	}
	return append(out, condition("wal_status", true, s.WALStatus, ""))
}

func onOffText(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (t Takeover) publication() []check.Condition {
	c, p := t.Catalog, t.Catalog.Publication
	if p == nil {
		return []check.Condition{condition("publication", false, fmt.Sprintf("there is no publication %s", c.PublicationName),
			"check publication.name of the connector. Postgres cannot send rows that were committed without the publication, even if you create it again")}
	}
	quoted := quoteName(p.Name)
	out := []check.Condition{
		condition("publication", true, p.Name, ""),
		condition("inserts", p.Insert, map[bool]string{true: "are published", false: "are not published"}[p.Insert], "ALTER PUBLICATION "+quoted+" SET (publish = 'insert')"),
	}
	if err := c.VerifyOutboxes(); err != nil {
		found := strings.TrimPrefix(err.Error(), replication.ErrPublication.Error()+": ")
		found, fix, _ := strings.Cut(found, "; ")
		out = append(out, condition("tables", false, found, strings.TrimPrefix(fix, "run: ")))
	} else {
		out = append(out, condition("tables", true, "every insert into the outbox tables is published", ""))
	}
	if cost := check.Neighbours(c); cost != nil {
		out = append(out, *cost)
	}
	return out
}

// record compares the position record with the slot. After a return to Debezium, the slot is ahead of the record.
func (t Takeover) record() check.Condition {
	c := check.PositionRecord(t.Next)
	switch {
	case !t.gap():
	case t.Offset == nil:
		c.Fix = "give --offsets, which show whether Debezium has advanced the slot; if it has not: " + c.Fix
	case t.returned():
		c.State, c.Fix = check.Doubt, "nothing, if only Debezium has used the slot since then; otherwise: "+c.Fix
	}
	return c
}

// gap reports whether the slot does not continue at the position record.
func (t Takeover) gap() bool {
	if t.Next == nil {
		return false
	}
	_, ok := errors.AsType[*checkpoint.GapError](t.Next.Broken)
	return ok
}

// returned reports whether Debezium has sent rows from after the position record, so that a gap is of its making.
func (t Takeover) returned() bool {
	return t.gap() && t.Offset != nil && t.Offset.lsnCommit > t.Next.Record.EndLSN
}

// run returns the command that starts the relay, "" if it would stop because of the position record.
func (t Takeover) run() string {
	switch {
	case t.Next == nil || t.Next.Broken == nil:
		return "outbox-cdc run"
	case t.returned():
		return "outbox-cdc run --accept-gap"
	}
	return ""
}

// offset compares the stored offset of the connector with the slot.
func (t Takeover) offset() []check.Condition {
	const name = "offset"
	o, s := t.Offset, t.Catalog.Slot
	switch {
	case s == nil:
		return nil
	case o == nil:
		return []check.Condition{{
			Name: name, State: check.Doubt, Found: fmt.Sprintf("unknown: the relay starts at the slot's position %s, and resends what Debezium sent after it", s.ConfirmedFlushLSN),
			Fix: "give --offsets to resend less",
		}}
	case o.snapshot:
		return []check.Condition{condition(name, false, "the connector's snapshot is not finished", "let the connector finish it, or resend the rows from the table")}
	case o.lsnCommit == 0:
		return []check.Condition{{
			Name: name, State: check.Doubt, Found: fmt.Sprintf("it has no complete transaction: the relay starts at the slot's position %s", s.ConfirmedFlushLSN),
			Fix: "nothing: the relay resends what Debezium sent after it",
		}}
	case o.lsnCommit > t.Catalog.WALEnd:
		return []check.Condition{condition(name, false, fmt.Sprintf("%s is after the end of the WAL, %s: the offset belongs to another server", o.lsnCommit, t.Catalog.WALEnd),
			"check database.hostname of the connector")}
	}
	run := t.run()
	c := check.Condition{Name: name, State: check.Met, Fix: run}
	if ahead := int64(o.lsnCommit - s.ConfirmedFlushLSN); o.lsnCommit > s.ConfirmedFlushLSN {
		c.Found = fmt.Sprintf("Debezium sent everything up to %s, %d bytes of WAL ahead of the slot; --skip-to skips it", o.lsnCommit, ahead)
		if run != "" {
			c.Fix = run + " --skip-to " + o.lsnCommit.String()
		}
	} else {
		c.Found = fmt.Sprintf("Debezium sent everything up to %s, and the slot has confirmed it: there is nothing to skip", o.lsnCommit)
	}
	out := []check.Condition{c}
	if o.inside() && max(o.lsn, o.lsnProc) > s.ConfirmedFlushLSN {
		out = append(out, check.Condition{
			Name: "last transaction", State: check.Doubt,
			Found: fmt.Sprintf("the last event, at %s, belongs to a transaction%s whose end is not in the offset: the relay resends the whole transaction", max(o.lsn, o.lsnProc), transaction(o.txID)),
			Fix:   "nothing: its rows may share one position, so none of them can be skipped safely",
		})
	}
	return out
}

func transaction(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d)", id)
}

// errNotReady reports that conditions of the takeover fail.
var errNotReady = errors.New("the relay cannot take over the slot yet")

// Ready returns an error that wraps [errNotReady] if a condition fails.
func Ready(conditions []check.Condition) error {
	n := check.Count(conditions)
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d conditions fail", errNotReady, n, len(conditions))
}
