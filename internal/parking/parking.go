package parking

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

const (
	maxReason = 200 // bytes

	// entryBytes is at least the size of an entry in the record, without topic, key and reason.
	entryBytes     = 400
	discardedBytes = 120
)

// A Key is the key of records in a topic.
type Key struct{ Topic, Key string }

// A Row is the place of a row in the WAL.
type Row struct {
	LSN   pglogrepl.LSN // commit LSN of its transaction
	Index int           // in the transaction, from 0
}

// String names the transaction and the row.
func (r Row) String() string { return fmt.Sprintf("transaction %s, row %d", r.LSN, r.Index) }

// Place returns the commit LSN and the index of the row, as in the header lsn of a record.
func (r Row) Place() string { return fmt.Sprintf("%s:%d", r.LSN, r.Index) }

// Before reports whether a position of the same generation is after the row. A relay that starts there does not read the row again.
func (r Row) Before(start checkpoint.Position) bool {
	return r.LSN < start.EndLSN || r.LSN == start.Open.CommitLSN && int64(r.Index) < start.Open.Rows
}

// RowOf returns the row of a dead letter.
func RowOf(dead *encode.DeadLetter) Row { return Row{LSN: dead.LSN, Index: dead.Index} }

// A Parking is a parked key.
type Parking struct {
	ID string // UUID, made of the key and the place of the first row because of which it was parked
	Key
	Since   time.Time
	First   Row    // the first bad record; zero: unknown, because another refill reads it again at another place
	Bad     Row    // the record because of which the key is parked: First, or the first one that the last release has not sent
	Reason  string // of Bad, without its content
	Records int    // dead letters of the key so far, as far as they were counted

	// Truncated says that the dead letter of Bad lacks the payload, so that no release can send it. RowID is the id of its row; empty:
	// unknown.
	Truncated bool
	RowID     string

	// Unsent says that Bad was not found bad: the records before it were sent or discarded, and a release has not come to it.
	Unsent bool

	// Released is the last place that a release has sent before it stopped. Discarded are rows that a release
	// leaves out.
	Released  encode.Place
	Discarded []Discarded

	// Waits is why a release of the key waits. Empty: none waits.
	Waits string

	// Confirmed says that the relay does not read First again. Otherwise Generation is that of the position record when
	// the key was parked.
	Confirmed  bool
	Generation int64

	first encode.Place // of First; zero: an earlier ownership has parked the key

	// unreleased is the number of dead letters that the ownership has sent and no release has passed, of which oldest is the
	// place of the first. Unlike Records, it is exact, because it does not outlive the ownership.
	unreleased int
	oldest     encode.Place
}

// ShortID returns the first characters of the ID, which tell parked keys apart.
func (p *Parking) ShortID() string { return p.ID[:min(8, len(p.ID))] }

// Follows reports whether a dead letter at a place may be one of the parking. After a crash, a relay may find that a row which an
// earlier one has found bad is deliverable, and park the key again because of a later row that was bad before too.
func (p *Parking) Follows(at encode.Place) bool {
	return cmp.Or(cmp.Compare(at.Generation, p.Generation), cmp.Compare(at.LSN, p.First.LSN), cmp.Compare(at.Index, p.First.Index)) >= 0
}

// IsPassed reports whether a release has sent the dead letter at a place, or left it out because its row was discarded, and stopped behind
// it.
func (p *Parking) IsPassed(at encode.Place) bool { return at.Compare(p.Released) <= 0 }

// IsBadDiscarded reports whether the row because of which the key is parked was discarded, so that no record is known to be the first.
func (p *Parking) IsBadDiscarded() bool {
	return slices.ContainsFunc(p.Discarded, func(d Discarded) bool { return d.Row == p.Bad })
}

// HasDiscarded reports whether the operator has discarded the row of a dead letter of the parking, which has the id of an event. A
// refill reads the row again at another place.
func (p *Parking) HasDiscarded(dead *encode.DeadLetter, id string) bool {
	return hasDiscarded(p.Discarded, dead, id)
}

// An Unparked is a former parking of which rows were discarded. A set keeps the newest of them.
type Unparked struct {
	ID        string // of the parking
	Discarded []Discarded
}

func hasDiscarded(rows []Discarded, dead *encode.DeadLetter, id string) bool {
	copied := dead.Parked.Place.Owner != 0
	return slices.ContainsFunc(rows, func(d Discarded) bool {
		return d.ID == id && (d.Row == RowOf(dead) || copied && id != "")
	})
}

// A Discarded is a row that the operator has discarded.
type Discarded struct {
	Row
	ID      string // of the event
	Request string // UUID of the request
}

// A Result says how a request ended.
type Result struct {
	Request  string // its UUID
	Outcome  Outcome
	Released int    // records that were sent and acknowledged
	Left     int    // records that stay parked, as far as they were counted
	Dropped  string // names the row that a Discard has dropped, whatever the Outcome is; empty: none
	Reason   string // why the key stays parked
	At       time.Time
}

// An Outcome is the kind of a Result.
type Outcome string

// The outcomes of a request.
const (
	Released Outcome = "released" // the key is not parked any more
	Stopped  Outcome = "stopped"  // at a record that cannot be delivered; the key stays parked from there on
	Failed   Outcome = "failed"   // for another reason; the key stays parked
	NoKey    Outcome = "no key"   // the key was not parked in the way that the request names
)

// confirmedBy reports whether a relay that starts at the position record start, and writes next as its first one, does not read
// the first bad record again. A position of another generation tells nothing: then the relay must not let later records overtake. A key
// of the generation of next was parked by a relay that has started at the same record, and has lost its first one or stored none.
func (p *Parking) confirmedBy(start, next checkpoint.Position) bool {
	switch {
	case p.Generation == start.Generation:
		return p.First.Before(start)
	case start.Refill != nil && start.Refill.Lost.Generation == p.Generation:
		return p.First.Before(start.Refill.Lost)
	case p.Generation == next.Generation:
		return p.First.Before(next)
	}
	return true
}

// copiedBefore reports whether a refill has parked the key that was started over since. The dead letter of First may not be stored.
func (p *Parking) copiedBefore(start checkpoint.Position) bool {
	return start.Refill != nil && p.Generation > start.Refill.Lost.Generation && p.Generation < start.Generation
}

// idOf returns the id of the parking of a key because of a bad row. A relay that finds the same row bad again finds the dead
// letters that an earlier one has sent.
func idOf(k Key, bad encode.Place) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%q %q %v", k.Topic, k.Key, bad)).String()
}

// precededBy reports whether a record comes before the first bad one of p.
func (p *Parking) precededBy(at encode.Place) bool { return at.Compare(p.first) < 0 }

// size is about the size of p in the record.
func (p *Parking) size() int {
	return entryBytes + len(p.Topic) + len(p.Key.Key)*4/3 + len(p.Reason) + len(p.RowID) + len(p.Waits) + discardedBytes*len(p.Discarded)
}

func shorten(reason string) string {
	if len(reason) > maxReason {
		return reason[:maxReason] + "…"
	}
	return reason
}

func sortParkings(all []Parking) {
	slices.SortFunc(all, func(a, b Parking) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key.Key, b.Key.Key))
	})
}
