package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// A release sends at most this much before it waits for acknowledgements.
	releaseRecords = 500
	releaseBytes   = 1 << 20

	// A round that sends at most lastRound records is followed by the last one, during which the pump is paused.
	lastRound = 500
	maxRounds = 100

	releaseTimeout = 30 * time.Second // without any acknowledgement
	progressEvery  = time.Second      // how often the progress is stored

	// readableTimeout limits how long a release waits in one go for open transactions of the dead-letter topic, and
	// pauseReadable how long while the pump is paused. Then it tries again after requestInterval.
	readableTimeout  = 5 * time.Second
	pauseReadable    = time.Second
	readableInterval = 20 * time.Millisecond
)

// A releaseRun is one release of a parked key.
type releaseRun struct {
	*Releaser
	parking parking.Parking
	request *parking.Request

	reader  sink.DeadLetters
	target  sink.Sink
	builder *rows.RecordBuilder

	next     map[int32]int64 // next unread offset of each partition of the dead-letter topic
	waiting  deadLetterRuns  // found and not sent yet
	passed   encode.Place    // of the newest dead letter in batch, also of earlier ones
	batch    []deadLetter
	bytes    int
	front    *encode.DeadLetter // first one that is neither sent nor discarded; nil: unknown
	released int
	stored   time.Time // when the progress was stored
}

// A deadLetterPlace is where a dead letter of the key is, and its place in the order.
type deadLetterPlace struct {
	encode.Place
	partition int32
	offset    int64
}

// A deadLetter is a dead letter to release, with its record.
type deadLetter struct {
	deadLetterPlace
	dead *encode.DeadLetter
	rec  *sink.Record
}

// run releases the key. A *releaseStoppedError says that a record of it cannot be delivered, and a *releaseWaitsError that
// the release can continue later.
func (r *releaseRun) run(ctx context.Context) (err error) {
	if r.cfg.Copying() {
		return &releaseWaitsError{errCopyRuns}
	}
	limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	if r.reader, err = sink.OpenDeadLetters(limited, r.cfg.Sink, r.cfg.DeadLetters, r.cfg.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.reader.Close()) }()
	if _, err := r.ranges(ctx, readableTimeout); err != nil {
		return err
	}
	if r.target, err = r.cfg.Sink.Open(limited, r.cfg.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.target.Close()) }()
	if r.builder, err = rows.NewRecordBuilder(ctx, r.cfg.Rows); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for range maxRounds {
		before := r.released
		if err := r.sendRound(ctx, settleTimeout, readableTimeout); err != nil {
			return err
		}
		if r.released-before <= lastRound {
			break
		}
	}
	return r.finish(ctx)
}

// finish pauses the pump, sends what is left, and unparks the key.
func (r *releaseRun) finish(ctx context.Context) error {
	resume, err := r.pausePump(ctx)
	if err != nil {
		return err
	}
	defer resume()
	if err := r.sendRound(ctx, pauseTimeout, pauseReadable); err != nil {
		return err
	}
	if n := r.cfg.Set.Unreleased(r.parking.ID); n > 0 && !r.givenUp() {
		return fmt.Errorf("%d records of the key that this relay has sent to topic %s are not there any more; they may have expired. "+
			"To unpark the key without them, discard them with --yes", n, r.cfg.DeadLetters)
	}
	r.cfg.Set.Finish(parking.Result{Request: r.request.ID, Outcome: parking.Released, Released: r.released, Dropped: r.dropped(), At: time.Now().UTC()})
	if err := r.cfg.Keys.Unpark(ctx, r.parking.ID); err != nil {
		return &unparkError{err}
	}
	return nil
}

// sendRound sends the dead letters of every row that has a number by now, and of earlier ones. So none of them is missed: a
// record of the key that the broker rejects late gets a place before later ones. Dead letters of an earlier relay whose rows the
// ownership has yet to read are left out: if the key is unparked by then, the ownership delivers these rows. sendRound waits at most
// settle for acknowledgements and as long for the position, and at most readable for open transactions.
func (r *releaseRun) sendRound(ctx context.Context, settle, readable time.Duration) error {
	end, err := r.awaitRecorded(ctx, settle)
	if err != nil {
		return err
	}
	for {
		if err := r.find(ctx, readable); err != nil {
			return err
		}
		sent := r.parking.Released
		err := r.waiting.read(ctx, r.reader, r.parking.ID, end, func(at deadLetterPlace, dead *encode.DeadLetter) error {
			return r.sendDeadLetter(ctx, at, dead)
		})
		if err != nil {
			return err
		}
		if err := r.flush(ctx); err != nil || !r.waiting.incomplete(end) {
			return err
		}
		if r.parking.Released == sent {
			return fmt.Errorf("too many dead letters of the key have the same place, %s", r.waiting.bound)
		}
		r.waiting = deadLetterRuns{}
		clear(r.next)
	}
}

// ranges returns the partitions of the dead-letter topic, with every record that the topic has when ranges is called. While an
// open transaction hides some of them, ranges waits, at most for limit; then it returns a *releaseWaitsError.
func (r *releaseRun) ranges(ctx context.Context, limit time.Duration) ([]sink.OffsetRange, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	needed := make(map[int32]int64) // the end of each partition where a transaction was open
	for first := true; ; first = false {
		ranges, err := r.reader.OffsetRanges(ctx)
		if err != nil {
			return nil, err
		}
		var hidden error
		for _, s := range ranges {
			if first && s.Hidden > 0 {
				needed[s.Partition] = s.Hidden
			}
			if s.End < needed[s.Partition] {
				hidden = s.Open(r.cfg.DeadLetters)
			}
		}
		if hidden == nil {
			return ranges, nil
		}
		select {
		case <-time.After(readableInterval):
		case <-timer.C:
			return nil, &releaseWaitsError{hidden}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find reads what the dead-letter topic has since the last call, and adds the dead letters of the parking to waiting.
func (r *releaseRun) find(ctx context.Context, readable time.Duration) error {
	ranges, err := r.ranges(ctx, readable)
	if err != nil {
		return err
	}
	r.waiting.startPass()
	for _, offsets := range ranges {
		end := offsets.End
		offsets.Begin = max(offsets.Begin, r.next[offsets.Partition])
		err := r.reader.Read(ctx, offsets, func(stored *sink.StoredRecord) error {
			l, ok := encode.ParseDeadLetter(&stored.Record)
			if ok && l.Parked != nil && l.Parked.Parking == r.parking.ID && r.parking.Follows(l.Parked.Place) && !r.parking.IsPassed(l.Parked.Place) {
				r.waiting.add(deadLetterPlace{l.Parked.Place, offsets.Partition, stored.Offset})
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.next[offsets.Partition] = end
	}
	return nil
}

// sendDeadLetter sends a dead letter, unless it was discarded or is stored twice. It may wait in the batch until flush is called.
func (r *releaseRun) sendDeadLetter(ctx context.Context, at deadLetterPlace, dead *encode.DeadLetter) error {
	if at.Place == r.passed {
		return nil
	}
	l := deadLetter{deadLetterPlace: at, dead: dead}
	if !r.discarded(dead) {
		if r.front == nil {
			r.front = dead
		}
		rec, err := r.builder.Build(ctx, dead, fmt.Sprintf("%s/%d:%d", r.cfg.DeadLetters, at.partition, at.offset))
		if errors.As(err, new(*rows.RejectedError)) {
			if err := r.flush(ctx); err != nil {
				return err
			}
			return &releaseStoppedError{parking.RowOf(dead), err}
		}
		if err != nil {
			return err
		}
		l.rec = rec
		r.bytes += len(rec.Key) + len(rec.Value)
	}
	r.batch, r.passed = append(r.batch, l), at.Place
	if len(r.batch) < releaseRecords && r.bytes < releaseBytes {
		return nil
	}
	return r.flush(ctx)
}

// discarded reports whether the row of dead was discarded.
func (r *releaseRun) discarded(dead *encode.DeadLetter) bool {
	return r.parking.HasDiscarded(dead, dead.EventID(r.cfg.Rows.Route.Columns.ID))
}

// flush sends the batch and waits until all of it is acknowledged. It returns a *releaseStoppedError if the broker rejects a
// record and has acknowledged all records before it. A release that is interrupted after the rejection and before these
// acknowledgements has not stopped there: an operator may discard the row at which a release has stopped.
func (r *releaseRun) flush(ctx context.Context) error {
	batch := r.batch
	r.batch, r.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	err := r.checkTopics(ctx, batch)
	sent := 0
	if err == nil {
		sent, err = r.send(ctx, batch)
	}
	n, passed := 0, make([]encode.Place, 0, sent)
	for _, l := range batch[:sent] {
		if l.rec != nil {
			n++
		}
		passed = append(passed, l.Place)
	}
	r.front = nil
	if left := slices.IndexFunc(batch[sent:], func(l deadLetter) bool { return l.rec != nil }); left >= 0 {
		r.front = batch[sent+left].dead
	}
	if sent > 0 {
		r.released += n
		r.parking.Released = batch[sent-1].Place
		r.cfg.Set.Progress(r.parking.ID, passed, n)
		if time.Since(r.stored) > progressEvery {
			r.stored = time.Now()
			if err := r.cfg.Keys.Store(ctx, true); err != nil {
				return &unparkError{err}
			}
		}
	}
	if rejected, ok := errors.AsType[*sink.RecordError](err); ok && rejected.Seq == uint64(sent+1) {
		if rejected.TooLarge && rows.WithoutResent(batch[sent].rec) {
			r.batch = batch[sent:]
			return r.flush(ctx)
		}
		return &releaseStoppedError{parking.RowOf(batch[sent].dead), err}
	}
	return err
}

// checkTopics returns an error if a topic of the batch is missing, for which a Writer would wait.
func (r *releaseRun) checkTopics(ctx context.Context, batch []deadLetter) error {
	var topics []string
	for _, l := range batch {
		if l.rec != nil && !slices.Contains(topics, l.rec.Topic) {
			topics = append(topics, l.rec.Topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	return r.target.CheckDestinations(ctx, topics...)
}

// send sends a batch with a Writer of its own. It returns how many of the first dead letters are acknowledged.
func (r *releaseRun) send(ctx context.Context, batch []deadLetter) (acked int, err error) {
	records, done := make([]*sink.Record, len(batch)), make([]bool, len(batch))
	for i, l := range batch {
		records[i], done[i] = l.rec, l.rec == nil
	}
	err = sink.DeliverAll(ctx, r.target, sink.WriterConfig{Fence: r.cfg.Fence}, releaseTimeout, records, func(i int, err error) {
		done[i] = err == nil
	})
	for acked < len(batch) && done[acked] {
		acked++
	}
	return acked, err
}

// errExpired: the first record of a key is not in the dead-letter topic any more.
var errExpired = errors.New("the first record of the key is not in the dead-letter topic; it may have expired. To release the others, discard it")

// prepare finds the first dead letter that is not discarded, of a row up to which all are settled. If the request is to discard
// it, prepare does so, unless the request has done so before.
func (r *releaseRun) prepare(ctx context.Context) error {
	first, next, err := r.first(ctx, settleTimeout, readableTimeout)
	if err != nil {
		return err
	}
	untouched := r.parking.Released == (encode.Place{}) && len(r.parking.Discarded) == 0
	expired := untouched && (first == nil || parking.RowOf(first) != r.parking.First && r.parking.First != (parking.Row{}))
	if r.request.Action == parking.Discard && r.dropped() == "" {
		return r.discard(ctx, first, next, expired)
	}
	if expired {
		return errExpired
	}
	r.front = first
	return nil
}

// discard discards the first dead letter, or the expired ones before it. The key is parked because of the next one from then on.
func (r *releaseRun) discard(ctx context.Context, first, next *encode.DeadLetter, expired bool) (err error) {
	if first == nil && !expired {
		if first, expired, err = r.firstWhilePaused(ctx); err != nil {
			return err
		}
	}
	d := parking.Discarded{Row: r.parking.First, Request: r.request.ID}
	if expired {
		next = first
	} else {
		if err := r.checkDiscard(first); err != nil {
			return err
		}
		d.Row, d.ID = parking.RowOf(first), first.EventID(r.cfg.Rows.Route.Columns.ID)
	}
	var nextRow parking.Row
	if next != nil {
		nextRow = parking.RowOf(next)
	}
	if !r.cfg.Set.Discard(r.parking.ID, d, nextRow) {
		return errors.New("too many records of the key were discarded")
	}
	r.markTruncated(next)
	r.parking.Discarded, r.front = append(r.parking.Discarded, d), next
	if err := r.cfg.Keys.Store(ctx, true); err != nil {
		return &unparkError{err}
	}
	return nil
}

// checkDiscard returns an error unless the request may discard the first dead letter: the one of the row that it names. If it names
// none, the operator knows only that the relay has found a row bad.
func (r *releaseRun) checkDiscard(first *encode.DeadLetter) error {
	bad := r.parking.Bad
	named := r.request.Row == bad.Place() || r.request.Row == "" && !r.parking.Unsent
	switch {
	case first == nil:
		return errors.New("no record of the key is left; nothing was dropped. Release the key")
	case parking.RowOf(first) != bad:
		r.front = first
		return fmt.Errorf("the first record of the key is that of %s; nothing was dropped", parking.RowOf(first))
	case !named:
		return fmt.Errorf("the first record of the key is that of %s, and the request does not name it; nothing was dropped", bad)
	case !r.recorded(first.Parked.Place):
		return &releaseWaitsError{errTransactionOpen}
	}
	return nil
}

// dropped names the row that the request has discarded, or returns "".
func (r *releaseRun) dropped() string {
	for _, d := range r.parking.Discarded {
		if d.Request == r.request.ID {
			return d.String()
		}
	}
	return ""
}

// stayParked has the key parked because of the first record that is not sent, if it is known. A row that was found bad keeps its reason.
func (r *releaseRun) stayParked(reason string) {
	parked, ok := r.cfg.Set.Find(r.parking.ID)
	if !ok || r.front == nil || parking.RowOf(r.front) == parked.Bad && !parked.Unsent {
		return
	}
	r.cfg.Set.Advance(parked.ID, parking.RowOf(r.front), reason)
	r.markTruncated(r.front)
}

// markTruncated says that the dead letter because of which the key is parked is truncated, if it is. dead may be nil.
func (r *releaseRun) markTruncated(dead *encode.DeadLetter) {
	if dead != nil && dead.Truncated != "" {
		r.cfg.Set.Truncate(r.parking.ID, parking.RowOf(dead), dead.EventID(r.cfg.Rows.Route.Columns.ID))
	}
}

// errTransactionOpen: a later relay would read the row again. If it can be delivered by then, it would come after the rows that this
// release sends.
var errTransactionOpen = errors.New("the transaction of the row is not delivered to its end")

// recorded reports whether no later relay reads the row at the place again. Copied rows are recorded when the copy is finished.
func (r *releaseRun) recorded(at encode.Place) bool {
	end, ok := r.cfg.Record.Covered(0, checkpoint.Prefix{})
	return at.Owner != 0 || ok && at.Compare(end) <= 0
}

// firstWhilePaused is first while the pump is paused, so that no dead letter of the key is on its way. If it finds none, expired
// reports whether there should be some.
func (r *releaseRun) firstWhilePaused(ctx context.Context) (first *encode.DeadLetter, expired bool, err error) {
	resume, err := r.pausePump(ctx)
	if err != nil {
		return nil, false, err
	}
	defer resume()
	first, _, err = r.first(ctx, pauseTimeout, pauseReadable)
	return first, first == nil && r.cfg.Set.Unreleased(r.parking.ID) > 0, err
}

// first returns the first dead letter of the key that is not discarded, and the next one, or nil if there is none of a row up to which
// all are settled. See sendRound for the limits.
func (r *releaseRun) first(ctx context.Context, settle, readable time.Duration) (first, next *encode.DeadLetter, err error) {
	end, err := r.awaitRecorded(ctx, settle)
	if err != nil {
		return nil, nil, err
	}
	if err := r.find(ctx, readable); err != nil {
		return nil, nil, err
	}
	all := r.waiting.clone()
	err = all.read(ctx, r.reader, r.parking.ID, end, func(at deadLetterPlace, dead *encode.DeadLetter) error {
		switch {
		case r.discarded(dead) || first != nil && at.Place == first.Parked.Place: // discarded, or stored twice
			return nil
		case first == nil:
			first = dead
			return nil
		}
		next = dead
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return first, next, err
}

// errFound ends the reading of dead letters.
var errFound = errors.New("found")

// givenUp reports whether the operator has discarded records that the topic has lost.
func (r *releaseRun) givenUp() bool {
	return slices.ContainsFunc(r.parking.Discarded, func(d parking.Discarded) bool { return d.ID == "" })
}
