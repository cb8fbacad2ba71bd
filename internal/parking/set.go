package parking

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

const (
	// MaxKeys is the highest limit of a Set. maxBytes limits the size of its record, which must fit into a
	// message of the position topic.
	MaxKeys  = 1000
	maxBytes = 512 << 10

	keptResults  = 8
	maxReason    = 200 // bytes
	maxDiscarded = 100 // per key
	keptUnparked = 100 // discarded rows of keys that are not parked any more

	// ReasonUnsent is the Reason of an Unsent row of which nothing else is known, and reasonDiscarded that of a discarded row.
	ReasonUnsent    = "the records before it were sent or discarded; it is not sent yet"
	reasonDiscarded = "it was discarded; the key is not released yet"

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

// A Set is the set of parked keys of a relay. Its methods may be called from any goroutine. A nil *Set has no keys.
type Set struct {
	limit int
	empty atomic.Bool

	mu         sync.Mutex
	keys       map[Key]*Parking
	size       int // of the record
	owner      int64
	generation int64
	copied     pglogrepl.LSN // of the rows that the ownership copies; 0: none
	version    uint64        // grows with each change that must be stored
	stored     uint64        // version that is stored
	counted    bool          // Records has changed since the set was stored
	results    []Result
	unparked   []Unparked // the newest last
	total      uint64     // dead letters of parked keys since the start of the process
	refused    bool       // Park has found the set full
}

// NewSet returns an empty set of at most limit keys.
func NewSet(limit int) *Set {
	s := &Set{limit: limit, keys: make(map[Key]*Parking)}
	s.empty.Store(true)
	return s
}

// StartOwnership replaces the set by the stored one, rec, for an ownership. rec may be nil. start is the position record at
// which the ownership starts, with its ownership, and next the first one that it writes.
//
// StartOwnership drops and returns keys whose first bad record is after the start: the relay reads that row again and decides again,
// also about the records before it that were in flight. So every record of a key that stays parked comes after
// the first bad one.
func (s *Set) StartOwnership(start, next checkpoint.Position, rec *Record) (dropped []Parking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys)
	s.size, s.owner, s.generation, s.copied, s.results, s.counted, s.refused = 0, start.Owner, next.Generation, 0, nil, false, false
	s.stored, s.unparked = s.version, nil
	if rec != nil {
		s.unparked = slices.Clone(rec.Unparked)
		for _, p := range rec.Parkings {
			if p.Confirmed = p.Confirmed || p.confirmedBy(start, next); !p.Confirmed {
				dropped = append(dropped, p)
				continue
			}
			if p.copiedBefore(start) {
				p.First = Row{}
			}
			p.first, p.unreleased, p.oldest = encode.Place{}, 0, encode.Place{}
			s.keys[p.Key] = &p
			s.size += p.size()
		}
		s.version++ // to be stored under the new ownership
	}
	s.empty.Store(len(s.keys) == 0)
	return dropped
}

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

// StartCopy says that the rows at lsn are copied from tables: another ownership may send others at the same places.
func (s *Set) StartCopy(lsn pglogrepl.LSN) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copied = lsn
}

// Empty reports whether no key is parked. It does not block.
func (s *Set) Empty() bool { return s == nil || s.empty.Load() }

// Park parks k because the record of row at is bad. If k is parked already, the record is one more of its
// dead letters. Park returns what the dead letter must have. ok is false if the set is full.
func (s *Set) Park(k Key, reason string, at Row) (deadLetter encode.Parked, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, place := s.keys[k], s.place(at)
	if p == nil {
		p = &Parking{ID: idOf(k, place), Key: k, Since: time.Now().UTC(), Reason: shorten(reason), First: at, Bad: at, Generation: s.generation, first: place}
		if len(s.keys) >= s.limit || s.size+p.size() > maxBytes {
			s.refused = true
			return encode.Parked{}, false
		}
		s.keys[k] = p
		s.size += p.size()
		s.version++
		s.empty.Store(false)
	} else if p.precededBy(place) {
		p.First, p.first = at, place
		s.setBad(p, at, reason)
		s.version++
	}
	return s.countDeadLetter(p, place), true
}

// place returns the place of a row of the ownership. s.mu is held.
func (s *Set) place(at Row) encode.Place {
	p := encode.Place{Generation: s.generation, LSN: at.LSN, Index: at.Index}
	if at.LSN == s.copied {
		p.Owner = s.owner
	}
	return p
}

// idOf returns the id of the parking of a key because of a bad row. A relay that finds the same row bad again finds the dead
// letters that an earlier one has sent.
func idOf(k Key, bad encode.Place) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%q %q %v", k.Topic, k.Key, bad)).String()
}

// Follow returns what the dead letter of a record must have, if the record must follow an earlier one of its key
// to the dead-letter topic. It also returns the row because of which the key is parked. at is the record's.
func (s *Set) Follow(topic string, key []byte, at Row) (deadLetter encode.Parked, bad Row, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, place := s.keys[Key{topic, string(key)}], s.place(at)
	if p == nil || p.precededBy(place) {
		return encode.Parked{}, Row{}, false
	}
	return s.countDeadLetter(p, place), p.Bad, true
}

// precededBy reports whether a record comes before the first bad one of p.
func (p *Parking) precededBy(at encode.Place) bool { return at.Compare(p.first) < 0 }

// countDeadLetter counts a dead letter of p, and returns what it must have. s.mu is held.
func (s *Set) countDeadLetter(p *Parking, at encode.Place) encode.Parked {
	if at.Compare(p.Released) > 0 { // otherwise an earlier ownership has released it
		if p.unreleased == 0 || at.Compare(p.oldest) < 0 {
			p.oldest = at
		}
		p.Records++
		p.unreleased++
	}
	s.total++
	s.counted = true
	return encode.Parked{Parking: p.ID, Place: at}
}

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

// Refused reports whether a key could not be parked because the set was full.
func (s *Set) Refused() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Total returns the number of dead letters of parked keys since the start of the process.
func (s *Set) Total() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// List returns the parked keys, the longest parked first.
func (s *Set) List() []Parking {
	if s.Empty() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// list is List. s.mu is held.
func (s *Set) list() []Parking {
	all := make([]Parking, 0, len(s.keys))
	for _, p := range s.keys {
		c := *p
		c.Discarded = slices.Clone(p.Discarded)
		all = append(all, c)
	}
	sortParkings(all)
	return all
}

func sortParkings(all []Parking) {
	slices.SortFunc(all, func(a, b Parking) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key.Key, b.Key.Key))
	})
}

// Find returns the parking with an id.
func (s *Set) Find(id string) (Parking, bool) {
	for _, p := range s.List() {
		if p.ID == id {
			return p, true
		}
	}
	return Parking{}, false
}

// Results returns the results of the last requests, the newest last.
func (s *Set) Results() []Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.results)
}

// Discard has releases leave out a row of a parking, which is then parked because of next, its first row that is left. A zero next says
// that there is none. Discard reports false if too many rows of the parking were discarded.
func (s *Set) Discard(id string, d Discarded, next Row) bool {
	return s.change(id, func(p *Parking) bool {
		if len(p.Discarded) == maxDiscarded {
			return false
		}
		p.Discarded = append(p.Discarded, d)
		s.size += discardedBytes
		if next == (Row{}) {
			s.setBad(p, p.Bad, reasonDiscarded)
		} else {
			s.setUnsent(p, next, ReasonUnsent)
		}
		return true
	})
}

// Progress records that a release of a parking has passed dead letters, one for each place, of which it has sent n and the
// others were discarded.
func (s *Set) Progress(id string, passed []encode.Place, n int) {
	s.change(id, func(p *Parking) bool {
		p.Records = max(0, p.Records-n)
		for _, p.Released = range passed {
			if p.unreleased > 0 && p.Released.Compare(p.oldest) >= 0 {
				p.unreleased--
			}
		}
		return true
	})
}

// Unreleased returns how many records of a parking the ownership has sent to the dead-letter topic that no release has passed.
func (s *Set) Unreleased(id string) int {
	p, _ := s.Find(id)
	return p.unreleased
}

// Wait records why a release of a parking waits, or that it does not if reason is empty. It reports whether that is new.
func (s *Set) Wait(id, reason string) bool {
	return s.change(id, func(p *Parking) bool {
		reason = shorten(reason)
		if p.Waits == reason {
			return false
		}
		s.size += len(reason) - len(p.Waits)
		p.Waits = reason
		return true
	})
}

// Stop records that a release of a parking has stopped at a row because of reason.
func (s *Set) Stop(id string, at Row, reason string) {
	s.change(id, func(p *Parking) bool {
		s.setBad(p, at, reason)
		return true
	})
}

// Advance records that the row at is the first one of a parking that is not sent, although nothing says that it is bad, and why no release
// has sent it.
func (s *Set) Advance(id string, at Row, reason string) {
	s.change(id, func(p *Parking) bool {
		s.setUnsent(p, at, reason)
		return true
	})
}

// setBad makes the row at the one because of which p is parked. s.mu is held.
func (s *Set) setBad(p *Parking, at Row, reason string) {
	s.size -= p.size()
	p.Bad, p.Reason, p.Truncated, p.RowID, p.Unsent = at, shorten(reason), false, "", false
	s.size += p.size()
}

// setUnsent is setBad for a row that was not found bad. s.mu is held.
func (s *Set) setUnsent(p *Parking, at Row, reason string) {
	s.setBad(p, at, reason)
	p.Unsent = true
}

// Truncate records that the dead letter of the row at, which has the id rowID or none, is truncated. It has no effect unless a parking
// waits behind that row.
func (s *Set) Truncate(id string, at Row, rowID string) {
	if s == nil {
		return
	}
	s.change(id, func(p *Parking) bool {
		if p.Bad != at {
			return false
		}
		s.size -= p.size()
		p.Truncated, p.RowID = true, rowID
		s.size += p.size()
		return true
	})
}

// change calls fn with a parking, if it exists, and reports whether fn has changed it.
func (s *Set) change(id string, fn func(*Parking) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.keys {
		if p.ID == id && fn(p) {
			s.version++
			return true
		}
	}
	return false
}

// Finish adds a result.
func (s *Set) Finish(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
	s.results = s.results[max(0, len(s.results)-keptResults):]
	s.version++
}

// Unpark removes a parking. The caller has stored a record without it: see [Set.Record].
func (s *Set) Unpark(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unparked = s.unparkedWith(id)
	for k, p := range s.keys {
		if p.ID == id {
			s.size -= p.size()
			delete(s.keys, k)
		}
	}
	s.refused = false
	s.empty.Store(len(s.keys) == 0)
}

// unparkedWith returns the former parkings when the one with an id is one too. It drops the oldest ones if they have too many discarded
// rows. s.mu is held.
func (s *Set) unparkedWith(id string) []Unparked {
	all := slices.Clone(s.unparked)
	for _, p := range s.keys {
		if p.ID == id && len(p.Discarded) > 0 {
			all = append(all, Unparked{id, slices.Clone(p.Discarded)})
		}
	}
	rows := 0
	for i, u := range slices.Backward(all) {
		if rows += len(u.Discarded); rows > keptUnparked {
			return all[i+1:]
		}
	}
	return all
}

// Pending reports whether the set has changed since it was stored. If counts is set, a change of the numbers of
// records counts too.
func (s *Set) Pending(counts bool) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version != s.stored || counts && s.counted
}

// Record returns the record to store, without the parking with the id without. version is to be passed to Stored.
func (s *Set) Record(without string) (rec Record, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(s.list(), func(p Parking) bool { return p.ID == without })
	s.counted = false
	return Record{Parkings: all, Results: slices.Clone(s.results), Unparked: s.unparkedWith(without)}, s.version
}

// Stored notes that the record of a version is stored.
func (s *Set) Stored(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = max(s.stored, version)
}
