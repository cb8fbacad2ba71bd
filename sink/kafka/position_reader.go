package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// fromTheBeginning is the next offset of a positionReader that has read nothing.
const fromTheBeginning = -1

// A positionReader reads partition 0 of a position topic. It reads the whole partition once, which compaction keeps
// small, and after that only new records. One goroutine at a time uses it.
type positionReader struct {
	topic, name string
	log         *slog.Logger
	warned      bool // of a record with headers

	readAt  time.Time   // start of the last attempt that reached the leader
	topicID sarama.Uuid // of the topic that was read; zero: the brokers are too old
	next    int64       // next offset to read
	values  []sink.StoredValue
	others  map[string]sink.StoredValue // positions of other names

	producers map[int64]bool    // ids of the producers of positions
	newest    map[int64]ordinal // of each producer, by its id
	marker    identity          // of the last marker of this producer id
}

// An ordinal is the place of a record among those of its producer.
type ordinal struct {
	epoch    int16
	sequence int32
}

// compare returns a negative number if the producer has written the record at o before that at q.
func (o ordinal) compare(q ordinal) int {
	return cmp.Or(cmp.Compare(o.epoch, q.epoch), cmp.Compare(o.sequence, q.sequence))
}

// isLate reports whether the producer of a record had written a later one that is stored before it: a copy of a request that had got
// no answer, which a broker has stored after it had forgotten the producer. Its value is not the newest one.
func (r *positionReader) isLate(rec fetchedRecord) bool {
	id := rec.batch.ProducerID
	if id < 0 {
		return false
	}
	at := ordinal{rec.batch.ProducerEpoch, rec.batch.FirstSequence + int32(rec.OffsetDelta)}
	newest, known := r.newest[id]
	if known && at.compare(newest) < 0 {
		return true
	}
	r.newest[id] = at
	return false
}

// readNew reads up to the current end of the topic. After a long pause it reads the whole topic again, because
// compaction may have removed a value together with its tombstone.
func (r *positionReader) readNew(ctx context.Context, leaders *leaders) error {
	if time.Since(r.readAt) > idleTimeout {
		leaders.close()
		r.forget()
	}
	read := func(l *link) error {
		r.readAt = time.Now()
		if r.next == fromTheBeginning {
			r.topicID = leaders.client.cluster.topic(r.topic).id
		}
		err := r.readTopic(l)
		if code, ok := errors.AsType[*codeError](err); ok && code.code == sarama.ErrOffsetOutOfRange {
			r.forget()
		}
		return err
	}
	connected := len(leaders.links) > 0
	err := leaders.use(ctx, r.topic, 0, read)
	if err != nil && connected { // the leader may have moved, or the broker may have restarted
		err = leaders.use(ctx, r.topic, 0, read)
	}
	return err
}

// forget makes the next read start at the beginning of the topic.
func (r *positionReader) forget() {
	r.next, r.values, r.producers, r.newest = fromTheBeginning, nil, make(map[int64]bool), make(map[int64]ordinal)
	r.others = make(map[string]sink.StoredValue)
}

// readTopic reads the new records. If the topic then has another id, it was re-created, and readTopic reads it from
// its beginning. Brokers before 2.8 send no id; there, a re-created topic is detected only if it is shorter.
func (r *positionReader) readTopic(l *link) error {
	for {
		if err := r.readTo(l); err != nil {
			return err
		}
		res, err := fetchMetadata(l, []string{r.topic})
		if err != nil {
			return err
		}
		t := res.Topics[0]
		if t.Err != sarama.ErrNoError {
			return errorOf(t.Err)
		}
		if t.Uuid == r.topicID {
			return nil
		}
		r.topicID = t.Uuid
		r.forget()
	}
}

func (r *positionReader) readTo(l *link) error {
	end, err := offsetAt(l, r.topic, 0, sarama.OffsetNewest, sarama.ReadUncommitted)
	if err != nil {
		return err
	}
	if end < r.next { // the topic was re-created
		r.forget()
	}
	if r.next == fromTheBeginning {
		if r.next, err = offsetAt(l, r.topic, 0, sarama.OffsetOldest, sarama.ReadUncommitted); err != nil {
			r.next = fromTheBeginning
			return err
		}
	}
	offsets := sink.OffsetRange{Begin: r.next, End: end}
	r.next, err = fetchRecords(l, r.topic, offsets, sarama.ReadUncommitted, func(rec fetchedRecord) error {
		switch key, ok := r.keyOf(rec.Key); {
		case rec.batch.Control:
			if rec.batch.ProducerID == r.marker.id {
				r.marker.epoch = max(r.marker.epoch, rec.batch.ProducerEpoch)
			}
		case rec.batch.IsTransactional: // of another program, because a value is in no transaction
		case !ok:
			r.takeOther(rec)
		case isRouted(rec.Record):
			r.warnRouted(rec.offset())
		case r.isLate(rec):
		default:
			if key == sink.PositionKey {
				r.producers[rec.batch.ProducerID] = true
			}
			r.take(key, rec.offset(), rec.Value)
		}
		return nil
	})
	return err
}

// isRouted reports whether a record is not a value, but was made from a row or written by another program. Records
// of a relay have headers, including dead letters. A value has none, except sink.TimestampHeader, which the
// producer adds if the topic rejects the timestamp.
func isRouted(rec *sarama.Record) bool {
	return slices.ContainsFunc(rec.Headers, func(h *sarama.RecordHeader) bool { return string(h.Key) != sink.TimestampHeader })
}

// warnRouted logs, once, that a record is ignored.
func (r *positionReader) warnRouted(offset int64) {
	if r.warned {
		return
	}
	r.warned = true
	r.log.Warn("foreign record in the position store ignored", slog.String("record", r.place(offset)),
		slog.String("reason", "it has headers: it is a row or a dead letter that was sent there"))
}

func (r *positionReader) place(offset int64) string {
	return fmt.Sprintf("topic %s, partition 0, offset %d", r.topic, offset)
}

// keyOf returns the key of a value. ok is false if it is not of this relay.
func (r *positionReader) keyOf(recordKey []byte) (key string, ok bool) {
	rest, ok := bytes.CutPrefix(recordKey, []byte(r.name+"/"))
	return string(rest), ok && sink.IsStoreKey(string(rest))
}

// takeOther takes a record that is not a value of this relay.
func (r *positionReader) takeOther(rec fetchedRecord) {
	name, ok := sink.CutPosition(string(rec.Key))
	switch {
	case !ok || isRouted(rec.Record):
	case rec.Value == nil:
		delete(r.others, name)
	default:
		r.others[name] = sink.StoredValue{Key: sink.PositionKey, Value: bytes.Clone(rec.Value), Place: r.place(rec.offset()), Other: name}
	}
}

// take sets the value of a key. A nil value removes it.
func (r *positionReader) take(key string, offset int64, value []byte) {
	r.values = slices.DeleteFunc(r.values, func(v sink.StoredValue) bool { return v.Key == key })
	if value != nil {
		r.values = append(r.values, sink.StoredValue{Key: key, Value: bytes.Clone(value), Place: r.place(offset)})
	}
}

// all returns what was read, for [sink.PositionStore].
func (r *positionReader) all() []sink.StoredValue {
	all := slices.Clone(r.values)
	for _, name := range slices.Sorted(maps.Keys(r.others)) {
		all = append(all, r.others[name])
	}
	return all
}

// ReadPositions implements [sink.PositionReader].
func (r *reader) ReadPositions(ctx context.Context, topic, name string) ([]sink.StoredValue, error) {
	if err := r.lookUp(ctx, topic); err != nil {
		return nil, err
	}
	if r.client.cluster.topic(topic).err == sarama.ErrUnknownTopicOrPartition {
		return nil, nil
	}
	if err := r.check(topic); err != nil {
		return nil, err
	}
	positions := positionReader{topic: topic, name: name, log: r.client.log}
	if err := r.client.retryTransient(ctx, func() error { return positions.readNew(ctx, &r.leaders) }); err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	return positions.all(), nil
}
