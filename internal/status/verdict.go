package status

import (
	"fmt"
	"math"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// catchingUp is how many seconds a relay may be behind before that is its state.
const catchingUp = 30

// judge says how things are. What is said of the relay is what its live page says.
func (r *Report) judge(cfg *Config) {
	st := r.Relay.status
	r.Verdict = r.between(cfg)
	if lost, ok := r.slotVerdict(cfg); ok {
		if r.Level == Bad && st != nil {
			lost.Why += " " + r.Title + ": " + r.Why
		}
		r.Verdict = lost
	}
	read := r.Postgres.Slot != nil && r.Postgres.Slot.Active
	relays := r.Relay.URL == "" || st != nil && (st.Ready || standsBy(st))
	r.Healthy = r.Level != Bad && read && relays
}

// slotVerdict is about a slot that is gone or about to be. ok is false for any other, and where
// nobody knows.
func (r *Report) slotVerdict(cfg *Config) (v Verdict, ok bool) {
	var walStatus string
	var safe *int64
	switch s := r.Postgres.Slot; {
	case s != nil:
		walStatus, safe = s.WALStatus, s.Safe
	case r.Postgres.Error == "":
		return Verdict{
			Bad, "The slot does not exist", fmt.Sprintf("There is no slot %s on the server at %s.", cfg.Slot, cfg.Address),
			"Is it the right server? If nothing was ever set up: outbox-cdc setup. Else see docs/runbook.md#exit-11.",
		}, true
	case r.Relay.status != nil:
		walStatus, safe = r.Relay.status.Slot.WALStatus, r.Relay.status.Slot.Safe
	}
	seconds := r.timeToFull()
	full := time.Duration(0)
	if !math.IsNaN(seconds) {
		full = time.Duration(seconds * float64(time.Second))
	}
	advice := admin.SlotAdvice(walStatus, safe, full)
	switch {
	case advice == "":
		return Verdict{}, false
	case walStatus == "lost":
		return Verdict{Bad, "The slot is lost", "Postgres has removed log that was not relayed yet.", advice}, true
	case full > 0:
		return Verdict{Bad, "The slot is about to be lost", "Postgres may remove log that is not relayed yet, in " + span(seconds) + " at this rate.", advice}, true
	}
	return Verdict{Bad, "The slot is about to be lost", "Postgres may remove log that is not relayed yet.", advice}, true
}

// between weighs what the two sides say.
func (r *Report) between(cfg *Config) Verdict {
	postgres, slot, st := &r.Postgres, r.Postgres.Slot, r.Relay.status
	switch {
	case st == nil && slot == nil && r.Relay.Error != "":
		return Verdict{Bad, "Neither side answers", postgres.Error + ". " + sentence(r.Relay.Error) + ".", postgres.Advice}
	case st == nil && slot == nil:
		return Verdict{Bad, "Postgres does not answer", postgres.Error + ".", postgres.Advice}
	case st == nil && !slot.Active && r.Relay.Error != "":
		return Verdict{
			Bad, "No relay runs", "Nobody reads the slot, and " + size(float64(slot.NotConfirmed)) + " of log are not relayed. " + sentence(r.Relay.Error) + ".",
			"Start it: outbox-cdc run. Nothing is lost as long as the slot has room.",
		}
	case st == nil && !slot.Active:
		return Verdict{Bad, "Nobody reads the slot", size(float64(slot.NotConfirmed)) + " of log are not relayed.", "Start the relay: outbox-cdc run. Nothing is lost as long as the slot has room."}
	case st == nil && r.Relay.Error != "":
		return Verdict{
			Warn, "The relay does not answer", fmt.Sprintf("%s. Process %d reads the slot, so there is one.", r.Relay.Error, slot.ActivePID),
			"Say where it listens: --admin HOST:PORT. To ask Postgres alone: --set admin.listen=",
		}
	case st == nil:
		return Verdict{Good, "The slot is read", fmt.Sprintf("By process %d; %s of log are not confirmed.", slot.ActivePID, size(float64(slot.NotConfirmed))), ""}
	}
	v := relayVerdict(st)
	switch {
	case v.Level == Bad:
	case postgres.Error != "":
		v = Verdict{Warn, "Postgres was not reached from here", postgres.Error + ". The relay says: " + v.Title + ".", postgres.Advice}
	case slot != nil && !slot.Active && st.Ready:
		v = Verdict{
			Bad, "Not the server of this relay", fmt.Sprintf("The relay streams from %s, and nobody reads the slot of this name at %s.", st.Source.Address, cfg.Address),
			"Is source.dsn the relay's, and --admin the right one?",
		}
	}
	return v
}

// standsBy reports whether a relay waits for another one to end.
func standsBy(st *admin.Status) bool {
	return st.State == string(relay.Waiting) && len(st.Failures) > 0 && st.Failures[0].ExitCode == relay.ExitSlotInUse
}

// relayVerdict is what a relay says of itself.
func relayVerdict(st *admin.Status) Verdict {
	advice, newest := "", st.Reason
	if len(st.Failures) > 0 && st.State != string(relay.Streaming) {
		advice, newest = st.Failures[0].Advice, st.Failures[0].Text
	}
	stalled := float64(st.Kafka.Stalled)
	switch {
	case !st.Ready && stalled > 0:
		return Verdict{Bad, "Kafka does not acknowledge", st.Reason, "Nothing is lost: Postgres keeps what is not acknowledged. Look at the brokers, then at what the error names."}
	case !st.Ready && st.State == string(relay.Starting) && len(st.Failures) == 0:
		return Verdict{Warn, "Starting", "First contact with both sides.", ""}
	case !st.Ready && st.State == string(relay.Starting):
		return Verdict{Warn, "Starting", newest, advice}
	case standsBy(st):
		return Verdict{Warn, "Standing by", "Another process streams from the slot. This one takes over when it ends.", ""}
	case !st.Ready && st.State == string(relay.Waiting):
		return Verdict{Bad, "Waiting for Postgres", newest, advice}
	case !st.Ready:
		return Verdict{Bad, "Not relaying", newest, advice}
	case stalled > 0:
		return Verdict{Warn, "Kafka is slow", st.Kafka.StallReason + ", for " + span(stalled), ""}
	case float64(st.Lag.Seconds) > catchingUp:
		return Verdict{Warn, "Catching up", span(float64(st.Lag.Seconds)) + " behind, " + size(float64(st.Lag.Bytes)) + " of log to go.", ""}
	case st.Rates.Records > 0:
		return Verdict{Good, "Healthy", "What is committed is in Kafka " + span(float64(st.Latency.CommitToAckP50)) + " later.", ""}
	}
	return Verdict{Good, "Healthy", "Everything that was committed is in Kafka. Nothing is being written.", ""}
}
