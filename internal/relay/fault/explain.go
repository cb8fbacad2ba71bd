package fault

import (
	"cmp"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
)

// Meaning returns what an exit code means, in a few words.
func Meaning(code int) string {
	meaning, _ := explain(code)
	return meaning
}

// NextAfter returns the next step after an exit code, for an error that does not name one.
func NextAfter(code int) string {
	_, next := explain(code)
	return next
}

func explain(code int) (meaning, next string) {
	switch code {
	case exit.OK:
		return "stopped", "start the relay again to continue"
	case exit.Usage:
		return "configuration or usage", "fix it and run the command again"
	case exit.Source:
		meaning, next = "source access", "let the relay connect to Postgres with the rights it needs, then run the command again"
	case exit.SlotLost:
		meaning, next = "slot missing or lost", "find out why the slot is gone, then "+catalog.InstructRecover
	case exit.SlotInUse:
		meaning, next = "slot in use", "stop what holds the slot, which outbox-cdc check --all names, then run the command again"
	case exit.NoDelivery:
		meaning, next = "publication or table does not deliver", "fix the publication or the table, then start the relay again"
	case exit.BadRecord:
		meaning, next = "record that cannot be delivered", "fix, dead-letter or skip the record, then start the relay again"
	case exit.Continuity:
		meaning, next = "continuity broken", "find out which server this is before you start the relay again"
	case exit.Sink:
		meaning, next = "sink access", "let the relay connect and write to the broker, then run the command again"
	case exit.Fenced:
		meaning, next = "fenced", "stop the other process, then start the relay again"
	default:
		return "unexpected", "start it again; if it fails again, report it with the last lines of the relay's log"
	}
	return meaning, next + " (" + exitSection(code) + ")"
}

// StopAdvice returns what to do after a stop because of err, with the section of the documentation about it.
func StopAdvice(err error) string {
	code := ExitCode(err)
	if advice := Advice(err); advice != "" {
		return advice + "\nSee " + cmp.Or(section(err), exitSection(code)) + "."
	}
	return cmp.Or(Next(err), NextAfter(code))
}

func exitSection(code int) string { return fmt.Sprintf("docs/runbook.md#exit-%d", code) }
