package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
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
)

// A releaseRun is one release of a parked key.
type releaseRun struct {
	*releaser
	parking parking.Parking
	request *parking.Request

	reader  sink.DeadLetters
	target  sink.Sink
	builder *RecordBuilder

	next     map[int32]int64 // next unread offset of each partition of the dead-letter topic
	waiting  []letterPlace   // found and not sent yet
	batch    []letter
	bytes    int
	released int
	stored   time.Time // when the progress was stored
}

// A letterPlace is where a dead letter of the key is, and its place in the order.
type letterPlace struct {
	encode.Place
	partition int32
	offset    int64
}

// A letter is a dead letter to release, with its record.
type letter struct {
	letterPlace
	dead *encode.DeadLetter
	rec  *sink.Record
}

// run releases the key. A *releaseStoppedError says that a record of it cannot be delivered.
func (r *releaseRun) run(ctx context.Context) (err error) {
	limited, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	if r.reader, err = r.cfg.Sink.OpenDeadLetters(limited, r.cfg.DeadLetterTopic, r.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.reader.Close()) }()
	if r.target, err = r.cfg.Sink.Open(limited, r.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.target.Close()) }()
	if r.builder, err = NewRecordBuilder(ctx, r.cfg); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for range maxRounds {
		before := r.released
		if err := r.sendRound(ctx, settleTimeout); err != nil {
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
	if err := r.sendRound(ctx, pauseTimeout); err != nil {
		return err
	}
	r.set.Finish(parking.Result{Request: r.request.ID, Outcome: parking.Released, Released: r.released, At: time.Now().UTC()})
	if err := r.positions.unparkKey(ctx, r.parking.ID); err != nil {
		return &unparkError{err}
	}
	return nil
}

// sendRound sends the dead letters of every record that has a number by now. So none of them is missed: a record
// of the key that the broker rejects late gets a place before later ones.
func (r *releaseRun) sendRound(ctx context.Context, limit time.Duration) error {
	newest := r.tracker.Newest()
	if err := r.waitSettled(ctx, newest, limit); err != nil {
		return err
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	r.sortWaiting()
	end := encode.Place{Claim: r.set.Claim(), Seq: uint64(newest)}
	n, _ := slices.BinarySearchFunc(r.waiting, end, func(l letterPlace, end encode.Place) int {
		if l.Compare(end) <= 0 {
			return -1
		}
		return 1
	})
	due := r.waiting[:n]
	r.waiting = slices.Clone(r.waiting[n:])
	for len(due) > 0 {
		run := ascending(due)
		if err := r.sendLetters(ctx, due[:run]); err != nil {
			return err
		}
		due = due[run:]
	}
	return r.flush(ctx)
}

// ascending returns how many of the first letters can be read one after the other.
func ascending(letters []letterPlace) int {
	n := 1
	for n < len(letters) && letters[n].partition == letters[0].partition && letters[n].offset > letters[n-1].offset {
		n++
	}
	return n
}

// find reads what the dead-letter topic has since the last call, and adds the dead letters of the parking to waiting.
func (r *releaseRun) find(ctx context.Context) error {
	spans, err := r.reader.Spans(ctx)
	if err != nil {
		return err
	}
	for _, span := range spans {
		end := span.End
		span.Begin = max(span.Begin, r.next[span.Partition])
		err := r.reader.Read(ctx, span, func(stored *sink.StoredRecord) error {
			l, ok := encode.ParseDeadLetter(&stored.Record)
			if ok && l.Parked != nil && l.Parked.Parking == r.parking.ID && l.Parked.Place.Compare(r.parking.Released) > 0 {
				r.waiting = append(r.waiting, letterPlace{l.Parked.Place, span.Partition, stored.Offset})
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.next[span.Partition] = end
	}
	return nil
}

// read calls fn with each of letters, which are ascending.
func (r *releaseRun) read(ctx context.Context, letters []letterPlace, fn func(letterPlace, *encode.DeadLetter) error) error {
	span := sink.Span{Partition: letters[0].partition, Begin: letters[0].offset, End: letters[len(letters)-1].offset + 1}
	wanted := letters
	err := r.reader.Read(ctx, span, func(stored *sink.StoredRecord) error {
		if len(wanted) == 0 || stored.Offset < wanted[0].offset {
			return nil
		}
		l, ok := encode.ParseDeadLetter(&stored.Record)
		if !ok || stored.Offset > wanted[0].offset {
			return r.expired(wanted[0])
		}
		at := wanted[0]
		wanted = wanted[1:]
		return fn(at, l)
	})
	if err == nil && len(wanted) > 0 {
		return r.expired(wanted[0])
	}
	return err
}

func (r *releaseRun) expired(l letterPlace) error {
	return fmt.Errorf("dead letter %d:%d of the key has just expired", l.partition, l.offset)
}

// sendLetters sends letters, which are ascending, except those that were discarded.
func (r *releaseRun) sendLetters(ctx context.Context, letters []letterPlace) error {
	return r.read(ctx, letters, func(at letterPlace, dead *encode.DeadLetter) error {
		l := letter{letterPlace: at, dead: dead}
		if !r.discarded(dead) {
			rec, err := r.builder.Build(ctx, dead, fmt.Sprintf("%s/%d:%d", r.cfg.DeadLetterTopic, at.partition, at.offset))
			if as[*RejectedError](err) {
				if err := r.flush(ctx); err != nil {
					return err
				}
				return &releaseStoppedError{rowOf(dead), err}
			}
			if err != nil {
				return err
			}
			l.rec = rec
			r.bytes += len(rec.Key) + len(rec.Value)
		}
		r.batch = append(r.batch, l)
		if len(r.batch) < releaseRecords && r.bytes < releaseBytes {
			return nil
		}
		return r.flush(ctx)
	})
}

func rowOf(dead *encode.DeadLetter) parking.Row { return parking.Row{LSN: dead.LSN, Index: dead.Index} }

// discarded reports whether the row of dead was discarded.
func (r *releaseRun) discarded(dead *encode.DeadLetter) bool {
	return slices.ContainsFunc(r.parking.Discarded, func(d parking.Discarded) bool {
		return d.Row == rowOf(dead) && d.ID == dead.EventID(r.cfg.Route.Columns.ID)
	})
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
	n := 0
	for _, l := range batch[:sent] {
		if l.rec != nil {
			n++
		}
	}
	if sent > 0 {
		r.released += n
		r.parking.Released = batch[sent-1].Place
		r.set.Progress(r.parking.ID, r.parking.Released, n)
		if time.Since(r.stored) > progressEvery {
			r.stored = time.Now()
			if err := r.positions.storeParked(ctx, true); err != nil {
				return &unparkError{err}
			}
		}
	}
	if rejected, ok := errors.AsType[*sink.RecordError](err); ok && rejected.Seq == seqOf(sent) {
		return &releaseStoppedError{rowOf(batch[sent].dead), err}
	}
	return err
}

// seqOf returns the sequence of a record of a batch.
func seqOf(i int) uint64 { return uint64(i + 1) }

// checkTopics returns an error if a topic of the batch is missing, for which a Writer would wait.
func (r *releaseRun) checkTopics(ctx context.Context, batch []letter) error {
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

// send sends a batch with a Writer of its own. It returns how many of the first letters are acknowledged.
func (r *releaseRun) send(ctx context.Context, batch []letter) (acked int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	writer := r.target.NewWriter(sink.WriterConfig{Fence: r.fence})
	timer := time.AfterFunc(releaseTimeout, func() {
		stop(fmt.Errorf("no record was acknowledged for %s: %s", releaseTimeout, r.target.Stat().StallReason))
	})
	defer timer.Stop()
	done := make([]bool, len(batch))
	var running sync.WaitGroup // waited for below
	running.Go(func() {
		err = writer.Run(ctx, func(seqs []uint64, err error) {
			timer.Reset(releaseTimeout)
			for _, seq := range seqs {
				done[seq-1] = err == nil
			}
		})
	})
	for i := range batch {
		if batch[i].rec == nil {
			done[i] = true
			continue
		}
		batch[i].rec.Seq = seqOf(i)
		if writer.Send(ctx, batch[i].rec) != nil {
			break // Run says why
		}
	}
	writer.CloseSend()
	running.Wait()
	for acked < len(batch) && done[acked] {
		acked++
	}
	return acked, err
}

// errExpired: the first record of a key is not in the dead-letter topic any more.
var errExpired = errors.New("the first record of the key is not in the dead-letter topic; it may have expired. To release the others, discard it")

// prepare finds the first dead letter that is not discarded. If the request is to discard it, prepare does so when no
// relay reads its row again, unless the request has done so before.
func (r *releaseRun) prepare(ctx context.Context) error {
	if slices.ContainsFunc(r.parking.Discarded, func(d parking.Discarded) bool { return d.Request == r.request.ID }) {
		return nil
	}
	if err := r.waitSettled(ctx, r.tracker.Newest(), settleTimeout); err != nil {
		return err
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	first, err := r.first(ctx)
	if err != nil {
		return err
	}
	untouched := r.parking.Released == (encode.Place{}) && len(r.parking.Discarded) == 0
	expired := untouched && (first == nil || rowOf(first) != r.parking.First)
	if r.request.Action != parking.Discard {
		if expired {
			return errExpired
		}
		return nil
	}
	d := parking.Discarded{Row: r.parking.First, Request: r.request.ID}
	switch {
	case expired:
	case first == nil || rowOf(first) != r.parking.Bad:
		return fmt.Errorf("the first record of the key is not %s any more, because of which it is parked; release the key", r.parking.Bad)
	default:
		d.Row, d.ID = rowOf(first), first.EventID(r.cfg.Route.Columns.ID)
	}
	if r.mayReadAgain(d.Row, first) {
		if err := r.waitRecorded(ctx, d.Row); err != nil { // otherwise a later relay may send the row after those behind it
			return err
		}
	}
	if !r.set.Discard(r.parking.ID, d) {
		return errors.New("too many records of the key were discarded")
	}
	r.parking.Discarded = append(r.parking.Discarded, d)
	if err := r.positions.storeParked(ctx, true); err != nil {
		return &unparkError{err}
	}
	return nil
}

// mayReadAgain reports whether a relay that starts at a position before row reads it again. first may be its dead letter.
// The LSN of a row of an earlier server says nothing about positions on this one.
func (r *releaseRun) mayReadAgain(row parking.Row, first *encode.DeadLetter) bool {
	if r.parking.Confirmed && row == r.parking.First {
		return false
	}
	return first == nil || rowOf(first) != row || !r.set.OfEarlierServer(first.Parked.Place)
}

// first returns the first dead letter of waiting that is not discarded, or nil.
func (r *releaseRun) first(ctx context.Context) (first *encode.DeadLetter, err error) {
	r.sortWaiting()
	for _, l := range r.waiting {
		err := r.read(ctx, []letterPlace{l}, func(_ letterPlace, dead *encode.DeadLetter) error {
			first = dead
			return nil
		})
		if err != nil || !r.discarded(first) {
			return first, err
		}
	}
	return nil, nil //nolint:nilnil // no dead letter is left
}

// sortWaiting sorts the dead letters that wait by their order.
func (r *releaseRun) sortWaiting() {
	slices.SortFunc(r.waiting, func(a, b letterPlace) int {
		return cmp.Or(a.Compare(b.Place), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
}
