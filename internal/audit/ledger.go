package audit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A ledger has the rows and records that an audit compares: rows first, then records. It belongs to one goroutine.
type ledger struct {
	deadHidden bool // an open transaction hides dead letters

	cfg    rules
	hasher hasher

	topics []*topicLedger
	byName map[string]uint16
	parts  []partition

	rows  []row
	flags []uint8 // by row

	tables []string // the names of those that were read
	ends   []uint32 // of the rows of each of them

	index []uint32 // hash table of row numbers + 1, by id

	seen       []sighting
	candidates []candidate
	tooMany    error  // a limit of the ledger is exceeded
	oldest     uint32 // time of the oldest row; math.MaxUint32: no row has a time
	ordered    bool   // rows come in the order of insertion
	byTable    bool   // the records of a key with rows in several tables were judged table by table
}

// rules decide how records are judged.
type rules struct {
	CommitTimes     bool // the timestamp of a record is the time at which its row was committed or read
	PlacedPartition bool // a column of the row may choose the partition

	// Since and Until are the time of the rows that were selected; zero: no limit. A record of another
	// time is not judged if it has no row.
	Since, Until time.Time
	// PrunedBefore is the time from which on no row was deleted. Zero: some minutes after the oldest row.
	PrunedBefore time.Time

	Missing int // see [Config]
}

// A row is a row that was read.
type row struct {
	fingerprint
	second uint32 // its time in seconds; 0: unknown
	xid    uint16 // a part of its transaction's id; 0: unknown
	topic  uint16
}

// Flags of a row.
const (
	due                uint8 = 1 << iota // its record must be there
	unroutable                           // no record can be made of it
	hasRecord                            // a record of the relay matches the row
	hasAltered                           // a record differs from the row
	hasResent                            // a resent record matches the row
	hasDeadLetter                        // it is in the dead-letter topic
	withoutID                            // its id is the result of standIn
	hasOtherDeadLetter                   // another relay, or this one under another slot, has sent a dead letter with its id
)

// A sighting is a record of a row. There are as many as rows, so it is small.
type sighting struct {
	row    uint32
	offset uint32    // from the beginning of its partition
	commit [2]uint32 // commit LSN, or the timestamp in milliseconds: upper and lower half
	part   uint16
	flags  uint16 // the parts that differ, and isLSN
}

func (s *sighting) setOrder(order int64) {
	s.commit = [2]uint32{uint32(uint64(order) >> 32), uint32(order)}
}

func (s *sighting) order() int64 { return int64(s.commit[0])<<32 | int64(s.commit[1]) }

// isLSN: the order of a sighting is a commit LSN.
const isLSN uint16 = 1 << 15

// A partition is one that is read.
type partition struct {
	topic      uint16
	number     int32
	begin, end int64 // offsets
	hidden     bool  // an open transaction hides later records
	first      int64 // timestamp of the first record that is left, in ms; math.MinInt64: there is none
}

// A candidate is a record without a row, which may be a phantom.
type candidate struct {
	id     uint64
	part   uint16
	offset int64
}

// maxCandidates limits the number of candidates. Further records without a row are counted as NoRow.
const maxCandidates = 1 << 18

// A topicLedger has the counts of a topic.
type topicLedger struct {
	Topic
	findings  map[Kind]int // how many were kept
	compacted bool         // of the records of a key, only the last may be left
}

func newLedger(cfg rules, rows int64) *ledger {
	l := &ledger{cfg: cfg, byName: make(map[string]uint16), oldest: math.MaxUint32, ordered: true}
	l.rows, l.flags = make([]row, 0, rows), make([]uint8, 0, rows)
	l.hasher.hash.Seed() // fixes it
	return l
}

// topic returns the number of a topic.
func (l *ledger) topic(name string) uint16 {
	n, ok := l.byName[name]
	if !ok {
		if len(l.topics) == math.MaxUint16 {
			l.tooMany = errors.New("the rows belong to more than 65,535 topics: select fewer")
			return 0
		}
		n = uint16(len(l.topics))
		l.byName[name] = n
		l.topics = append(l.topics, &topicLedger{Topic: Topic{Name: name}, findings: make(map[Kind]int)})
	}
	return n
}

// addRow adds a row with the record that it must have. Its flags are due, unroutable or both. rec.Timestamp is
// the time of the row, zero if it is not known.
func (l *ledger) addRow(rec *sink.Record, xid uint64, flags uint8) {
	f, _ := l.hasher.take(rec, rec.Partition)
	r := row{fingerprint: f, topic: l.topic(rec.Topic), xid: uint16(xid ^ xid>>16)}
	if s := rec.Timestamp.Unix(); s > 0 && s < math.MaxUint32 {
		r.second = uint32(s)
		l.oldest = min(l.oldest, r.second)
	}
	l.rows, l.flags = append(l.rows, r), append(l.flags, flags)
}

// endTable ends the rows of a table.
func (l *ledger) endTable(name string) {
	l.tables, l.ends = append(l.tables, name), append(l.ends, uint32(len(l.rows)))
}

// tableOf returns the number of the table of a row.
func (l *ledger) tableOf(n uint32) int {
	table, _ := slices.BinarySearch(l.ends, n+1)
	return table
}

// indexRows ends the rows: records follow.
func (l *ledger) indexRows() {
	size := 2
	for size < len(l.rows)*3/2 { // never full
		size *= 2
	}
	l.index = make([]uint32, size)
	for i := range l.rows {
		at := l.rows[i].id & uint64(size-1)
		for l.index[at] != 0 {
			at = (at + 1) & uint64(size-1)
		}
		l.index[at] = uint32(i + 1)
	}
	l.seen = make([]sighting, 0, len(l.rows))
}

// find returns the row of an id.
func (l *ledger) find(id uint64) (n uint32, ok bool) {
	mask := uint64(len(l.index) - 1)
	for at := id & mask; l.index[at] != 0; at = (at + 1) & mask {
		if n := l.index[at] - 1; l.rows[n].id == id {
			return n, true
		}
	}
	return 0, false
}

// addPartition adds a partition, whose records follow in the order of their offsets.
func (l *ledger) addPartition(topic string, offsets sink.OffsetRange) (part uint16) {
	if len(l.parts) == math.MaxUint16 || offsets.End-offsets.Begin > math.MaxUint32 {
		l.tooMany = fmt.Errorf("partition %d of topic %s is the 65,536th, or has more than 4,294,967,295 records: select fewer rows", offsets.Partition, topic)
		return 0
	}
	l.parts = append(l.parts, partition{
		topic: l.topic(topic), number: offsets.Partition, begin: offsets.Begin, end: offsets.End, hidden: offsets.Hidden > offsets.End, first: math.MinInt64,
	})
	return uint16(len(l.parts) - 1)
}

// addRecord adds a record of a partition.
func (l *ledger) addRecord(part uint16, stored *sink.StoredRecord) {
	p := &l.parts[part]
	t := l.topics[p.topic]
	t.Records++
	d := deliveryOf(&stored.Record)
	if p.first == math.MinInt64 {
		p.first = d.at.UnixMilli()
	}
	got, ok := l.hasher.take(&stored.Record, sink.AnyPartition)
	n, found := uint32(0), false
	if ok {
		n, found = l.find(got.id)
	}
	if !found {
		l.addStranger(part, stored.Offset, got.id, d.at)
		return
	}
	s := sighting{row: n, part: part, flags: l.differences(n, got, stored, d.resent), offset: uint32(stored.Offset - p.begin)}
	switch {
	case s.flags != 0:
		l.flags[n] |= hasAltered
	case d.resent:
		l.flags[n] |= hasResent
		t.Resent++
		return
	default:
		l.flags[n] |= hasRecord
	}
	if s.setOrder(d.at.UnixMilli()); d.lsn != 0 {
		s.setOrder(int64(d.lsn))
		s.flags |= isLSN
	}
	l.seen = append(l.seen, s)
}

// differences returns the differences between the record got, which is stored, and that of row n.
func (l *ledger) differences(n uint32, got fingerprint, stored *sink.StoredRecord, resent bool) uint16 {
	want := l.rows[n].fingerprint
	if l.cfg.PlacedPartition && want.place != got.place {
		got.place = l.hasher.placeOf(&stored.Record, stored.Partition, got.id)
	}
	fromDeadLetter := resent && l.flags[n]&hasDeadLetter != 0
	switch {
	case l.flags[n]&unroutable == 0 && !fromDeadLetter:
		return want.compare(got)
	case l.flags[n]&unroutable == 0: // dead-letter resend may have had another topic rule
		moved := stored.Record
		moved.Topic = l.topics[l.rows[n].topic].Name
		got.place = l.hasher.placeOf(&moved, sink.AnyPartition, got.id)
		return want.compare(got)
	case fromDeadLetter: // with a configuration that makes a record of the row
		return 0
	}
	return rowRejected
}

// addStranger adds a record without a row.
func (l *ledger) addStranger(part uint16, offset int64, id uint64, at time.Time) {
	t := l.topics[l.parts[part].topic]
	if !l.provable(at) || len(l.candidates) == maxCandidates {
		t.NoRow++
		return
	}
	l.candidates = append(l.candidates, candidate{id, part, offset})
}

// pruneSlack is how much older than the commit of its transaction a row may be.
const pruneSlack = 5 * time.Minute

// provable reports whether a record of that time must have a row: rows of that time were selected, and none of
// them was pruned. prune deletes the oldest rows first.
func (l *ledger) provable(at time.Time) bool {
	if at.Before(l.cfg.Since) || !l.cfg.Until.IsZero() && !at.Before(l.cfg.Until) {
		return false
	}
	if !l.cfg.PrunedBefore.IsZero() {
		return !at.Before(l.cfg.PrunedBefore)
	}
	return l.oldest != math.MaxUint32 && at.After(time.Unix(int64(l.oldest), 0).Add(pruneSlack))
}

// addDeadLetter notes that the row of an id is in the dead-letter topic: of the slot if flag is hasDeadLetter, or of another one.
func (l *ledger) addDeadLetter(id []byte, flag uint8) {
	if n, ok := l.find(l.hasher.ID(id)); ok {
		l.flags[n] |= flag
	}
}
