package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A positionStore is a [sink.PositionStore]: one key of a compacted topic. It has connections and
// a producer id of its own, so it neither waits for the records of a [producer] nor holds them
// up. Its records go to partition 0.
type positionStore struct {
	client *client
	topic  string
	key    []byte

	cancel       context.CancelCauseFunc
	producerDone chan struct{} // closed when the producer has ended

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
		client: own, topic: topic, key: []byte(name), producer: own.newProducer(sink.WriterConfig{}),
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
		// Not a sink.RecordError: what it is about is no row of anybody's.
		s.failure = fmt.Errorf("%w: topic %s: %w", errFatal, s.topic, rejectReason(err))
	}
	s.mu.Unlock()
	signal(s.changed)
}

// rejectReason is err without the record it is about.
func rejectReason(err error) error {
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

// close stops the producer. Unacknowledged values may be lost.
func (s *positionStore) close() {
	s.cancel(errPositionsClosed)
	<-s.producerDone
	_ = s.client.Close() // it has no error to tell
}

const (
	// scanRecords is how far before its end a topic is searched first; each further look
	// begins twice as far back. The newest value of a relay that was running a moment ago is
	// near the end, and what compaction has not come to yet may be long.
	scanRecords = 1_000

	fetchBytes   = 1 << 20
	fetchVersion = 11 // the last before flexible versions; negotiated downwards
)

// Read implements [sink.PositionStore]: it returns what compaction has left of the newest value's
// surroundings, after the last tombstone. It reads to what was the topic's end when it began.
func (s *positionStore) Read(ctx context.Context) ([][]byte, error) {
	var values [][]byte
	err := s.client.retryTransient(ctx, func() error {
		l, err := s.client.leaderOf(ctx, s.topic, 0)
		if err != nil {
			return err
		}
		defer l.Close()
		values, err = newestValues(l, s.topic, s.key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	return values, nil
}

// newestValues returns the last values of key in partition 0, oldest first.
func newestValues(l *link, topic string, key []byte) ([][]byte, error) {
	begin, err := offsetAt(l, topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := offsetAt(l, topic, 0, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	for back := int64(scanRecords); ; back *= 2 {
		from := max(begin, end-back)
		values, err := readValues(l, topic, key, from, end)
		if err != nil || len(values) > 0 || from == begin {
			return afterLastTombstone(values), err
		}
		end = from
	}
}

func afterLastTombstone(values [][]byte) [][]byte {
	for i, v := range slices.Backward(values) {
		if v == nil {
			return values[i+1:]
		}
	}
	return values
}

// readValues returns the values of key in partition 0 at the offsets from (inclusive) to end
// (exclusive); nil is a tombstone.
func readValues(l *link, topic string, key []byte, from, end int64) (values [][]byte, err error) {
	_, err = fetchRecords(l, topic, sink.Span{Begin: from, End: end}, func(_ int64, _ time.Time, rec *sarama.Record) error {
		if bytes.Equal(rec.Key, key) {
			values = append(values, bytes.Clone(rec.Value))
		}
		return nil
	})
	return values, err
}

// ensureCompacted creates the topic, compacted, if it does not exist. It returns nil once the topic
// has a leader.
func (c *cluster) ensureCompacted(ctx context.Context, topic string, log *slog.Logger) error {
	if err := c.refresh(ctx, []string{topic}); err != nil {
		return err
	}
	info := c.topic(topic)
	if info.err == sarama.ErrUnknownTopicOrPartition {
		if err := c.createCompacted(ctx, topic); err != nil {
			return err
		}
		log.InfoContext(ctx, "topic created", slog.String("topic", topic), slog.String("cleanup_policy", compact))
		return c.awaitLeader(ctx, topic)
	}
	if err := info.leaderError(0); err != nil {
		return err
	}
	return c.checkCompacted(ctx, topic, log)
}

// awaitLeader waits for the leader of a topic that was just created, which takes a moment.
func (c *cluster) awaitLeader(ctx context.Context, topic string) error {
	for attempt := range 8 {
		if !sleepUntil(ctx, time.Now().Add(time.Millisecond<<attempt)) {
			return context.Cause(ctx)
		}
		if err := c.refresh(ctx, []string{topic}); err != nil {
			return err
		}
		if info := c.topic(topic); info.leaderError(0) == nil {
			return nil
		}
	}
	return errorOf(sarama.ErrLeaderNotAvailable)
}

const (
	cleanupPolicy = "cleanup.policy"
	compact       = "compact"
)

// createCompacted creates topic with settings that keep it short: compaction never touches
// the segment being written, which by default lasts a week.
func (c *cluster) createCompacted(ctx context.Context, topic string) error {
	policy, segment, dirty := compact, "3600000", "0.1"
	failed, err := c.createTopics(ctx, map[string]*sarama.TopicDetail{topic: {
		NumPartitions: 1, ReplicationFactor: -1,
		ConfigEntries: map[string]*string{cleanupPolicy: &policy, "segment.ms": &segment, "min.cleanable.dirty.ratio": &dirty},
	}})
	if err != nil {
		return err
	}
	return failed[topic]
}

// checkCompacted logs a warning if values of the topic may expire.
func (c *cluster) checkCompacted(ctx context.Context, topic string, log *slog.Logger) error {
	return c.control.do(ctx, func(l *link) error {
		values, err := describeTopics(l, cleanupPolicy, topic)
		if policy, told := values[topic]; told && policy != compact {
			log.WarnContext(ctx, "the topic is not compacted only: what is kept there may expire",
				slog.String("topic", topic), slog.String("cleanup_policy", policy))
		}
		return err
	})
}
