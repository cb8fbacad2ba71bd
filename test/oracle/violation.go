package oracle

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
)

// A Kind is a promise that was broken.
type Kind string

// What a [Checker] finds.
const (
	Lost        Kind = "lost"       // a committed transaction of which nothing came
	Torn        Kind = "torn"       // a committed transaction of which a part came
	Gap         Kind = "gap"        // an event came, one before it has not; becomes Lost, Torn or Reordered
	Reordered   Kind = "reordered"  // an event came first after a later one of its aggregate
	Phantom     Kind = "phantom"    // of a transaction that was not committed
	Altered     Kind = "altered"    // a record is not what the row says
	Misplaced   Kind = "misplaced"  // an aggregate in two partitions
	Duplicate   Kind = "duplicate"  // repeated without a fault that explains it
	BrokenRun   Kind = "broken run" // a repetition that leaves out events
	Stale       Kind = "stale"      // the last record of an aggregate is not its newest
	OffsetOrder Kind = "offsets"    // the reader's mistake: offsets do not rise
	Unresolved  Kind = "unresolved" // the test's mistake: nobody has told how a transaction ended
	NotAlive    Kind = "not alive"  // nothing new came in time
	Overgrown   Kind = "overgrown"  // more of a resource than allowed
	Exited      Kind = "exited"     // the relay ended by itself, or with the wrong code
	Impeded     Kind = "impeded"    // Postgres could not do its work because of the relay
)

// What [Confirms] finds.
const (
	Early    Kind = "confirmed early"   // before everything behind it was stored
	Never    Kind = "confirmed in vain" // what was never stored
	Unread   Kind = "unread position"   // that was neither a commit's end nor a keepalive's
	WentBack Kind = "went back"         // lower than the one before
	Late     Kind = "confirmed late"    // although it was stored long ago
	Moved    Kind = "moved"             // the slot is where the relay has not put it
)

// Coordinates say where a record is.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic[partition]@offset.
func (c Coordinates) String() string { return fmt.Sprintf("%s[%d]@%d", c.Topic, c.Partition, c.Offset) }

// A Violation is one broken promise. What is not known is zero.
type Violation struct {
	Kind      Kind
	Record    Coordinates // the first record that shows it
	Aggregate string
	Seq       int64 // of the event that is missing, early, altered, …
	Tx        uuid.UUID
	LSN       pglogrepl.LSN // commit LSN of Tx, or the confirmed position
	At        time.Time
	Detail    string
}

// String describes the violation in one line.
func (v *Violation) String() string {
	var b strings.Builder
	b.WriteString(string(v.Kind))
	part := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	if v.Aggregate != "" {
		part(" %s/%d", v.Aggregate, v.Seq)
	}
	if v.Tx != uuid.Nil {
		part(" transaction %s", v.Tx)
	}
	if v.LSN != 0 {
		part(" LSN %s", v.LSN)
	}
	if v.Record.Topic != "" {
		part(" record %s", v.Record)
	}
	if !v.At.IsZero() {
		part(" at %s", v.At.Format("15:04:05.000"))
	}
	if v.Detail != "" {
		part(": %s", v.Detail)
	}
	return b.String()
}

// maxViolations bounds what is kept: after the first few nothing new is learnt.
const maxViolations = 100
