package admin

import (
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A Level is how much a Verdict worries.
type Level string

// The levels. What is Warn may be healthy, and may not.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// A Verdict is how things are, in a word, with why and what to do about it.
type Verdict struct {
	Level  Level  `json:"level"`
	Title  string `json:"title"`
	Why    string `json:"why"`
	Advice string `json:"advice"`
}

// catchingUp is how many seconds a relay may be behind before that is its state.
const catchingUp = 30

// SlotVerdict is what a slot's risk says; it is empty of a slot in no danger.
func SlotVerdict(risk catalog.Risk) Verdict {
	v := Verdict{Good, risk.Title, risk.Why, risk.Advice}
	switch risk.Level() {
	case catalog.LevelOK:
	case catalog.LevelWarning:
		v.Level = Warn
	case catalog.LevelCritical, catalog.LevelLost:
		v.Level = Bad
	}
	return v
}

// judge weighs how the relay does and how its slot stands.
func (st *Status) judge(risk catalog.Risk) Verdict {
	own, slot := st.Relaying(), SlotVerdict(risk)
	switch {
	case slot.Level == Bad && own.Level == Bad:
		slot.Title = own.Title + ", and " + strings.Replace(slot.Title, "The", "the", 1)
		slot.Why += " " + own.Why
		return slot
	case slot.Level == Bad, slot.Level == Warn && own.Level == Good:
		return slot
	}
	return own
}

// StandsBy reports whether the relay waits for another one to end.
func (st *Status) StandsBy() bool { return st.waits(relay.ExitSlotInUse) }

// waits reports whether the relay waits because of an error with an exit code.
func (st *Status) waits(exit int) bool {
	return st.State == string(relay.Waiting) && len(st.Failures) > 0 && st.Failures[0].ExitCode == exit
}

// Relaying says how the relay does, whatever its slot's state.
func (st *Status) Relaying() Verdict {
	advice, newest := "", st.Reason
	if len(st.Failures) > 0 && st.State != string(relay.Streaming) {
		advice, newest = st.Failures[0].Advice, st.Failures[0].Text
	}
	stalled := float64(st.Kafka.Stalled)
	switch {
	case !st.Ready && stalled > 0 && st.State == string(relay.Streaming):
		return Verdict{Bad, "Kafka does not acknowledge", st.Reason, "Nothing is lost: Postgres keeps what is not acknowledged. Look at the brokers, then at what the error names."}
	case !st.Ready && st.State == string(relay.Starting) && len(st.Failures) == 0:
		return Verdict{Warn, "Starting", "First contact with both sides.", ""}
	case !st.Ready && st.State == string(relay.Starting):
		return Verdict{Warn, "Starting", newest, advice}
	case st.StandsBy():
		return Verdict{Warn, "Standing by", "Another process streams from the slot. This one takes over when it ends.", ""}
	case st.waits(relay.ExitSink):
		return Verdict{Bad, "Waiting for Kafka", newest, advice}
	case !st.Ready && st.State == string(relay.Waiting) && stalled > stallAfter.Seconds():
		return Verdict{Bad, "Waiting for Postgres", newest + ". Kafka does not acknowledge either: " + st.Kafka.StallReason, advice}
	case !st.Ready && st.State == string(relay.Waiting):
		return Verdict{Bad, "Waiting for Postgres", newest, advice}
	case !st.Ready:
		return Verdict{Bad, "Not relaying", newest, advice}
	case stalled > 0:
		return Verdict{Warn, "Kafka is slow", st.Kafka.StallReason + ", for " + terminal.Span(stalled), ""}
	case float64(st.Lag.Seconds) > catchingUp:
		return Verdict{Warn, "Catching up", terminal.Span(float64(st.Lag.Seconds)) + " behind, " + terminal.Size(float64(st.Lag.Bytes)) + " of log to go.", ""}
	case st.Rates.Records > 0:
		return Verdict{Good, "Healthy", "What is committed is in Kafka " + terminal.Span(float64(st.Latency.CommitToAckP50)) + " later.", ""}
	}
	return Verdict{Good, "Healthy", "Everything that was committed is in Kafka. Nothing is being written.", ""}
}
