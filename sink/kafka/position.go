package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A positionStore is a [sink.PositionStore]: one key of a compacted topic. It has connections and
// a producer id of its own, so it neither waits for the records of a [producer] nor holds them
// up. Its records go to partition 0.
type positionStore struct {
	client *client
	topic  string
	key    []byte

	cancel context.CancelCauseFunc
	ran    chan struct{} // closed when the producer has ended

	writing  sync.Mutex // one Write at a time
	producer *producer
	seq      uint64

	mu      sync.Mutex
	acked   uint64        // the newest sequence
	failure error         // why no more can be written
	changed chan struct{} // cap 1: one of these has
}

// positionWindow is far more than the one record that waits in it.
const positionWindow = 64 << 10

var errPositionsClosed = errors.New("position store is closed")

// OpenPositions implements [sink.Sink]. A missing topic is created with one partition and
// cleanup.policy=compact. A topic that is not compacted is used as it is, and a warning logged:
// there the value may expire.
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
	own, err := open(ctx, cfg, c.log.With(slog.String("position_topic", topic)), c.wire.dial)
	if err != nil {
		return nil, err
	}
	if err := own.persist(ctx, func() error { return own.cluster.provide(ctx, topic, c.log) }); err != nil {
		_ = own.Close()
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &positionStore{
		client: own, topic: topic, key: []byte(name), producer: own.newProducer(sink.WriterConfig{}),
		cancel: cancel, ran: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go func() { // close waits for s.ran
		defer close(s.ran)
		if err := s.producer.Run(run, s.outcome); err != nil {
			s.fail(err)
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	return s, nil
}

// outcome is the producer's done.
func (s *positionStore) outcome(seqs []uint64, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	s.acked = max(s.acked, seqs[len(seqs)-1])
	s.mu.Unlock()
	signal(s.changed)
}

func (s *positionStore) fail(err error) {
	s.mu.Lock()
	if s.failure == nil {
		// Not a sink.RecordError: what it is about is no row of anybody's.
		s.failure = fmt.Errorf("%w: topic %s: %w", errFatal, s.topic, unrecorded(err))
	}
	s.mu.Unlock()
	signal(s.changed)
}

// unrecorded is err without the record it is about.
func unrecorded(err error) error {
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		return rec.Reason
	}
	return err
}

// Write implements [sink.PositionStore].
func (s *positionStore) Write(ctx context.Context, value []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.seq++
	err := s.producer.Send(ctx, &sink.Record{Seq: s.seq, Topic: s.topic, Partition: 0, Key: s.key, Value: value, Timestamp: time.Now()})
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

// close ends s; what was not acknowledged is given up.
func (s *positionStore) close() {
	s.cancel(errPositionsClosed)
	<-s.ran
	_ = s.client.Close() // it has no error to tell
}
