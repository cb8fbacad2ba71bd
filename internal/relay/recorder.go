package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// PositionTopic is where relays keep their positions unless told otherwise.
const PositionTopic = "outbox-cdc.positions"

// A recorder keeps the confirmed position in Kafka, and tells the server only what is kept
// there: so the slot is never ahead of the record, and whoever finds it ahead knows that
// rows may be missing. Without a register it passes the position through.
//
// It outlives sessions. Restore, left, resume, hold and begin belong to the goroutine of
// [Relay.Run], and confirmed to the stream's; delivered and record may be
// called from any, recordLate when no other can be writing.
type recorder struct {
	log       *slog.Logger
	register  sink.PositionStore // nil: nothing is kept
	acceptGap bool               // the first session may go on behind a gap

	wake chan struct{} // cap 1: there is something newer than the record

	tracker *checkpoint.Tracker // the session's
	term    int64               // the session's
	told    atomic.Uint64       // the LSN the server may be told: that of the record

	turn    chan struct{}        // holds one token while nobody writes; a mutex that a context ends
	last    checkpoint.Position  // the record; zero: there is none. Belongs to who has the turn
	adopted *checkpoint.Position // where the slot was found, if that is to be the record. The same

	copyDone atomic.Bool // the initial copy that the record says has begun is delivered

	snapshot atomic.Pointer[checkpoint.Snapshot] // the newest one delivered that is in no record yet
}

func newRecorder(reg sink.PositionStore, acceptGap bool, log *slog.Logger) *recorder {
	r := &recorder{
		log: log, register: reg, acceptGap: acceptGap,
		wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	r.turn <- struct{}{}
	return r
}

// restore reads what an earlier process, or another instance, has left in the register. Every
// session begins with it: behind the look at the slot, which may not be ahead of the record,
// and before the look at where the log ends, which may not be behind it.
func (r *recorder) restore(ctx context.Context) error {
	if r.register == nil {
		return nil
	}
	found, err := r.read(ctx)
	if err != nil || found == nil {
		return err
	}
	if found.Term != r.term && found.Term != r.last.Term || found.Term == 0 {
		r.log.InfoContext(ctx, "position of an earlier run", slog.String("end_lsn", found.EndLSN.String()),
			slog.Int("timeline", int(found.Timeline)), slog.Time("written_at", found.WrittenAt))
	}
	r.last = *found
	return nil
}

// read returns what the register holds, nil if that is nothing.
func (r *recorder) read(ctx context.Context) (*checkpoint.Position, error) {
	records, err := r.register.Read(ctx)
	if err != nil {
		return nil, err
	}
	p, err := checkpoint.NewestPosition(records)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return p, nil
}

// errRecord: the position topic holds something that cannot be read.
var errRecord = errors.New("the position record cannot be read")

// errChangedHands: what was looked at before the slot was ours is no longer so, because another
// instance had it meanwhile, or because the server is another one.
var errChangedHands = errors.New("the slot changed hands while it was looked at")

// left returns an error if there is a record: its slot is missing, and is not made anew as
// if nothing had been there.
func (r *recorder) left(ctx context.Context, slot string) error {
	if err := r.restore(ctx); err != nil {
		return err
	}
	if r.last.EndLSN == 0 || r.acceptGap {
		return nil
	}
	return fmt.Errorf("%w: publication and slot %q are gone; what was committed since %s, the position recorded at %s, cannot be read any more",
		replication.ErrSlotMissing, slot, r.last.EndLSN, r.last.WrittenAt.UTC().Format(time.RFC3339))
}

// intend records, before the slot is made, that an initial copy has to be delivered first.
func (r *recorder) intend(ctx context.Context, systemID, slot string) error {
	p := checkpoint.Position{SystemID: systemID, Slot: slot, Copying: true, Term: r.last.Term + 1, WrittenAt: time.Now()}
	if err := r.write(ctx, p); err != nil {
		return err
	}
	r.acceptGap = false // a new slot has none
	return nil
}

// copying reports whether an initial copy has to be delivered first.
func (r *recorder) copying() bool { return r.last.Copying }

// copied notes that it has been. Any goroutine.
func (r *recorder) copied() {
	r.copyDone.Store(true)
	signal(r.wake)
}

// resume returns where a session that finds s may start, 0 for where the slot is. Its
// *checkpoint.GapError is final, unless the operator has accepted the gap.
func (r *recorder) resume(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	if r.register == nil {
		return 0, nil
	}
	start, err := r.compare(s)
	if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && r.acceptGap {
		r.log.WarnContext(ctx, "gap accepted: what was committed in between may never have been delivered",
			slog.String("from", r.last.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.String("reason", gap.Reason))
		start, err = 0, nil
	}
	if err != nil {
		return 0, err
	}
	if r.last.Copying && r.acceptGap {
		r.log.WarnContext(ctx, "gap accepted: rows of the initial copy may never have been delivered")
		r.last.Copying = false
	}
	r.told.Store(uint64(start))
	r.adopted = nil
	if start == 0 {
		r.adopt(s)
	}
	return start, nil
}

// hold reads the record again when the slot is ours. Another instance may have had the slot
// since restore: a session that begins from what is read now repeats less.
func (r *recorder) hold(ctx context.Context) error {
	if r.register == nil {
		return nil
	}
	found, err := r.read(ctx)
	if err != nil || found == nil {
		return err
	}
	if found.Term != r.last.Term || found.Timeline != r.last.Timeline || found.EndLSN != r.last.EndLSN {
		return fmt.Errorf("%w: the position record went from %s to %s", errChangedHands, r.last.EndLSN, found.EndLSN)
	}
	return nil
}

func (r *recorder) compare(s checkpoint.Server) (pglogrepl.LSN, error) {
	if r.last.EndLSN == 0 {
		return 0, nil
	}
	return r.last.Continue(s)
}

// adopt begins a record at the slot's own position. It is written by the session, once that
// has the slot.
func (r *recorder) adopt(s checkpoint.Server) {
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, EndLSN: s.Confirmed, Copying: r.last.Copying}
	if r.last.SystemID == p.SystemID && r.last.Slot == p.Slot {
		p.Snapshots = r.last.Snapshots
	}
	r.adopted = &p
}

// begin makes t the tracker whose position is kept, in a session that has the slot.
func (r *recorder) begin(t *checkpoint.Tracker) {
	r.acceptGap = false
	r.copyDone.Store(false)
	r.tracker = t
	r.term = max(r.last.Term, 1)
	if r.adopted != nil {
		r.term = r.last.Term + 1
	}
	r.snapshot.Store(nil)
	behind := pglogrepl.LSN(r.told.Load()) < t.Confirmed()
	if behind {
		r.told.Store(0) // nothing is reported rather than less than the session starts from
	}
	if behind || r.adopted != nil {
		signal(r.wake)
	}
}

// confirmed returns what the server may be told now, and asks for a newer record if there
// is something newer.
func (r *recorder) confirmed() pglogrepl.LSN {
	confirmed := r.tracker.Confirmed()
	if r.register == nil {
		return confirmed
	}
	told := pglogrepl.LSN(r.told.Load())
	if confirmed > told {
		signal(r.wake)
	}
	return min(confirmed, told) // a session may begin at 0, which stands for the slot's own position
}

// run writes records when they are asked for, until ctx ends (nil) or the register fails.
func (r *recorder) run(ctx context.Context) error {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
		if err := r.record(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// record brings the register up to date and returns when that is acknowledged.
func (r *recorder) record(ctx context.Context) error {
	if r.register == nil {
		return nil
	}
	select {
	case <-r.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { r.turn <- struct{}{} }()
	p := r.last
	if r.adopted != nil {
		p = *r.adopted
	}
	snapshot := r.snapshot.Load() // before the position, which then is not behind it
	copied := p.Copying && r.copyDone.Load()
	p.Copying = p.Copying && !copied
	if end := r.tracker.Confirmed(); end > p.EndLSN {
		p.EndLSN = end
	} else if r.adopted == nil && !copied {
		return nil
	}
	if snapshot != nil {
		p = p.With(*snapshot)
	}
	p.Term, p.WrittenAt = r.term, time.Now()
	if err := r.write(ctx, p); err != nil {
		return err
	}
	r.snapshot.CompareAndSwap(snapshot, nil)
	r.told.Store(uint64(p.EndLSN))
	return nil
}

// write makes p the record.
func (r *recorder) write(ctx context.Context, p checkpoint.Position) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := r.register.Write(ctx, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	r.last, r.adopted = p, nil
	return nil
}

// recordLate is record for a session that has not held the slot for some time. It does
// nothing if another instance has written since: its record is the newer one, and what is
// recorded here is repeated in any case.
func (r *recorder) recordLate(ctx context.Context) error {
	if r.register == nil {
		return nil
	}
	found, err := r.read(ctx)
	if err != nil {
		return err
	}
	if found != nil && found.Term > r.term {
		r.log.InfoContext(ctx, "position not recorded: another instance has the slot", slog.String("end_lsn", found.EndLSN.String()))
		return nil
	}
	return r.record(ctx)
}

// delivered notes that every transaction that s sees has been delivered.
func (r *recorder) delivered(s checkpoint.Snapshot) { r.snapshot.Store(&s) }
