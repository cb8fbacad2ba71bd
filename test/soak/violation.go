package soak

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// What a [Checker] finds beside what package delivery does.
const (
	BrokenRun  delivery.Kind = "broken run" // a repetition that leaves out events
	OldWriter  delivery.Kind = "old writer" // a record of an older writer after one of a newer writer
	Unresolved delivery.Kind = "unresolved" // the test's mistake: nobody has told how a transaction ended
)

// What [Confirms] finds.
const (
	Early    delivery.Kind = "confirmed early"   // before everything behind it was stored
	Never    delivery.Kind = "confirmed in vain" // what was never stored
	Unread   delivery.Kind = "unread position"   // that was neither a commit's end nor a keepalive's
	WentBack delivery.Kind = "went back"         // lower than the one before
	Late     delivery.Kind = "confirmed late"    // although it was stored long ago
	Moved    delivery.Kind = "moved"             // the slot is where the relay has not put it
)

// What a soak finds by itself.
const (
	NotAlive  delivery.Kind = "not alive" // nothing new came in time
	Overgrown delivery.Kind = "overgrown" // more of a resource than allowed
	Exited    delivery.Kind = "exited"    // the relay ended by itself, or with the wrong code
	Caught    delivery.Kind = "caught"    // it ended because it found a gap itself
	Unheld    delivery.Kind = "unheld"    // no relay held the slot for too long
	Impeded   delivery.Kind = "impeded"   // Postgres could not do its work because of the relay
)

// A Violation is one broken promise. What is not known is zero.
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

// violations are the first that were found: after a hundred nothing new is learnt.
type violations struct {
	first []Violation
	all   int // how many there are
}

func (vs *violations) add(v Violation) {
	vs.all++
	if len(vs.first) < 100 {
		vs.first = append(vs.first, v)
	}
}
