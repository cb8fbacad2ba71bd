package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// slot checks the slot.
func (s *sourceChecker) slot(ctx context.Context) {
	c := s.catalog
	slot := c.Slot
	switch {
	case slot == nil && !c.InRecovery && s.unread:
		s.fail("slot", "", fmt.Sprintf("slot %s does not exist, and it is not known whether a relay has used it: then rows committed since are not delivered", c.SlotName),
			"if a relay has used it, "+c.InstructRecover()+"; otherwise "+catalog.InstructSetup)
		return
	case s.createsSlot():
		s.ok("slot", "", fmt.Sprintf("slot %s does not exist; run creates it", c.SlotName))
		return
	case slot == nil && c.InRecovery:
		s.fail("slot", "", "the server is a standby without slot "+c.SlotName, "connect to the primary")
		return
	case c.Orphaned():
		s.fail("slot", "", fmt.Sprintf("the server is a standby, and its slot %s is left from when it was the primary: it prevents the synchronization of the primary's slot", slot.Name),
			"connect to the primary, and on this standby: "+catalog.DropSlot(slot.Name))
		return
	case slot == nil && s.elsewhere:
		s.fail("slot", "", fmt.Sprintf("slot %s does not exist on this server, which is not that of the position record", c.SlotName), "see "+positionRecord)
		return
	case slot == nil && s.recorded:
		s.fail("slot", "", fmt.Sprintf("slot %s does not exist, and a relay has used it: rows committed since then are not delivered%s", c.SlotName, s.refused), s.recovers)
		return
	case slot == nil:
		s.fail("slot", "", fmt.Sprintf("slot %s does not exist; rows committed without it are not delivered", c.SlotName), catalog.InstructSetup)
		return
	}
	s.ok("slot", "", fmt.Sprintf("%s, confirmed up to %s", slot.Name, slot.ConfirmedFlushLSN))
	s.kind(slot)
	s.standing(slot)
	s.holder()
	s.failover(ctx)
	s.synchronized()
}

const (
	anotherSlot     = "set source.slot to another name"
	anotherDatabase = anotherSlot + ", or connect to that database (source.dsn)"
)

// kind checks that the relay can stream from the slot.
func (s *sourceChecker) kind(slot *catalog.Slot) {
	switch {
	case slot.Plugin == "":
		s.fail("plugin", "", "none, it is a physical slot", anotherSlot)
	case slot.Plugin != "pgoutput":
		s.fail("plugin", "", slot.Plugin+", but the relay needs pgoutput", anotherSlot)
	default:
		s.ok("plugin", "", slot.Plugin)
	}
	if slot.Database == s.catalog.Database {
		s.ok("slot's database", "", slot.Database)
	} else {
		s.fail("slot's database", "", fmt.Sprintf("the slot belongs to database %q, and source.dsn leads to %s", slot.Database, s.catalog.Database), anotherDatabase)
	}
	switch {
	case slot.Temporary:
		s.fail("permanent", "", "the slot is temporary: Postgres drops it with the session that created it", anotherSlot)
	case slot.TwoPhase:
		s.fail("permanent", "", "the slot has two_phase, so Postgres sends prepared transactions before they are committed", anotherSlot)
	default:
		s.ok("permanent", "", "neither temporary nor two_phase")
	}
}

// standing checks that Postgres still has the WAL that the slot needs.
func (s *sourceChecker) standing(slot *catalog.Slot) {
	c := s.catalog
	reserve := c.Reserve(time.Time{})
	reserve.IdleAt = time.Time{} // a condition of its own
	kept, risk := terminal.Size(reserve.Retained), reserve.Judge(c.ReadAt)
	switch {
	case risk.Danger == catalog.Lost:
		s.fail("wal_status", "", strings.TrimSpace(fmt.Sprintf("lost %s", slot.InvalidationReason))+fmt.Sprintf(": Postgres has removed WAL from %s on that was not delivered%s", slot.ConfirmedFlushLSN, s.refused),
			cmp.Or(s.recovers, c.InstructRecover()))
	case risk.Danger == catalog.Unreserved:
		s.warn("wal_status", "", fmt.Sprintf("%s: %s of WAL are retained, and the next checkpoint may remove WAL that the slot needs", slot.WALStatus, kept),
			"let the relay catch up now; "+s.provider.set("max_slot_wal_keep_size", "-1", false))
	case slot.WALStatus == "extended":
		s.warn("wal_status", "", fmt.Sprintf("extended: %s of WAL are retained, more than max_wal_size, and the disk is filling", kept), "let the relay catch up")
	default:
		s.ok("wal_status", "", fmt.Sprintf("%s, %s of WAL are retained", slot.WALStatus, kept))
	}
	if slot.SafeWALSize == nil {
		return
	}
	left := *slot.SafeWALSize
	if risk.Danger >= catalog.Half {
		s.warn("safe_wal_size", "", fmt.Sprintf("Postgres may invalidate the slot after %s more WAL; it retains %s%s", terminal.Size(left), kept, s.lasts(left)),
			"let the relay catch up, or raise max_slot_wal_keep_size")
		return
	}
	s.ok("safe_wal_size", "", terminal.Size(left)+" of WAL until Postgres may invalidate the slot")
}

// holder reports who streams from the slot.
func (s *sourceChecker) holder() {
	switch slot := s.catalog.Slot; {
	case s.short:
	case !slot.Active:
		s.ok("held by", "", "no relay is connected")
	case !slot.Client.IsRelay(s.Relay.Source.Conn):
		s.warn("held by", "", slot.Holder()+", does not look like a relay: rows that another program confirms are not delivered", "stop it, unless it is a relay whose source.dsn has this application_name")
	case s.Relay.FailIfSlotInUse:
		s.warn("held by", "", slot.Holder()+": run would exit with 12", "stop it, or set source.wait_for_slot: true to wait as a standby")
	default:
		s.ok("held by", "", slot.Holder()+": run would wait as a standby")
	}
}

// failover checks that the slot survives a failover, if that is configured.
func (s *sourceChecker) failover(ctx context.Context) {
	slot, name := s.catalog.Slot, "failover"
	var blocked []string
	if slot.Failover && !s.catalog.InRecovery {
		limited, cancel := context.WithTimeout(ctx, s.limits.Request)
		defer cancel()
		blocked = catalog.BlockedStandbys(limited, s.Relay.Source.Conn, slot.Name)
	}
	switch {
	case len(blocked) > 0:
		s.warn(name, "", fmt.Sprintf("the standby at %s has a slot %s of its own, so it cannot synchronize this one: after a failover to it, rows would be missing", strings.Join(blocked, " and at "), slot.Name),
			"on that standby: "+catalog.DropSlot(slot.Name))
	case s.catalog.ServerVersion < 170000 && s.Relay.SlotFailover:
		s.warn(name, "", "source.slot_failover is set, but standbys synchronize slots only from PostgreSQL 17 on", "after a failover re-create the slot: docs/runbook.md#exit-11")
	case s.Relay.SlotFailover && !slot.Failover:
		s.warn(name, "", "source.slot_failover is set, but the slot was created without failover",
			fmt.Sprintf("stop the relay, and over a connection with replication=database: ALTER_REPLICATION_SLOT %s (FAILOVER true)", slot.Name))
	case slot.Failover:
		s.ok(name, "", "standbys can synchronize the slot")
	default:
		s.ok(name, "", "off (source.slot_failover): the slot does not survive a failover")
	}
}

const (
	smallLimit = 1 << 30   // bytes of retained WAL
	shortStop  = time.Hour // an outage that a slot should survive
)

// retention checks how much WAL, and for how long, Postgres retains for a slot without a relay.
func (s *sourceChecker) retention() {
	c := s.catalog
	limitIt := s.provider.set("max_slot_wal_keep_size", "50GB", false)
	limit := c.MaxSlotWALKeepSize
	switch {
	case limit < 0:
		s.warn("disk", "", "max_slot_wal_keep_size is -1: without a relay, Postgres retains WAL until the disk is full, and stops."+
			" Set a limit above the WAL of the longest outage and below the free disk space", limitIt)
	default:
		s.ok("disk", "", fmt.Sprintf("max_slot_wal_keep_size is %s, so a slot cannot fill the disk", terminal.Size(limit)))
	}
	const name = "max_slot_wal_keep_size"
	switch {
	case limit < 0:
		s.ok(name, "", "no limit")
	case limit < smallLimit, s.rate()*shortStop.Seconds() > float64(limit):
		s.warn(name, "", terminal.Size(limit)+": Postgres invalidates the slot after so much WAL without the relay"+s.lasts(limit), limitIt)
	default:
		s.ok(name, "", terminal.Size(limit)+s.lasts(limit))
	}
	switch idle := c.IdleSlotTimeout; {
	case c.ServerVersion < 180000:
	case idle > 0:
		s.warn("idle_replication_slot_timeout", "", fmt.Sprintf("%s: Postgres invalidates the slot if no relay is connected for longer", idle),
			s.provider.set("idle_replication_slot_timeout", "0", false))
	default:
		s.ok("idle_replication_slot_timeout", "", "0, no limit")
	}
}

// ratePeriod is the minimum time to measure a rate over.
const ratePeriod = 10 * time.Minute

// rate returns the average WAL written, in bytes per second; 0 if it is unknown.
func (s *sourceChecker) rate() float64 {
	if s.server == nil || s.server.WALTime < ratePeriod {
		return 0
	}
	return s.server.WALBytes / s.server.WALTime.Seconds()
}

// lasts returns the time that it takes to write this much WAL, as the end of a sentence; empty if it is unknown.
func (s *sourceChecker) lasts(bytes int64) string {
	rate := s.rate()
	if rate <= 0 || bytes <= 0 {
		return ""
	}
	const worthTelling = 1000 * time.Hour
	took := float64(bytes) / rate
	if took > worthTelling.Seconds() {
		return ""
	}
	return fmt.Sprintf(", in about %s at the average rate", (time.Duration(took) * time.Second).Round(time.Minute))
}
