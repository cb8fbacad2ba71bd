package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// slot judges the slot.
func (s *sourceLook) slot(ctx context.Context, survey *catalog.Surveyor) {
	c := s.catalog
	slot := c.Slot
	switch {
	case s.createsSlot():
		s.ok("slot", "", fmt.Sprintf("there is no slot %s yet: run creates it", c.SlotName))
		return
	case slot == nil && c.InRecovery:
		s.fail("slot", "", "a standby has no slot "+c.SlotName, "connect to the primary")
		return
	case slot == nil:
		s.fail("slot", "", fmt.Sprintf("there is no slot %s; what is committed without it is not delivered", c.SlotName), s.command("setup"))
		return
	}
	s.ok("slot", "", fmt.Sprintf("%s, confirmed up to %s", slot.Name, slot.ConfirmedFlushLSN))
	s.kind(slot)
	s.standing(slot)
	s.holder(ctx, survey)
	s.failover()
	s.synchronized()
}

// kind says whether the slot is one that the relay can stream from.
func (s *sourceLook) kind(slot *catalog.Slot) {
	const another = "choose another name for the relay's in source.slot"
	switch {
	case slot.Plugin == "":
		s.fail("plugin", "", "none: it is a physical slot", another)
	case slot.Plugin != "pgoutput":
		s.fail("plugin", "", slot.Plugin+", and the relay reads pgoutput", another)
	default:
		s.ok("plugin", "", slot.Plugin)
	}
	if slot.Database == s.catalog.Database {
		s.ok("slot's database", "", slot.Database)
	} else {
		s.fail("slot's database", "", fmt.Sprintf("the slot is of %q, the connection to %s", slot.Database, s.catalog.Database), another+", or connect to that database (source.dsn)")
	}
	switch {
	case slot.Temporary:
		s.fail("permanent", "", "the slot is temporary: it ends with the session that has made it", another)
	case slot.TwoPhase:
		s.fail("permanent", "", "the slot has two_phase, with which prepared transactions would come before they are committed", another)
	default:
		s.ok("permanent", "", "neither temporary nor two_phase")
	}
}

// standing says whether the server still has what the slot stands for.
func (s *sourceLook) standing(slot *catalog.Slot) {
	c := s.catalog
	reserve := c.Reserve(time.Time{})
	reserve.IdleAt = time.Time{} // a condition of its own
	kept, risk := size(reserve.Retained), reserve.Judge(c.ReadAt)
	switch {
	case risk.Danger == catalog.Lost:
		s.fail("wal_status", "", strings.TrimSpace(fmt.Sprintf("lost %s", slot.InvalidationReason))+fmt.Sprintf(": what it had not delivered, from %s on, is gone from the log", slot.ConfirmedFlushLSN),
			"send the rows that are still in the table otherwise, then begin anew: "+s.command("setup --drop")+"; "+s.command("setup"))
	case risk.Danger == catalog.Unreserved:
		s.warn("wal_status", "", fmt.Sprintf("%s: %s are kept, and the next checkpoint may remove what the slot needs", slot.WALStatus, kept),
			"let the relay catch up at once; ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()")
	case slot.WALStatus == "extended":
		s.warn("wal_status", "", fmt.Sprintf("extended: %s are kept, beyond max_wal_size; the disk fills", kept), "let the relay catch up")
	default:
		s.ok("wal_status", "", fmt.Sprintf("%s, %s are kept", slot.WALStatus, kept))
	}
	if slot.SafeWALSize == nil {
		return
	}
	left := *slot.SafeWALSize
	if risk.Danger >= catalog.Half {
		s.warn("safe_wal_size", "", fmt.Sprintf("when %s more are written, the slot may be lost; it holds %s%s", size(left), kept, s.lasts(left)),
			"let the relay catch up, or raise max_slot_wal_keep_size")
		return
	}
	s.ok("safe_wal_size", "", size(left)+" may be written before the slot can be lost")
}

// holder says who streams from the slot.
func (s *sourceLook) holder(ctx context.Context, survey *catalog.Surveyor) {
	var h *catalog.Holder
	if s.short || !s.ask(ctx, &s.report, "held by", "", func(ctx context.Context) (err error) {
		h, err = survey.Holder(ctx, s.catalog.SlotName)
		return err
	}) {
		return
	}
	if h == nil {
		s.ok("held by", "", "nobody: no relay is connected")
		return
	}
	text := fmt.Sprintf("process %d of the server", s.catalog.Slot.ActivePID)
	if h.Application != "" {
		text += fmt.Sprintf(", application %q", h.Application)
	}
	if h.Address != "" {
		text += " at " + h.Address
	}
	if s.Relay.FailIfSlotInUse {
		s.warn("held by", "", text+": run would end with exit code 12", "stop it, or set source.wait_for_slot: true to stand by")
		return
	}
	s.ok("held by", "", text+": another relay stands by")
}

// failover says whether the slot survives that of the server.
func (s *sourceLook) failover() {
	slot, name := s.catalog.Slot, "failover"
	switch {
	case s.catalog.ServerVersion < 170000 && s.Relay.SlotFailover:
		s.warn(name, "", "source.slot_failover is set, and standbys keep copies of slots from PostgreSQL 17 on", "after a failover make the slot anew: docs/runbook.md#exit-11")
	case s.Relay.SlotFailover && !slot.Failover:
		s.warn(name, "", "source.slot_failover is set, and the slot was created without",
			fmt.Sprintf("while nobody streams from it, over a connection with replication=database: ALTER_REPLICATION_SLOT %s (FAILOVER true)", slot.Name))
	case slot.Failover:
		s.ok(name, "", "standbys keep a copy of the slot")
	default:
		s.ok(name, "", "not asked for (source.slot_failover): after a failover the slot is gone")
	}
}

const (
	smallLimit = 1 << 30   // of log that a slot may hold
	shortStop  = time.Hour // a relay that is away for longer should not lose its slot
)

// retention judges how long the server waits for a relay that is away.
func (s *sourceLook) retention() {
	c := s.catalog
	const limitIt = "ALTER SYSTEM SET max_slot_wal_keep_size = '%s'; SELECT pg_reload_conf()"
	limit := c.MaxSlotWALKeepSize
	switch {
	case limit < 0:
		s.warn("disk", "", "max_slot_wal_keep_size is -1: while the relay is away the log grows until the disk is full, and the server stops;"+
			" a limit is more than what the longest outage writes, and less than what the disk has free", fmt.Sprintf(limitIt, "50GB"))
	default:
		s.ok("disk", "", fmt.Sprintf("the log cannot fill it for a slot: max_slot_wal_keep_size is %s", size(limit)))
	}
	const name = "max_slot_wal_keep_size"
	switch {
	case limit < 0:
		s.ok(name, "", "no limit")
	case limit < smallLimit, s.rate()*shortStop.Seconds() > float64(limit):
		s.warn(name, "", size(limit)+": a slot is lost when the relay is away for so much log"+s.lasts(limit), fmt.Sprintf(limitIt, "50GB"))
	default:
		s.ok(name, "", size(limit)+s.lasts(limit))
	}
	switch idle := c.IdleSlotTimeout; {
	case c.ServerVersion < 180000:
	case idle > 0:
		s.warn("idle_replication_slot_timeout", "", fmt.Sprintf("%s: a relay that is stopped for longer loses its slot", idle),
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()")
	default:
		s.ok("idle_replication_slot_timeout", "", "0: a slot is kept while nobody is connected")
	}
}

// ratePeriod is the least that a rate is measured over.
const ratePeriod = 10 * time.Minute

// rate is how many bytes of log the server has written a second, on average; 0: not known.
func (s *sourceLook) rate() float64 {
	if s.server == nil || s.server.WALTime < ratePeriod {
		return 0
	}
	return s.server.WALBytes / s.server.WALTime.Seconds()
}

// lasts says how long it takes to write so much log.
func (s *sourceLook) lasts(bytes int64) string {
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

// size prints bytes as Postgres does.
func size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d kB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d GB", n>>30)
}
