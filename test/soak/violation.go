package soak

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// The violations that a [Checker] finds in addition to those of package delivery.
const (
	BrokenRun  delivery.Kind = "broken run" // a relay skipped events when it resent records
	OldWriter  delivery.Kind = "old writer" // a record of an older writer after one of a newer writer
	Unresolved delivery.Kind = "unresolved" // error of the test: the fate of a transaction was not set
)

// The violations that [Confirms] finds.
const (
	Early    delivery.Kind = "confirmed early"   // before the broker had stored every record before the position
	Never    delivery.Kind = "confirmed in vain" // records before the position were never stored
	Unread   delivery.Kind = "unread position"   // the position is neither the end of a commit nor that of a keepalive
	WentBack delivery.Kind = "went back"         // lower than the previous position of the session
	Late     delivery.Kind = "confirmed late"    // long after the records were stored
	Moved    delivery.Kind = "moved"             // the slot has advanced beyond the position that the relay confirmed
)

// The violations that a soak finds.
const (
	NotAlive  delivery.Kind = "not alive" // no new row arrived in time
	Overgrown delivery.Kind = "overgrown" // the relay used more of a resource than allowed
	Exited    delivery.Kind = "exited"    // the relay stopped without a signal, did not stop, or had the wrong exit code
	Caught    delivery.Kind = "caught"    // the relay found a gap itself and stopped
	Unheld    delivery.Kind = "unheld"    // no relay held the slot for too long
	Impeded   delivery.Kind = "impeded"   // the relay delayed the shutdown of Postgres
)

// A Violation is a violation of one of the relay's guarantees. Unknown fields are zero.
type Violation struct {
	delivery.Violation
	LSN pglogrepl.LSN // commit LSN of the transaction, or the confirmed position
	At  time.Time
}

// String describes the violation in one line.
func (v *Violation) String() string {
	s := v.Violation.String()
	if v.LSN != 0 {
		s += fmt.Sprintf(", LSN %s", v.LSN)
	}
	if !v.At.IsZero() {
		s += ", at " + v.At.Format("15:04:05.000")
	}
	return s
}

// violations are the first hundred violations and the number of all.
type violations struct {
	first []Violation
	all   int // total number
}

func (vs *violations) add(v Violation) {
	vs.all++
	if len(vs.first) < 100 {
		vs.first = append(vs.first, v)
	}
}
