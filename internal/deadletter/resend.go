package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// What is sent before it is marked, at most.
	chunkLetters = 500
	chunkBytes   = 2 << 20

	// markTimeout is how long is tried to mark what was acknowledged, however much else there is to
	// wait for.
	markTimeout = 10 * time.Second
)

// ErrStalled says that for too long nothing was acknowledged. What had been sent until then may be
// in its topic, and is not marked.
var ErrStalled = errors.New("nothing is acknowledged")

// A Resender sends letters again, in the order of its Add. It belongs to one goroutine.
type Resender struct {
	sink     sink.Sink
	letters  string // topic
	patience time.Duration
	report   func(Outcome)

	chunk []outgoing
	bytes int
}

// An Outcome is what became of a letter.
type Outcome struct {
	Place
	Topic string // where it went; empty if it did not become a record
	Err   error  // nil: it is acknowledged and marked; a *[RefusedError] or [*sink.RecordError]: it stays as it is
}

// An outgoing is a record that is to be sent again.
type outgoing struct {
	place Place
	rec   *sink.Record
	err   error
	acked bool
}

// NewResender returns a Resender that tells report what became of each letter of a topic. After
// patience without an acknowledgement it gives up.
func NewResender(to sink.Sink, topic string, patience time.Duration, report func(Outcome)) *Resender {
	return &Resender{sink: to, letters: topic, patience: patience, report: report}
}

// Add sends the record of a letter, now or with others by Flush. The record belongs to the
// Resender. The error is of all of them, as is that of Flush: nothing more can be sent.
func (r *Resender) Add(ctx context.Context, p Place, rec *sink.Record) error {
	r.chunk = append(r.chunk, outgoing{place: p, rec: rec})
	r.bytes += len(rec.Key) + len(rec.Value)
	if len(r.chunk) < chunkLetters && r.bytes < chunkBytes {
		return nil
	}
	return r.Flush(ctx)
}

// Flush sends what Add was given, marks what was acknowledged, and reports. What was acknowledged
// is marked also when ctx ends.
func (r *Resender) Flush(ctx context.Context) error {
	chunk := r.chunk
	r.chunk, r.bytes = nil, 0
	err := r.checkTopics(ctx, chunk)
	if err == nil {
		err = r.deliver(ctx, chunk)
	}
	return errors.Join(err, r.mark(ctx, chunk))
}

// checkTopics refuses records for topics that are not there: the producer would wait for them.
func (r *Resender) checkTopics(ctx context.Context, chunk []outgoing) error {
	checked := make(map[string]error)
	for i := range chunk {
		o := &chunk[i]
		err, known := checked[o.rec.Topic]
		if !known {
			err = r.sink.CheckDestinations(ctx, o.rec.Topic)
			if err != nil && !errors.Is(err, sink.ErrMissing) && !errors.Is(err, sink.ErrAccess) {
				return err
			}
			checked[o.rec.Topic] = err
		}
		if err != nil {
			o.err = &RefusedError{err}
		}
	}
	return nil
}

// deliver sends the records of a chunk. One that Kafka does not take ends a producer, and the
// next one goes on behind it.
func (r *Resender) deliver(ctx context.Context, chunk []outgoing) error {
	for {
		err := r.produce(ctx, chunk)
		if _, refused := errors.AsType[*sink.RecordError](err); !refused {
			return err
		}
	}
}

// produce sends what has no outcome yet with one producer, until one of them is refused.
func (r *Resender) produce(ctx context.Context, chunk []outgoing) error {
	var pending []uint64
	for i := range chunk {
		if o := &chunk[i]; !o.acked && o.err == nil {
			o.rec.Seq = uint64(i + 1)
			pending = append(pending, o.rec.Seq)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	writer := r.sink.NewWriter(sink.WriterConfig{})
	patience := time.AfterFunc(r.patience, func() {
		stop(fmt.Errorf("%w for %v: %s", ErrStalled, r.patience, r.sink.Stat().StallReason))
	})
	defer patience.Stop()
	var ended error
	var running sync.WaitGroup // waited for below
	running.Go(func() {
		ended = writer.Run(ctx, func(seqs []uint64, err error) {
			patience.Reset(r.patience)
			for _, seq := range seqs {
				o := &chunk[seq-1]
				o.acked, o.err = err == nil, err
			}
		})
	})
	for _, seq := range pending {
		if writer.Send(ctx, chunk[seq-1].rec) != nil {
			break // Run says why
		}
	}
	writer.CloseSend()
	running.Wait()
	return ended
}

// mark marks what was acknowledged of a chunk, and reports all that has an outcome.
func (r *Resender) mark(ctx context.Context, chunk []outgoing) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience+markTimeout)
	defer cancel()
	var marks []outgoing
	now := time.Now()
	for _, o := range chunk {
		if o.acked {
			rec, err := markFor(r.letters, o.place, o.rec.Topic, now)
			if err != nil {
				return err
			}
			marks = append(marks, outgoing{rec: rec})
		}
	}
	if err := r.produce(ctx, marks); err != nil {
		return fmt.Errorf("%d records are sent and cannot be marked, they will be sent once more: %w", len(marks), err)
	}
	for _, o := range chunk {
		if o.acked || o.err != nil {
			r.report(Outcome{Place: o.place, Topic: o.rec.Topic, Err: o.err})
		}
	}
	return nil
}
