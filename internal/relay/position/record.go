package position

import (
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A Record is the position record as this process knows it: see [checkpoint.Position]. The stream confirms to Postgres only positions
// that are stored there. So the slot is never ahead of the record; if a start finds it ahead, rows may be missing.
//
// An ownership passes through these states:
//
//	state           the record                     confirmed to Postgres   the next write
//	recordUnread    not compared with the slot     nothing                 AnnounceCopy, BeginOwnership
//	recordCurrent   the ownership starts at it,    the record's position   when the Tracker confirms
//	                or has written it                                      a later position
//	recordObsolete  missing, not used, or of an    nothing                 at once, in the next generation
//	                older timeline: the ownership
//	                starts at another position
//
//	BeginOwnership: any → recordUnread
//	ChooseStart: recordUnread → recordCurrent, recordObsolete
//	Run, ProveOwner: any → recordCurrent
//
// Its methods may be called from any goroutine.
type Record struct {
	reportable atomic.Uint64 // an LSN: that of stored in state recordCurrent, otherwise 0

	mu     sync.Mutex
	state  recordState
	stored checkpoint.Position // as last read or written; zero: none
	next   checkpoint.Position // the base of the next record
}

// A recordState says how the position record relates to the current ownership.
type recordState int

const (
	recordUnread recordState = iota
	recordCurrent
	recordObsolete
)

// Stored returns the record as last read by the owner, or written.
func (r *Record) Stored() checkpoint.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored
}

// Next returns the base of the next record, after ChooseStart. If its Copying is set, the ownership must deliver an initial copy
// before the stream, and if it has a Refill, that.
func (r *Record) Next() checkpoint.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// CanContinue returns nil if the current ownership may continue on s, as long as this process is the owner: the timeline is the same,
// and the slot is not ahead of the record.
func (r *Record) CanContinue(s checkpoint.Server) error {
	next := r.Next()
	if next.Timeline != s.Timeline {
		return ErrPromoted
	}
	_, err := next.Continue(s)
	return err
}

// Covered returns the place before and at which a relay that starts at the stored record reads no row again. ok is false if
// the record does not cover everything up to confirmed, and open.
func (r *Record) Covered(confirmed pglogrepl.LSN, open checkpoint.Prefix) (end encode.Place, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.stored
	if r.state != recordCurrent || p.EndLSN < confirmed || p.EndLSN == confirmed && p.Open.Rows < open.Rows {
		return end, false
	}
	if p.Open.Rows > 0 {
		return encode.Place{Generation: p.Generation, LSN: p.Open.CommitLSN, Index: int(p.Open.Rows) - 1}, true
	}
	return encode.Place{Generation: p.Generation, LSN: p.EndLSN, Index: -1}, true
}

// confirmable returns the position that may be confirmed to Postgres.
func (r *Record) confirmable() pglogrepl.LSN { return pglogrepl.LSN(r.reportable.Load()) }

// nextWrite returns the base of the next record, and whether it must be written although the Tracker confirms nothing later.
func (r *Record) nextWrite() (base checkpoint.Position, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next, r.state == recordObsolete
}

// addLost adds the position that this process has stored to found, if the store has lost it.
func (r *Record) addLost(found *Found) {
	stored := r.Stored()
	if found != nil && found.Position == nil && (stored.EndLSN != 0 || stored.Copying || stored.Refill != nil) {
		found.Position = &stored
	}
}

// setStored says that p is stored, and is not compared with the slot yet.
func (r *Record) setStored(p checkpoint.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = p
}

// setNext says that an ownership starts at next.
func (r *Record) setNext(next checkpoint.Position, s recordState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = next
	r.enterState(s)
}

// setCurrent says that p is stored, and that the current ownership has written it.
func (r *Record) setCurrent(p checkpoint.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.next = p, p
	r.enterState(recordCurrent)
}

// setUnread says that what is stored is not known any more.
func (r *Record) setUnread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enterState(recordUnread)
}

// startGeneration sets the generation of the next record: a new one, unless the ownership starts at the record.
func (r *Record) startGeneration() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next.Generation = r.stored.Generation
	if r.state == recordObsolete {
		r.next.Generation++
	}
}

// enterState sets the state, and the position that may be confirmed in it. r.mu is locked.
func (r *Record) enterState(s recordState) {
	r.state = s
	reportable := pglogrepl.LSN(0)
	if s == recordCurrent {
		reportable = r.stored.EndLSN
	}
	r.reportable.Store(uint64(reportable))
}
