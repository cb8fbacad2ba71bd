package status

import (
	"fmt"
	"math"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// judge says how things are. What is said of the relay is what its live page says.
func (r *Report) judge(cfg *Config) {
	st := r.Relay.status
	r.Verdict = r.between(cfg)
	if slot, ok := r.slotVerdict(cfg); ok && (slot.Level == admin.Bad || r.Level == admin.Good) {
		if r.Level == admin.Bad && st != nil {
			slot.Why += " " + r.Title + ": " + r.Why
		}
		r.Verdict = slot
	}
	read := r.Postgres.Slot != nil && r.Postgres.Slot.Active
	relays := r.Relay.URL == "" || st != nil && (st.Ready || st.StandsBy())
	r.Healthy = r.Level != admin.Bad && read && relays
}

// slotVerdict is about a slot that is gone or in danger. ok is false for any other, and where
// nobody knows.
func (r *Report) slotVerdict(cfg *Config) (v admin.Verdict, ok bool) {
	var reserve catalog.Reserve
	switch s := r.Postgres.Slot; {
	case s != nil:
		reserve = catalog.Reserve{WALStatus: s.WALStatus, Invalidation: s.Invalidation, Retained: s.Retained, Safe: s.Safe, IdleAt: s.idleAt}
	case r.Postgres.Error == "":
		return admin.Verdict{
			Level: admin.Bad, Title: "The slot does not exist",
			Why:    fmt.Sprintf("There is no slot %s on the server at %s.", cfg.Slot, cfg.Address),
			Advice: "Is it the right server? If nothing was ever set up: outbox-cdc setup. Else see docs/runbook.md#exit-11.",
		}, true
	case r.Relay.status != nil:
		s := &r.Relay.status.Slot
		reserve = catalog.Reserve{WALStatus: s.WALStatus, Retained: s.Retained, Safe: s.Safe}
	}
	if full := r.timeToFull(); !math.IsNaN(full) {
		reserve.LimitAt = r.At.Add(time.Duration(full * float64(time.Second)))
	}
	risk := reserve.Judge(r.At)
	return admin.SlotVerdict(risk), risk.Level() > catalog.LevelOK
}

// between weighs what the two sides say.
func (r *Report) between(cfg *Config) admin.Verdict {
	postgres, slot, st := &r.Postgres, r.Postgres.Slot, r.Relay.status
	switch {
	case st == nil && slot == nil && r.Relay.Error != "":
		return admin.Verdict{Level: admin.Bad, Title: "Neither side answers", Why: postgres.Error + ". " + sentence(r.Relay.Error) + ".", Advice: postgres.Advice}
	case st == nil && slot == nil:
		return admin.Verdict{Level: admin.Bad, Title: "Postgres does not answer", Why: postgres.Error + ".", Advice: postgres.Advice}
	case st == nil && !slot.Active && r.Relay.Error != "":
		return admin.Verdict{
			Level: admin.Bad, Title: "No relay runs",
			Why:    "Nobody reads the slot, and " + terminal.Size(float64(slot.NotConfirmed)) + " of log are not relayed. " + sentence(r.Relay.Error) + ".",
			Advice: "Start it: outbox-cdc run. Nothing is lost as long as the slot has room.",
		}
	case st == nil && !slot.Active:
		return admin.Verdict{Level: admin.Bad, Title: "Nobody reads the slot", Why: terminal.Size(float64(slot.NotConfirmed)) + " of log are not relayed.", Advice: "Start the relay: outbox-cdc run. Nothing is lost as long as the slot has room."}
	case st == nil && r.Relay.Error != "":
		return admin.Verdict{
			Level: admin.Warn, Title: "The relay does not answer",
			Why:    fmt.Sprintf("%s. Process %d reads the slot, so there is one.", r.Relay.Error, slot.ActivePID),
			Advice: "Say where it listens: --admin HOST:PORT. To ask Postgres alone: --set admin.listen=",
		}
	case st == nil:
		return admin.Verdict{Level: admin.Good, Title: "The slot is read", Why: fmt.Sprintf("By process %d; %s of log are not confirmed.", slot.ActivePID, terminal.Size(float64(slot.NotConfirmed)))}
	}
	v, relays := st.Relaying(), st.Source.SystemID
	switch {
	case relays != "" && postgres.SystemID != "" && relays != postgres.SystemID:
		v = admin.Verdict{
			Level: admin.Bad, Title: "Not the server of this relay",
			Why:    fmt.Sprintf("The relay reads from %s, system identifier %s; the server at %s has %s.", st.Source.Address, relays, cfg.Address, postgres.SystemID),
			Advice: "Check that source.dsn is the relay's, and that --admin names the right relay.",
		}
	case v.Level == admin.Bad:
	case postgres.Error != "":
		v = admin.Verdict{Level: admin.Warn, Title: "Postgres was not reached from here", Why: postgres.Error + ". The relay says: " + v.Title + ".", Advice: postgres.Advice}
	case slot != nil && !slot.Active && st.Ready:
		v = admin.Verdict{
			Level: admin.Warn, Title: "Nobody reads the slot",
			Why:    "The relay has just lost its connection, or it reads from a standby or a copy of this server.",
			Advice: "Run status again in a few seconds. If nothing changes, compare source.dsn with the relay's.",
		}
	}
	return v
}
