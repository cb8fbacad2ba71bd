package admin

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A Level is the severity of a Verdict.
type Level string

// The levels: healthy, degraded or about to be, failed.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// A Verdict is the state of a relay and its slot in a few words, with the reason and what to do.
type Verdict struct {
	Level  Level  `json:"level"`
	Title  string `json:"title"`
	Why    string `json:"why"`
	Advice string `json:"advice"`
}

// catchingUp is the lag in seconds above which a relay is catching up.
const catchingUp = 30

// stalls is the time in seconds of a stall above which it counts. Any new connection takes less.
const stalls = 1

// unacknowledged is the time in seconds without an acknowledgement above which records wait for one.
const unacknowledged = 2

// slow is the time in seconds that rows do not take to reach the broker, unless they have waited for it or for the relay.
const slow = 1

// fencedFor is how long a relay that streams again shows that another process has fenced it. The alert for reconnects looks back as far.
const fencedFor = 15 * time.Minute

// SlotVerdict returns the verdict on a slot. It has no title if the slot is not at risk.
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

// judge returns the worse of the verdicts on the relay and on its slot, or both if both have failed.
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
	return own.With(slot)
}

// With returns v with the reason of a verdict that is not worse.
func (v Verdict) With(other Verdict) Verdict {
	if other.Why != "" {
		v.Why += " " + other.Why
	}
	return v
}

// StandsBy reports whether the relay is a standby.
func (st *Status) StandsBy() bool { return st.Role == string(relay.Standby) }

// waits reports whether the relay retries after an error with this exit code.
func (st *Status) waits(exit int) bool {
	return st.State == string(relay.Waiting) && len(st.Failures) > 0 && st.Failures[0].ExitCode == exit
}

// Relaying returns the verdict on the relay itself, without its slot.
func (st *Status) Relaying() Verdict {
	switch {
	case st.Stalls() && (st.State == string(relay.Streaming) || st.StandsBy() || st.Sink.Unsaved):
		return st.stalled()
	case st.State == string(relay.Streaming) && len(st.Slot.Standbys) > 0:
		return Withheld(st.Slot.Standbys)
	case !st.Ready:
		return st.notReady()
	case st.StandsBy():
		return Verdict{Warn, "Standby", "Another process streams from the slot. This relay takes over when that one stops.", ""}
	case st.Refill != nil:
		return st.refilling()
	case st.fencedLately():
		return st.fenced()
	case float64(st.InFlight.Since) >= unacknowledged:
		return Verdict{
			Warn, "Waiting for acknowledgements",
			fmt.Sprintf("%s has acknowledged nothing for %s. Records in flight: %s.", st.Sink.Broker, terminal.Duration(st.InFlight.Since), terminal.Number(st.InFlight.Records)),
			"If this lasts, check the broker. Nothing is lost: Postgres retains the WAL, and the relay keeps retrying.",
		}
	case float64(st.Lag.Seconds) > catchingUp:
		return Verdict{Warn, "Catching up", fmt.Sprintf("The relay is %s behind and has %s of WAL left to read.", terminal.Duration(st.Lag.Seconds), terminal.Size(st.Lag.Bytes)), st.Sink.WindowAdvice}
	}
	if st.Parked.Number > 0 {
		return st.parking()
	}
	return Verdict{Good, "Healthy", st.delivering(), ""}
}

// fencedLately reports whether the newest failure is that another process has fenced the relay. If that process were a relay that has
// acquired the slot, a newer failure would be that the slot is in use.
func (st *Status) fencedLately() bool {
	return len(st.Failures) > 0 && st.Failures[0].ExitCode == exit.Fenced && st.At.Sub(st.Failures[0].At) < fencedFor
}

// fenced returns the verdict on a relay whose identity another process uses, and which takes it back each time.
func (st *Status) fenced() Verdict {
	f := &st.Failures[0]
	times := "once"
	if f.Times > 1 {
		times = fmt.Sprintf("%d times since %s", f.Times, f.Since.UTC().Format(time.RFC3339))
	}
	return Verdict{
		Warn, fencedTitle, fmt.Sprintf("It was fenced %s, last at %s: %s. The relay takes its identity back and sends no row twice, but each time its records wait.",
			times, f.At.UTC().Format(time.RFC3339), f.Text), f.advice(),
	}
}

const fencedTitle = "The relay has lost its identity at the broker"

// parking returns the verdict on a relay that delivers all but the parked keys.
func (st *Status) parking() Verdict {
	first := &st.Parked.Keys[0]
	keys := "One key is parked: its records go"
	if st.Parked.Number > 1 {
		keys = fmt.Sprintf("%d keys are parked: their records go", st.Parked.Number)
	}
	return Verdict{
		Warn, "Keys are parked", fmt.Sprintf("%s to the dead-letter topic, the first for %s. Other keys are not affected. The first one waits behind %s: %s",
			keys, terminal.Duration(st.Parked.Oldest), first.Row, first.Reason),
		"To release it: " + first.Fix,
	}
}

// Stalls reports whether the broker does not acknowledge records. A missing topic counts at once.
func (st *Status) Stalls() bool { return st.Sink.Stalled >= stalls || st.Sink.Missing != "" }

// stalled returns the verdict on a relay whose records the broker does not acknowledge. A missing topic does not
// appear by itself. Any other stall may be a leader election, for as long as the relay is ready.
func (st *Status) stalled() Verdict {
	lasted := terminal.Duration(st.Sink.Stalled)
	if missing := st.Sink.Missing; missing != "" {
		return Verdict{
			Bad, fmt.Sprintf("Destination %s takes no records", missing),
			fmt.Sprintf("They have waited for %s: %s. The relay keeps retrying, and other destinations are not affected. Nothing is lost, but Postgres retains WAL meanwhile.", lasted, st.Sink.StallReason),
			cmp.Or(st.Sink.StallAdvice, "Correct what the reason says."),
		}
	}
	v := Verdict{
		Warn, st.Sink.Broker + " does not acknowledge records", fmt.Sprintf("For %s: %s.", lasted, st.Sink.StallReason),
		cmp.Or(st.Sink.StallAdvice, "Check the broker and the error above.") + " Nothing is lost: Postgres retains the WAL, and the relay keeps retrying.",
	}
	if st.Sink.Unsaved {
		v = Verdict{
			Warn, "The position file cannot be written", v.Why,
			"Free space on its disk, or let the relay write there. Nothing is lost: Postgres retains the WAL, and the relay keeps retrying.",
		}
	}
	if !st.Ready {
		v.Level = Bad
	}
	return v
}

// Withheld returns the verdict on a slot through which Postgres sends nothing, because no standby streams from these slots.
func Withheld(standbys []string) Verdict {
	return Verdict{
		Bad, withheldTitle, "It sends nothing to the relay while " + withheld(standbys) + ". Nothing is lost: Postgres retains the WAL.",
		"Start the standby, or remove it from synchronized_standby_slots: outbox-cdc check prints the statement.",
	}
}

const withheldTitle = "Postgres waits for a standby"

// withheld says why Postgres sends nothing.
func withheld(standbys []string) string {
	return "no standby streams from " + strings.Join(standbys, ", ") + " (synchronized_standby_slots)"
}

// refilling returns the verdict on a relay that refills.
func (st *Status) refilling() Verdict {
	r := st.Refill
	return Verdict{
		Warn, "Refilling after the loss of the slot",
		fmt.Sprintf("The relay has sent %s of about %s rows from the table in %s. It sends newer rows after them.",
			terminal.Number(int(r.Rows)), terminal.Number(int(r.Total)), terminal.Duration(max(0, st.At.Sub(r.Since).Seconds()))),
		"Find out why the slot was lost. The log has the reason. See docs/recover.md.",
	}
}

// notReady returns the verdict on a relay that does not stream.
func (st *Status) notReady() Verdict {
	newest, advice := st.Reason, ""
	if len(st.Failures) > 0 && st.State != string(relay.Streaming) {
		newest, advice = st.Failures[0].Text, st.Failures[0].advice()
	}
	switch waiting := st.State == string(relay.Waiting); {
	case st.State == string(relay.Starting) && len(st.Failures) == 0:
		return Verdict{Warn, "Starting", "The relay connects to Postgres and " + st.Sink.Broker + ".", ""}
	case st.State == string(relay.Starting):
		return Verdict{Warn, "Starting", newest, advice}
	case st.waits(exit.Sink):
		return Verdict{Bad, "Waiting for " + st.Sink.Broker, newest, advice}
	case st.waits(exit.Fenced):
		return Verdict{Bad, fencedTitle, newest, advice}
	case waiting && float64(st.Sink.Stalled) > stallAfter.Seconds():
		return Verdict{Bad, "Waiting for Postgres", newest + ". " + st.Sink.Broker + " does not acknowledge records either: " + st.Sink.StallReason, advice}
	case waiting:
		return Verdict{Bad, "Waiting for Postgres", newest, advice}
	case st.State == string(relay.Stopped):
		return Verdict{Bad, "The relay has stopped", newest, advice}
	}
	return Verdict{Bad, "The relay does not deliver", newest, advice}
}

// advice returns what to do about a failure, with the section of the documentation about it.
func (f *failure) advice() string {
	if f.Section == "" {
		return f.Advice
	}
	return strings.TrimSpace(f.Advice + "\nSee " + f.Section + ".")
}

// delivering says how long rows take to reach the broker. After an outage the rows of the last seconds may have waited
// for long although none waits now.
func (st *Status) delivering() string {
	latency := float64(st.Latency.CommitToAckP50)
	switch {
	case st.InFlight.Records > 0 && st.Rates.Records == 0:
		return fmt.Sprintf("Records on the way to %s: %s.", st.Sink.Broker, terminal.Number(st.InFlight.Records))
	case st.Rates.Records == 0:
		return "The broker has acknowledged every committed row. There are no new rows."
	case math.IsNaN(latency):
		return st.Sink.Broker + " acknowledges the rows of a transaction that is not complete yet."
	case latency > slow && latency > 2*float64(st.Lag.Seconds):
		return fmt.Sprintf("The relay has caught up. The rows of the last 10 s had waited for %s.", terminal.Duration(latency))
	}
	return fmt.Sprintf("Committed rows reach %s in %s.", st.Sink.Broker, terminal.Duration(latency))
}
