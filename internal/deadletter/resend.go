package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// A batch is at most this large. Its resent records are written behind it.
	batchRecords = 500
	batchBytes   = 2 << 20

	// resentRecordTimeout is how long the Resender tries to write resent records in addition to its
	// timeout.
	resentRecordTimeout = 10 * time.Second
)

// A Resender resends dead letters in the order of Add. It belongs to one goroutine.
type Resender struct {
	sink    sink.Sink
	topic   string // topic
	timeout time.Duration
	dryRun  bool
	report  func(Outcome)

	batch []pendingRecord
	bytes int
}

// An Outcome is the outcome of resending a dead letter.
type Outcome struct {
	PartitionOffset
	Parking string // id of the parking whose later records must not overtake it; empty: none
	Topic   string // which it was resent to; empty if it did not become a record
	Err     error  // nil: it is acknowledged, or would be sent; a *[rows.RejectedError], [*sink.RecordError] or [ErrBehind]: it stays a dead letter
}

// ErrBehind is the error for a record that must not overtake an earlier one of its parking.
var ErrBehind = errors.New("an earlier record of its key was rejected; once that is sent, resend this one by its partition and offset, with --again")

// A pendingRecord is a record to resend.
type pendingRecord struct {
	offset  PartitionOffset
	parking string
	rec     *sink.Record
	err     error
	acked   bool
}

// NewResender returns a Resender that calls report with the outcome of each dead letter of a topic.
// It stops with [sink.ErrStalled] if the broker acknowledges nothing for timeout: records without an outcome may then be in
// their topics, without a resent record. With dryRun it sends nothing: the outcomes are those that do not need the broker to judge a record.
func NewResender(to sink.Sink, topic string, timeout time.Duration, dryRun bool, report func(Outcome)) *Resender {
	return &Resender{sink: to, topic: topic, timeout: timeout, dryRun: dryRun, report: report}
}

// Add resends the record of a dead letter, now or with others at Flush. The record belongs to the
// Resender. parking is the id of the parking whose later records must not overtake it, or empty. After an error of Add or Flush, the
// Resender can send nothing more.
func (r *Resender) Add(ctx context.Context, p PartitionOffset, parking string, rec *sink.Record) error {
	r.batch = append(r.batch, pendingRecord{offset: p, parking: parking, rec: rec})
	r.bytes += len(rec.Key) + len(rec.Value)
	if len(r.batch) < batchRecords && r.bytes < batchBytes {
		return nil
	}
	return r.Flush(ctx)
}

// Flush resends the records of Add, writes resent records for the acknowledged ones, also if ctx
// ends, and reports the outcomes.
func (r *Resender) Flush(ctx context.Context) error {
	batch := r.batch
	r.batch, r.bytes = nil, 0
	err := r.checkTopics(ctx, batch)
	switch {
	case r.dryRun && err != nil:
		return err // the broker cannot be asked, so nothing is known of the batch
	case r.dryRun:
		holdBehind(batch)
		for _, o := range batch {
			r.report(Outcome{PartitionOffset: o.offset, Parking: o.parking, Topic: o.rec.Topic, Err: o.err})
		}
		return nil
	case err == nil:
		err = r.sendBatch(ctx, batch)
	}
	return errors.Join(err, r.writeResentRecords(ctx, batch))
}

// checkTopics rejects records for missing topics: the Writer would wait for them.
func (r *Resender) checkTopics(ctx context.Context, batch []pendingRecord) error {
	checked := make(map[string]error)
	for i := range batch {
		o := &batch[i]
		err, known := checked[o.rec.Topic]
		if !known {
			err = r.sink.CheckDestinations(ctx, o.rec.Topic)
			if err != nil && !errors.Is(err, sink.ErrMissing) && !errors.Is(err, sink.ErrAccess) {
				return err
			}
			checked[o.rec.Topic] = err
		}
		if err != nil {
			o.err = &rows.RejectedError{Reason: err}
		}
	}
	return nil
}

// sendBatch sends the records of a batch. A record that the broker rejects ends the Writer, which has sent no later one of the same
// key. The next Writer continues after it.
func (r *Resender) sendBatch(ctx context.Context, batch []pendingRecord) error {
	for {
		holdBehind(batch)
		err := r.sendPending(ctx, batch)
		if _, rejected := errors.AsType[*sink.RecordError](err); !rejected {
			return err
		}
	}
}

// holdBehind sets ErrBehind for each record of a batch that follows a rejected one of the same parking.
func holdBehind(batch []pendingRecord) {
	rejected := make(map[string]bool)
	for i := range batch {
		o := &batch[i]
		switch {
		case o.parking == "" || o.acked:
		case o.err != nil:
			rejected[o.parking] = true
		case rejected[o.parking]:
			o.err = ErrBehind
		}
	}
}

// sendPending sends the records without an outcome with one Writer, until one is rejected.
func (r *Resender) sendPending(ctx context.Context, batch []pendingRecord) error {
	records := make([]*sink.Record, len(batch))
	pending := false
	for i := range batch {
		if o := &batch[i]; !o.acked && o.err == nil {
			records[i], pending = o.rec, true
		}
	}
	if !pending {
		return nil
	}
	return sink.DeliverAll(ctx, r.sink, sink.WriterConfig{}, r.timeout, records, func(i int, err error) {
		batch[i].acked, batch[i].err = err == nil, err
	})
}

// writeResentRecords writes resent records for the acknowledged records of a batch, and reports all
// outcomes.
func (r *Resender) writeResentRecords(ctx context.Context, batch []pendingRecord) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout+resentRecordTimeout)
	defer cancel()
	var resent []pendingRecord
	now := time.Now()
	for _, o := range batch {
		if o.acked {
			rec, err := newResentRecord(r.topic, o.offset, o.rec.Topic, now)
			if err != nil {
				return err
			}
			resent = append(resent, pendingRecord{rec: rec})
		}
	}
	if err := r.sendPending(ctx, resent); err != nil {
		return fmt.Errorf("%d records were resent but could not be marked, so they may be resent again: %w", len(resent), err)
	}
	for _, o := range batch {
		if o.acked || o.err != nil {
			r.report(Outcome{PartitionOffset: o.offset, Parking: o.parking, Topic: o.rec.Topic, Err: o.err})
		}
	}
	return nil
}

// resentRecordHeader is the only header of a resent record: the dead letter's partition and offset.
const resentRecordHeader = "dead_letter_resent"

// A resentRecord is the value of a resent record.
type resentRecord struct {
	DeadLetter string    `json:"dead_letter"` // its partition and offset
	Topic      string    `json:"topic"`       // which it was resent to
	ResentAt   time.Time `json:"resent_at"`
}

// newResentRecord returns the resent record of the dead letter at p, which was resent to a topic.
func newResentRecord(deadLetterTopic string, p PartitionOffset, topic string, at time.Time) (*sink.Record, error) {
	value, err := json.Marshal(resentRecord{DeadLetter: p.String(), Topic: topic, ResentAt: at.UTC()})
	return &sink.Record{
		Topic: deadLetterTopic, Partition: p.Partition, Key: []byte("resent " + p.String()), Value: value,
		Headers: []sink.Header{{Key: resentRecordHeader, Value: []byte(p.String())}}, Timestamp: at,
	}, err
}

// parseResentRecord returns which dead letter was resent, and when, if stored is a resent record.
func parseResentRecord(stored *sink.StoredRecord) (p PartitionOffset, at time.Time, ok bool) {
	if len(stored.Headers) == 0 || stored.Headers[0].Key != resentRecordHeader {
		return PartitionOffset{}, time.Time{}, false
	}
	p, err := ParsePartitionOffset(string(stored.Headers[0].Value))
	if err != nil || p.Partition != stored.Partition || p.Offset >= stored.Offset {
		return PartitionOffset{}, time.Time{}, false
	}
	var m resentRecord
	if json.Unmarshal(stored.Value, &m) != nil || m.ResentAt.IsZero() {
		return p, stored.Timestamp, true
	}
	return p, m.ResentAt, true
}
