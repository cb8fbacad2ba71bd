package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A Kind is a difference between the table and the topics.
type Kind string

// The kinds.
const (
	Missing    Kind = "missing"      // a row without a record
	Phantom    Kind = "phantom"      // a record without a row
	Duplicate  Kind = "duplicate"    // another record of a row
	Altered    Kind = "altered"      // a record that differs from its row
	OutOfOrder Kind = "out-of-order" // a record behind a later one of its key, or in another partition
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Missing, Phantom, Duplicate, Altered, OutOfOrder} }

// kindOf is the Kind of a violation.
func kindOf(v delivery.Kind) (kind Kind, ok bool) {
	switch v {
	case delivery.OutOfOrder, delivery.Misplaced, delivery.Stale, delivery.OffsetOrder:
		return OutOfOrder, true
	case delivery.Phantom:
		return Phantom, true
	case delivery.Altered:
		return Altered, true
	case delivery.Duplicate:
		return Duplicate, true
	case delivery.Gap, delivery.Lost, delivery.Torn: // missing rows are judged by themselves
	}
	return "", false
}

// A Report is the result of an audit.
type Report struct {
	Tables []string `json:"tables"`
	Since  string   `json:"since,omitempty"` // of the selected rows
	Until  string   `json:"until,omitempty"`

	Rows      int       `json:"rows"`      // that were selected
	Confirmed Confirmed `json:"confirmed"` // how it is known which rows must have a record
	Position  string    `json:"position"`  // confirmed position of the slot
	Ordered   bool      `json:"ordered"`   // the table has a column with the order of insertion

	Topics   []Topic   `json:"topics"`   // by name
	Findings []Finding `json:"findings"` // the first of each kind and topic
	Notes    []string  `json:"notes"`    // limits of this audit
	Took     float64   `json:"took_s"`
}

// Confirmed is how it is known which rows must have a record.
type Confirmed string

// The ways to know it.
const (
	BySlot    Confirmed = "slot"    // the slot has confirmed every row that was read
	ByRecord  Confirmed = "record"  // the position record has a snapshot of the delivered transactions
	ByRequest Confirmed = "assumed" // the caller has said so
	Unknown   Confirmed = "unknown" // it is not known
)

// A Topic has the counts of one topic. A row belongs to the topic that its record must be in.
type Topic struct {
	Name    string `json:"topic"`
	Rows    int    `json:"rows"`
	Records int    `json:"records"`

	Missing    int `json:"missing"`
	Phantom    int `json:"phantom"`
	Duplicate  int `json:"duplicate"`
	Altered    int `json:"altered"`
	OutOfOrder int `json:"out_of_order"`

	// Not judged, or correct.
	Unconfirmed int `json:"unconfirmed"`  // rows without a record that the slot has not confirmed
	Hidden      int `json:"hidden"`       // rows without a record that an open transaction may hide
	Expired     int `json:"expired"`      // rows without a record that retention or compaction may have deleted
	NoRow       int `json:"no_row"`       // records without a row that may have been pruned, or of another time
	DeadLetters int `json:"dead_letters"` // rows that are in the dead-letter topic, with a record or without
	Unsent      int `json:"unsent"`       // rows without a record that are in the dead-letter topic: parked, not resent, or discarded
	Resent      int `json:"resent"`       // records of replay, refill or dead-letter resend
	Concurrent  int `json:"concurrent"`   // keys whose transactions committed in another order than they inserted
}

// of returns the count of a kind.
func (t *Topic) of(k Kind) *int {
	return map[Kind]*int{
		Missing: &t.Missing, Phantom: &t.Phantom, Duplicate: &t.Duplicate, Altered: &t.Altered, OutOfOrder: &t.OutOfOrder,
	}[k]
}

// A Finding is one difference.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition,omitempty"` // of the record, if there is one
	Offset    *int64 `json:"offset,omitempty"`
	ID        string `json:"id,omitempty"`    // of the event, if it is known
	Table     string `json:"table,omitempty"` // of its row, as in outbox.tables
	Detail    string `json:"detail"`

	id uint64 // its hash; 0: the record has no row
}

// Count returns how many differences of a kind there are.
func (r *Report) Count(k Kind) (n int) {
	for i := range r.Topics {
		n += *r.Topics[i].of(k)
	}
	return n
}

// Undecided returns how many rows have no record if it is not known which rows must have one, and how many records an open
// transaction may hide.
func (r *Report) Undecided() (n int) {
	for i := range r.Topics {
		n += r.Topics[i].Hidden
		if r.Confirmed == Unknown {
			n += r.Topics[i].Unconfirmed
		}
	}
	return n
}

// keptFindings is how many findings are kept for each kind and topic, apart from [Config.Missing].
const keptFindings = 10

// note keeps a difference if it is one of the first of its kind and topic.
func (l *ledger) note(findings *[]Finding, topic uint16, f Finding) {
	t := l.topics[topic]
	most := keptFindings
	if f.Kind == Missing {
		most = l.cfg.Missing
	}
	if t.findings[f.Kind]++; t.findings[f.Kind] <= most {
		f.Topic = t.Name
		*findings = append(*findings, f)
	}
}

// sortFindings orders findings by topic, kind and place.
func sortFindings(findings []Finding) {
	at := func(f *Finding) (partition int32, offset int64) {
		if f.Partition == nil {
			return -1, -1
		}
		return *f.Partition, *f.Offset
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		ap, ao := at(&a)
		bp, bo := at(&b)
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), slices.Index(Kinds(), a.Kind)-slices.Index(Kinds(), b.Kind),
			cmp.Compare(ap, bp), cmp.Compare(ao, bo), cmp.Compare(a.ID, b.ID))
	})
}

// timeText is a time as a report has it; empty for none.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
