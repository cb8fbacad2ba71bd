package status

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// startAdvice is for a slot that no relay reads. Some exit codes mean that a restart fails again, or loses rows.
const startAdvice = "Find out why the relay stopped. If it stopped with an exit code, do first what that code's section says: docs/runbook.md#exit-codes." +
	" Otherwise start it: outbox-cdc run. Nothing is lost as long as Postgres retains the WAL."

// judge sets the verdict and Healthy. The verdict on the relay is the one that its live page shows.
func (r *Report) judge(cfg *Config) {
	st := r.Relay.status
	r.Verdict = r.sides(cfg)
	if slot, ok := r.slotVerdict(cfg); ok && (slot.Level == admin.Bad || r.Level == admin.Good) {
		if r.Level == admin.Bad && st != nil {
			slot.Why += " " + r.Title + ": " + r.Why
		}
		r.Verdict = slot
	}
	if slot, ok := r.Postgres.Slot.standbyVerdict(); ok && (slot.Level == admin.Bad || r.Level == admin.Good) {
		r.Verdict = slot
	}
	active := r.Postgres.Slot != nil && r.Postgres.Slot.Active
	delivers := r.Relay.URL == "" || st != nil && st.Ready && st.Sink.Stalled == 0
	r.Healthy = r.Level != admin.Bad && active && delivers
}

// standbyVerdict returns the verdict on a slot that prevents the synchronization of the primary's slot to a standby. s
// may be nil.
func (s *Slot) standbyVerdict() (v admin.Verdict, ok bool) {
	switch {
	case s == nil:
	case s.Orphaned:
		return admin.Verdict{
			Level: admin.Bad, Title: "The slot is left on a standby",
			Why:    "The server is a standby, and its slot " + s.Name + " is left from when it was the primary. The slot does not get the new primary's rows, and Postgres cannot synchronize the new primary's slot to this standby.",
			Advice: "Let source.dsn lead to the primary. On this standby: " + catalog.DropSlot(s.Name) + ".",
		}, true
	case len(s.Blocked) > 0:
		return admin.Verdict{
			Level: admin.Warn, Title: "A standby cannot synchronize the slot",
			Why:    "The standby at " + strings.Join(s.Blocked, " and at ") + " has a slot " + s.Name + " of its own, perhaps from when it was the primary. After a failover to it, rows would be missing.",
			Advice: "On that standby: " + catalog.DropSlot(s.Name) + ".",
		}, true
	}
	return admin.Verdict{}, false
}

// slotVerdict returns the verdict on a slot that is missing or at risk. ok is false for any other slot, and if
// neither Postgres nor the relay knows.
func (r *Report) slotVerdict(cfg *Config) (v admin.Verdict, ok bool) {
	var reserve catalog.Reserve
	switch s := r.Postgres.Slot; {
	case s != nil:
		reserve = s.reserve()
	case r.Postgres.Error == "":
		return admin.Verdict{
			Level: admin.Bad, Title: "The slot does not exist",
			Why:    fmt.Sprintf("There is no slot %s on the server at %s.", cfg.Slot, cfg.Address),
			Advice: "Check that source.dsn and source.slot are right. If no relay has run yet, start it: outbox-cdc run. Otherwise outbox-cdc recover: it creates the slot and sends the missing rows from the table. See docs/recover.md.",
		}, true
	case r.Relay.status != nil:
		s := &r.Relay.status.Slot
		reserve = catalog.Reserve{WALStatus: s.WALStatus, Retained: s.Retained, Safe: s.Safe}
	}
	if full := r.timeToLimit(); !math.IsNaN(full) {
		reserve.LimitAt = r.At.Add(time.Duration(full * float64(time.Second)))
	}
	risk := reserve.Judge(r.At)
	return admin.SlotVerdict(risk), risk.Level() > catalog.LevelOK
}

// sides returns the verdict on what Postgres and the relay have answered, apart from the slot's risk.
func (r *Report) sides(cfg *Config) admin.Verdict {
	postgres, slot, st := &r.Postgres, r.Postgres.Slot, r.Relay.status
	if st == nil {
		return r.withoutRelay()
	}
	v, relays := st.Relaying(), st.Source.SystemID
	switch {
	case relays != "" && postgres.SystemID != "" && relays != postgres.SystemID:
		v = admin.Verdict{
			Level: admin.Bad, Title: "The relay reads from another server",
			Why:    fmt.Sprintf("The relay reads from %s, system identifier %s. The server at %s has %s.", st.Source.Address, relays, cfg.Address, postgres.SystemID),
			Advice: "Check that source.dsn is the relay's, and that --admin names the right relay.",
		}
	case v.Level == admin.Bad:
	case postgres.Error != "":
		v = admin.Verdict{Level: admin.Warn, Title: "Cannot connect to Postgres from here", Why: postgres.Error + ". The relay reports: " + v.Title + ".", Advice: postgres.Advice}
	case slot != nil && !slot.Active && st.Ready:
		v = admin.Verdict{
			Level: admin.Warn, Title: "No relay reads the slot",
			Why:    "The relay has just lost its connection, or it reads from a standby or a copy of this server.",
			Advice: "Run status again in a few seconds. If nothing changes, compare source.dsn with the relay's.",
		}
	}
	return v
}

// withoutRelay returns the verdict if the relay has not responded or is not to be asked.
func (r *Report) withoutRelay() admin.Verdict {
	postgres, slot := &r.Postgres, r.Postgres.Slot
	switch asked := r.Relay.Error != ""; {
	case slot == nil && asked:
		return admin.Verdict{Level: admin.Bad, Title: "Neither Postgres nor the relay responds", Why: postgres.Error + ". " + sentence(r.Relay.Error) + ".", Advice: postgres.Advice}
	case slot == nil:
		return admin.Verdict{Level: admin.Bad, Title: "Cannot connect to Postgres", Why: postgres.Error + ".", Advice: postgres.Advice}
	case !slot.Active && asked:
		return admin.Verdict{
			Level: admin.Bad, Title: "No relay is running",
			Why:    "No relay reads the slot, and " + terminal.Size(float64(slot.NotConfirmed)) + " of WAL are not delivered. " + sentence(r.Relay.Error) + ".",
			Advice: startAdvice,
		}
	case !slot.Active:
		return admin.Verdict{Level: admin.Bad, Title: "No relay reads the slot", Why: terminal.Size(float64(slot.NotConfirmed)) + " of WAL are not delivered.", Advice: startAdvice}
	case asked:
		return admin.Verdict{
			Level: admin.Warn, Title: "The relay does not respond",
			Why:    fmt.Sprintf("%s. WAL sender %d streams from the slot, so a relay is running.", r.Relay.Error, slot.ActivePID),
			Advice: "Name its admin server: --admin HOST:PORT. To ask Postgres only: --set admin.listen=",
		}
	}
	return admin.Verdict{Level: admin.Good, Title: "The slot is active", Why: fmt.Sprintf("WAL sender %d streams from it; %s of WAL are not confirmed.", slot.ActivePID, terminal.Size(float64(slot.NotConfirmed)))}
}
