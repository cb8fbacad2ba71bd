package status

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// startAdvice is for a slot that no relay reads. Some exit codes mean that a restart fails again, or loses rows.
const startAdvice = "Find out why the relay stopped. If it stopped with an exit code, do first what that code's section says: docs/runbook.md#exit-codes." +
	" Otherwise start it: outbox-cdc run."

// retained is said of a slot from which a relay continues.
const retained = " Nothing is lost as long as Postgres retains the WAL."

// judge sets the verdict and Healthy. The verdict on the relay is the one that its live page shows.
func (r *Report) judge(cfg *Config) {
	st := r.Relay.status
	if s := r.Postgres.Slot; s != nil && s.Synced && (r.Relay.URL == "" || st != nil && st.Ready) {
		r.Verdict = s.copyVerdict() // the relay reads from the primary
		r.Healthy = r.Level == admin.Good
		return
	}
	r.Verdict = r.sides(cfg)
	switch slot, ok := r.slotVerdict(cfg); {
	case !ok:
	case slot.Level == admin.Bad || r.Level == admin.Good:
		if r.Level == admin.Bad && st != nil {
			slot.Why += " " + r.Title + ": " + r.Why
		}
		r.Verdict = slot
	default:
		r.Verdict = r.With(slot)
	}
	if s := r.Postgres.Slot; s != nil && s.Active && len(s.Missing) > 0 && r.Level != admin.Bad {
		r.Verdict = admin.Withheld(s.Missing)
	}
	if slot, ok := r.Postgres.Slot.standbyVerdict(); ok && (slot.Level == admin.Bad || r.Level == admin.Good) {
		r.Verdict = slot
	}
	active := r.Postgres.Slot != nil && r.Postgres.Slot.Active
	delivers := r.Relay.URL == "" || st != nil && st.Ready && !st.Stalls()
	r.Healthy = r.Level != admin.Bad && active && delivers
}

// copyVerdict returns the verdict on the copy of a slot on a standby server.
func (s *Slot) copyVerdict() admin.Verdict {
	if !s.temporary && s.Invalidation == "" {
		return admin.Verdict{
			Level: admin.Good, Title: "The copy of the slot is ready",
			Why: "This server is a standby. If it is promoted, a relay continues from here. The slot itself is on the primary.",
		}
	}
	why := "Postgres has not completed it."
	if s.Invalidation != "" {
		why = "It is invalidated (" + s.Invalidation + "), and Postgres creates it again."
	}
	return admin.Verdict{
		Level: admin.Bad, Title: "The copy of the slot is not ready",
		Why:    "This server is a standby. " + why + " If it is promoted before that, a relay finds no slot.",
		Advice: "If this lasts, see the standby's server log, and docs/high-availability.md#fail-over-postgres.",
	}
}

// standbyVerdict returns the verdict on a slot that prevents the synchronization of the primary's slot to a standby. s may be nil.
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

// slotVerdict returns the verdict on a slot that is missing or at risk, after the Verdict on the two sides is set. ok is false for any
// other slot, and if neither Postgres nor the relay knows.
func (r *Report) slotVerdict(cfg *Config) (v admin.Verdict, ok bool) {
	var reserve catalog.Reserve
	switch s := r.Postgres.Slot; {
	case s != nil:
		reserve = s.reserve()
	case r.Postgres.Error == "":
		return r.withoutSlot(cfg), r.Relay.status != nil // otherwise sides has it
	case r.Relay.status != nil:
		s := &r.Relay.status.Slot
		reserve = catalog.Reserve{WALStatus: s.WALStatus, Retained: s.Retained, Safe: s.Safe}
	}
	if full := r.timeToLimit(); !math.IsNaN(full) {
		reserve.LimitAt = r.At.Add(time.Duration(full * float64(time.Second)))
	}
	reserve.Refills = cfg.refills()
	risk := reserve.Judge(r.At)
	v = admin.SlotVerdict(risk)
	switch risk.Level() {
	case catalog.LevelLost:
		switch {
		case reserve.Refills:
			v.Advice = cmp.Or(r.unblock(&v), v.Advice)
		case r.byHand():
			v.Advice = "Stop the relay, if one runs, then " + catalog.InstructByHand + ". See docs/recover.md#recover-refuses."
		default:
			v.Advice = cmp.Or(r.refused(&v), v.Advice)
		}
	case catalog.LevelCritical:
		if s := r.Postgres.Slot; r.Relay.status == nil && s != nil && !s.Active { // first, a relay has to run
			v.Why, v.Advice = v.Why+" "+r.Title+".", r.Advice+" "+v.Advice
		}
	case catalog.LevelOK, catalog.LevelWarning:
	}
	return v, risk.Level() > catalog.LevelOK
}

// byHand reports whether recover cannot send the rows that a lost slot has not delivered.
func (r *Report) byHand() bool {
	return r.NextStart != nil && r.NextStart.recover == catalog.InstructByHand
}

// refused returns the advice after the loss of the slot if recover would refuse, and adds the reason to v; otherwise it returns "".
func (r *Report) refused(v *admin.Verdict) string {
	n := r.NextStart
	if n == nil || n.refused == "" {
		return ""
	}
	v.Why += " " + sentence(n.refused) + "."
	return sentence(n.recover) + "."
}

// unblock returns what to do so that the relay goes on by itself: about the error that it waits after, or about the one for which the
// last relay has stopped, which it adds to v. If there is none, it returns "".
func (r *Report) unblock(v *admin.Verdict) string {
	n := r.NextStart
	switch {
	case r.Relay.status != nil && r.Level == admin.Bad:
		return r.Advice
	case r.Relay.status != nil, n == nil, n.Recorded == nil, n.Recorded.Stopped == nil:
		return ""
	}
	stop := n.Recorded.Stopped
	v.Why += fmt.Sprintf(" The relay has stopped with exit code %d: %s.", stop.ExitCode, joined(stop.Reason))
	return sentence(joined(stop.Advice)) + "."
}

// withoutSlot returns the verdict on a slot that does not exist.
func (r *Report) withoutSlot(cfg *Config) admin.Verdict {
	recovers := catalog.InstructRecover + ": it creates the slot and sends the missing rows from the table. See docs/recover.md."
	switch {
	case r.byHand():
		recovers = catalog.InstructByHand + ". See docs/recover.md#recover-refuses."
	case cfg.refills():
		recovers = "start it: outbox-cdc run. It creates the slot and sends the missing rows from the table, because source.on_slot_loss is refill."
	}
	v := admin.Verdict{
		Level: admin.Bad, Title: "The slot does not exist",
		Why:    fmt.Sprintf("There is no slot %s on the server at %s.", cfg.Slot, cfg.Address),
		Advice: "If a relay has used it, " + recovers + " If none has, create it: " + catalog.InstructSetup + ". Check before that source.dsn and source.slot are right.",
	}
	switch next := r.NextStart; {
	case next == nil && r.unread != "":
		v.Why += " Whether a relay has used it is not known: " + r.unread + "."
	case next == nil:
		if cfg.refills() {
			v.Advice = cmp.Or(r.unblock(&v), v.Advice)
		}
	case next.ExitCode == exit.Continuity:
		v.Why += " " + sentence(next.Error) + "."
		v.Advice = sentence(next.Advice) + "."
	case next.Recorded != nil && !next.first:
		v.Why += fmt.Sprintf(" A relay recorded position %s at %s.", next.Recorded.EndLSN, next.Recorded.WrittenAt.UTC().Format(time.RFC3339))
		v.Advice = "Check that source.dsn and source.slot are right, then " + recovers
		if cfg.refills() {
			v.Advice = cmp.Or(r.unblock(&v), v.Advice)
		}
		v.Advice = cmp.Or(r.refused(&v), v.Advice)
	case next.ExitCode == exit.SlotLost: // only the slot is missing, and no row was delivered that one would have to know of
		v.Title, v.Advice = next.firstTitle(), "Check that source.dsn, source.slot and name are right, then create the slot: "+catalog.InstructSetup+"."
	case next.Error != "":
		v.Title, v.Why = next.firstTitle(), v.Why+" The next start fails: "+next.Error+"."
		v.Advice = "Check that source.dsn and source.slot are right. " + sentence(next.Advice) + "."
	default:
		v.Level, v.Title, v.Advice = admin.Warn, next.firstTitle(), "Start it: outbox-cdc run. It creates the slot. "
		if cfg.Relay.InitialCopy {
			v.Advice += "It first sends the rows that are in the tables, because source.initial_copy is set."
		} else {
			v.Advice += "Rows committed before are not delivered. To send them too, set source.initial_copy before the first start."
		}
		v.Advice = cmp.Or(r.unblock(&v), v.Advice)
	}
	return v
}

// firstTitle is the title if there is no slot, and there was none.
func (n *NextStart) firstTitle() string {
	if n.Recorded != nil {
		return "The first start has not created the slot"
	}
	return "No relay has run yet"
}

// unrecorded returns the verdict on a slot that no relay reads, and for which there is no position record.
func (r *Report) unrecorded(cfg *Config) admin.Verdict {
	slot := r.Postgres.Slot
	v := admin.Verdict{
		Level: admin.Bad, Title: "There is no position record",
		Why: fmt.Sprintf("Slot %s is confirmed up to %s, and %s has no position record of the name %s: no relay has run under it yet, or the record was lost. %s of WAL are not delivered.",
			slot.Name, slot.Confirmed, cfg.Relay.Positions, cfg.Relay.Name, terminal.Size(slot.NotConfirmed)),
		Advice: "Start it: outbox-cdc run. It continues at the position of the slot, and sends again what a relay has delivered after that.",
	}
	if cfg.Relay.InitialCopy {
		v.Advice += " It sends no rows from before, although source.initial_copy is set, because the slot exists."
	}
	v.Advice += retained
	return v
}

// stopped returns the verdict on a slot that no relay reads. why is what else is known.
func (r *Report) stopped(cfg *Config, title, why string) admin.Verdict {
	v := admin.Verdict{Level: admin.Bad, Title: title, Why: terminal.Size(r.Postgres.Slot.NotConfirmed) + " of WAL are not delivered." + why, Advice: startAdvice + retained}
	switch next := r.NextStart; {
	case next == nil && r.unread != "":
		v.Why += " Whether the slot continues where the last relay has stopped is not known: " + r.unread + "."
		v.Advice = startAdvice + " It stops if rows are missing."
	case next == nil:
	case next.Error != "":
		v.Title, v.Why, v.Advice = fmt.Sprintf("The next start fails with exit code %d", next.ExitCode), sentence(next.Error)+"."+why, sentence(next.Advice)+"."
	case next.Recorded == nil:
		return r.unrecorded(cfg)
	case next.Recorded.Stopped != nil:
		stop := next.Recorded.Stopped
		v.Title = fmt.Sprintf("The relay has stopped with exit code %d", stop.ExitCode)
		v.Why = fmt.Sprintf("At %s: %s.%s", stop.At.UTC().Format(time.RFC3339), joined(stop.Reason), why)
		v.Advice = sentence(joined(stop.Advice)) + "."
	case next.Recorded.Unfinished != "":
		v.Advice = startAdvice
	}
	if next := r.NextStart; next != nil && next.Recorded != nil && next.Recorded.Unfinished != "" {
		v.Why += fmt.Sprintf(" The %s is not finished. Its rows are in the table, not in the WAL: delete none before it is.", next.Recorded.Unfinished)
	}
	if next := r.NextStart; next != nil && next.Parked > 0 {
		v.Why += fmt.Sprintf(" Parked keys: %d, see outbox-cdc dead-letter list.", next.Parked)
	}
	return v
}

// joined returns a text of several lines on one, without a full stop.
func joined(text string) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
}

// sides returns the verdict on what Postgres and the relay have answered, apart from the slot's risk.
func (r *Report) sides(cfg *Config) admin.Verdict {
	postgres, slot, st := &r.Postgres, r.Postgres.Slot, r.Relay.status
	if st == nil {
		return r.withoutRelay(cfg)
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
	case slot != nil && slot.foreign != "" && st.StandsBy():
		v = slot.foreignVerdict()
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

// foreignVerdict returns the verdict on a slot from which a program streams that does not look like a relay.
func (s *Slot) foreignVerdict() admin.Verdict {
	return admin.Verdict{
		Level: admin.Warn, Title: "Another program streams from the slot",
		Why:    s.foreign + ", does not look like a relay. Rows that another program confirms are not delivered.",
		Advice: "Stop it, unless it is a relay whose source.dsn has this application_name. Then run status again.",
	}
}

// silentVerdict returns the verdict on a relay whose admin server accepts the connection and does not respond.
func (r *Report) silentVerdict() admin.Verdict {
	v := admin.Verdict{
		Level: admin.Bad, Title: "The relay does not respond",
		Why:    r.Relay.Error + ": the process is frozen, or its machine is overloaded. ",
		Advice: "Restart this relay. If that does not help, see whether its machine has CPU and memory left.",
	}
	if slot := r.Postgres.Slot; slot.Active {
		v.Level = admin.Warn
		v.Why += fmt.Sprintf("WAL sender %d streams from the slot, for this relay or another one.", slot.ActivePID)
	} else {
		v.Why += "No relay streams from the slot; " + terminal.Size(slot.NotConfirmed) + " of WAL are not delivered."
	}
	return v
}

// withoutRelay returns the verdict if the relay has not responded or is not to be asked.
func (r *Report) withoutRelay(cfg *Config) admin.Verdict {
	postgres, slot := &r.Postgres, r.Postgres.Slot
	switch asked := r.Relay.Error != ""; {
	case slot == nil && postgres.Error == "":
		return r.withoutSlot(cfg)
	case slot == nil && asked:
		return admin.Verdict{Level: admin.Bad, Title: "Cannot connect to Postgres, and no relay responds", Why: postgres.Error + ". " + sentence(r.Relay.Error) + ".", Advice: postgres.Advice}
	case slot == nil:
		return admin.Verdict{Level: admin.Bad, Title: "Cannot connect to Postgres", Why: postgres.Error + ".", Advice: postgres.Advice}
	case r.Relay.silent && slot.foreign == "":
		return r.silentVerdict()
	case !slot.Active && asked:
		return r.stopped(cfg, "No relay is running", " "+sentence(r.Relay.Error)+".")
	case !slot.Active:
		return r.stopped(cfg, "No relay reads the slot", "")
	case slot.foreign != "":
		return slot.foreignVerdict()
	case asked:
		return admin.Verdict{
			Level: admin.Warn, Title: "The relay does not respond",
			Why:    fmt.Sprintf("%s. WAL sender %d streams from the slot, for this relay or another one.", r.Relay.Error, slot.ActivePID),
			Advice: "Name its admin server: --admin HOST:PORT. To ask Postgres only: --set admin.listen=",
		}
	}
	return admin.Verdict{Level: admin.Good, Title: "The slot is active", Why: fmt.Sprintf("WAL sender %d streams from it; %s of WAL are not confirmed.", slot.ActivePID, terminal.Size(slot.NotConfirmed))}
}
