package parking

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	maxDiscarded = 100 // per key
	keptUnparked = 100 // discarded rows of keys that are not parked any more

	// ReasonUnsent is the Reason of an Unsent row of which nothing else is known, and reasonDiscarded that of a discarded row.
	ReasonUnsent    = "the records before it were sent or discarded; it is not sent yet"
	reasonDiscarded = "it was discarded; the key is not released yet"
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

// countDeadLetter counts a dead letter of p, and returns what it must have. s.mu is held.
func (s *Set) countDeadLetter(p *Parking, at encode.Place) encode.Parked {
	if !p.IsPassed(at) { // otherwise an earlier ownership has released it
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
