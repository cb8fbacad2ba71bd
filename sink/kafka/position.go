package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A positionStore is a [sink.PositionStore] in a compacted topic. The key of a value is the name, a slash and the
// writer. It has its own connections and producer id, so it neither waits for the records of a [producer] nor
// delays them. Its records are in partition 0.
type positionStore struct {
	client *client
	topic  string
	name   string

	cancel       context.CancelCauseFunc
	producerDone chan struct{} // closed when the producer has ended

	writing  sync.Mutex // one Write at a time
	producer *producer
	seq      uint64

	mu      sync.Mutex
	acked   uint64        // highest acknowledged sequence
	failure error         // why writing is not possible any more
	warned  bool          // warnUnowned has logged
	changed chan struct{} // cap 1; acked or failure has changed

	reading chan struct{} // cap 1; a mutex for Read, with a context
	reader  positionReader
}

// positionWindow is far larger than the one record in it.
const positionWindow = 64 << 10

var errPositionsClosed = errors.New("position store is closed")

// OpenPositions implements [sink.Sink]. It creates a missing topic with one partition and cleanup.policy=compact.
// If an existing topic has another policy, it logs a warning, because values may expire.
func (c *client) OpenPositions(ctx context.Context, topic, name string) (sink.PositionStore, error) {
	s, err := c.openPositions(ctx, topic, name)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *client) openPositions(ctx context.Context, topic, name string) (*positionStore, error) {
	cfg := c.cfg
	cfg.Compression, cfg.CreateTopics = "none", nil
	cfg.WindowBytes, cfg.WindowRecords, cfg.ConnectionsPerBroker = positionWindow, 0, 1
	own, err := open(ctx, cfg, c.log.With(slog.String("position_topic", topic)), c.connector.dial)
	if err != nil {
		return nil, err
	}
	if err := own.retryTransient(ctx, func() error { return own.cluster.ensureCompacted(ctx, topic, c.log) }); err != nil {
		_ = own.Close()
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &positionStore{
		client: own, topic: topic, name: name, producer: own.newProducer(sink.WriterConfig{}),
		reading: make(chan struct{}, 1), reader: positionReader{topic: topic, name: name, log: c.log, next: fromTheBeginning},
		cancel: cancel, producerDone: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go func() { // close waits for s.ran
		defer close(s.producerDone)
		if err := s.producer.Run(run, s.recordOutcome); err != nil {
			s.setFailure(err)
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	return s, nil
}

// recordOutcome is the done function of the producer's Run.
func (s *positionStore) recordOutcome(seqs []uint64, err error) {
	if err != nil {
		s.setFailure(err)
		return
	}
	s.mu.Lock()
	s.acked = max(s.acked, seqs[len(seqs)-1])
	s.mu.Unlock()
	signal(s.changed)
}

func (s *positionStore) setFailure(err error) {
	s.mu.Lock()
	if s.failure == nil {
		// Not a sink.RecordError, because the record is not a row.
		s.failure = fmt.Errorf("%w: topic %s: %w", errFatal, s.topic, rejectReason(err))
	}
	s.mu.Unlock()
	signal(s.changed)
}

// rejectReason returns the reason of a *sink.RecordError, or err.
func rejectReason(err error) error {
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		return rec.Reason
	}
	return err
}

// keyOf returns the key of a writer's value.
func (s *positionStore) keyOf(writer string) []byte {
	if writer == "" {
		return []byte(s.name)
	}
	return []byte(s.name + "/" + writer)
}

// Write implements [sink.PositionStore].
func (s *positionStore) Write(ctx context.Context, writer string, value []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.seq++
	err := s.producer.Send(ctx, &sink.Record{Seq: s.seq, Topic: s.topic, Partition: 0, Key: s.keyOf(writer), Value: value, Timestamp: time.Now()})
	if err == nil {
		s.producer.Flush()
	}
	for {
		s.mu.Lock()
		acked, failure := s.acked >= s.seq, s.failure
		s.mu.Unlock()
		switch {
		case acked:
			return nil
		case failure != nil:
			return failure
		case err != nil:
			return err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			err = fmt.Errorf("write to topic %s: %w", s.topic, context.Cause(ctx))
		}
	}
}

// addStat adds the stall of the position store to the Stat of the Sink: during it, acknowledged records cannot be
// confirmed.
func (s *positionStore) addStat(total *sink.Stat) {
	own, prefix := s.client.Stat(), "topic "+s.topic+": "
	if since := own.StalledSince; !since.IsZero() && (total.StalledSince.IsZero() || since.Before(total.StalledSince)) {
		total.StalledSince, total.StallReason = since, "position "+prefix+strings.TrimPrefix(own.StallReason, prefix)
		total.StallMissing, total.StallAdvice = own.StallMissing, own.StallAdvice
	}
	if own.LastErrorAt.After(total.LastErrorAt) {
		total.LastError, total.LastErrorAt = own.LastError, own.LastErrorAt
	}
}

// close stops the producer. Unacknowledged values may be lost.
func (s *positionStore) close() {
	s.cancel(errPositionsClosed)
	<-s.producerDone
	s.reading <- struct{}{}
	s.reader.hangUp()
	<-s.reading
	_ = s.client.Close() // never fails
}

// Read implements [sink.PositionStore].
func (s *positionStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("read topic %s: %w", s.topic, context.Cause(ctx))
	}
	defer func() { <-s.reading }()
	if err := s.client.retryTransient(ctx, func() error { return s.reader.readNew(ctx, s.client) }); err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	return slices.Clone(s.reader.values), nil
}
