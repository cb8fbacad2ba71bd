package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A positionStore is a [sink.PositionStore] in a compacted topic. The key of a value follows the name and a slash. All are in
// partition 0.
type positionStore struct {
	client *client
	topic  string
	name   string

	reading chan struct{} // cap 1: held by Read and Own
	reader  positionReader
	leaders leaders // for the reader
	warned  bool    // warnUnowned has logged

	mu    sync.Mutex
	owner *owner // of the last Own; nil: none
}

// An owner is a [sink.Owner]. It has its own connections, so it neither waits for the records of a [producer] nor
// delays them.
type owner struct {
	store     *positionStore
	ownership *ownership // nil: the broker does not know owners

	cancel  context.CancelCauseFunc
	running sync.WaitGroup // the producer, and keep; stop waits for them

	writing  chan struct{} // cap 1: held by Write
	producer *producer
	seq      uint64
	own      [][]byte // without an ownership: the positions that may be stored unless somebody else writes

	mu      sync.Mutex
	acked   uint64        // highest acknowledged sequence
	failure error         // why writing is not possible any more
	changed chan struct{} // cap 1; acked or failure has changed
}

// positionWindow is far larger than the one record in it.
const positionWindow = 64 << 10

var (
	errPositionsClosed = errors.New("position store is closed")
	errOwnedAgain      = fmt.Errorf("%w: the position store was taken over by this process", sink.ErrSuperseded)
)

// OpenPositions implements [sink.PositionOpener]. It creates a missing topic with one partition and cleanup.policy=compact.
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
	own.compacted = true
	if err := own.retryTransient(ctx, func() error { return own.cluster.ensureCompacted(ctx, topic, c.log) }); err != nil {
		_ = own.Close()
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	s := &positionStore{
		client: own, topic: topic, name: name, reading: make(chan struct{}, 1),
		reader: positionReader{topic: topic, name: name, log: c.log}, leaders: leadersFrom(own),
	}
	s.reader.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	return s, nil
}

// Own implements [sink.PositionStore].
func (s *positionStore) Own(ctx context.Context) (sink.Owner, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	o := &owner{
		store: s, writing: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	var err error
	if o.ownership, err = s.succeed(ctx); err != nil {
		return nil, fmt.Errorf("topic %s: %w", s.topic, err)
	}
	if o.ownership == nil {
		values, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		o.own = [][]byte{positionOf(values)}
	}
	o.producer = s.client.newProducer(sink.WriterConfig{Owner: o})
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	o.cancel = cancel
	o.running.Go(func() {
		if err := o.producer.Run(run, o.recordOutcome); err != nil {
			o.setFailure(err)
		}
	})
	if o.ownership != nil {
		o.running.Go(func() { o.keep(run) })
	}
	s.setOwner(o)
	return o, nil
}

// setOwner ends the last owner of the store.
func (s *positionStore) setOwner(o *owner) {
	s.mu.Lock()
	last := s.owner
	s.owner = o
	s.mu.Unlock()
	if last != nil {
		last.stop(errOwnedAgain)
	}
}

// stop stops the producer. Unacknowledged values may be lost.
func (o *owner) stop(cause error) {
	o.cancel(cause)
	o.running.Wait()
	if o.ownership != nil {
		o.ownership.disconnect()
	}
}

// recordOutcome is the done function of the producer's Run.
func (o *owner) recordOutcome(seqs []uint64, err error) {
	if err != nil {
		o.setFailure(err)
		return
	}
	o.mu.Lock()
	o.acked = max(o.acked, seqs[len(seqs)-1])
	o.mu.Unlock()
	signal(o.changed)
}

func (o *owner) setFailure(err error) {
	o.mu.Lock()
	if o.failure == nil {
		o.failure = fmt.Errorf("topic %s: %w", o.store.topic, rejectReason(err)) // not a sink.RecordError, because the record is not a row
		if !errors.Is(err, sink.ErrSuperseded) {
			o.failure = fmt.Errorf("%w: %w", errFatal, o.failure)
		}
	}
	o.mu.Unlock()
	signal(o.changed)
}

// rejectReason returns the reason of a *sink.RecordError, or err.
func rejectReason(err error) error {
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		return rec.Reason
	}
	return err
}

// recordKey returns the key of the record that has the value of a key.
func (s *positionStore) recordKey(key string) []byte { return []byte(s.name + "/" + key) }

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	select {
	case o.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("write to topic %s: %w", o.store.topic, context.Cause(ctx))
	}
	defer func() { <-o.writing }()
	if o.ownership == nil {
		if err := o.checkUnowned(ctx, key, value); err != nil {
			return err
		}
	}
	o.seq++
	err := o.producer.Send(ctx, &sink.Record{
		Seq: o.seq, Topic: o.store.topic, Partition: 0, Key: o.store.recordKey(key), Value: value, Timestamp: time.Now(),
	})
	if err == nil {
		o.producer.Flush()
	}
	for {
		o.mu.Lock()
		acked, failure := o.acked >= o.seq, o.failure
		o.mu.Unlock()
		switch {
		case acked:
			return nil
		case failure != nil:
			return failure
		case err != nil:
			return err
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			err = fmt.Errorf("write to topic %s: %w", o.store.topic, context.Cause(ctx))
		}
	}
}

// checkUnowned returns an error that wraps sink.ErrSuperseded if somebody else has written a position, on a broker that does not
// know owners. o.writing is held.
func (o *owner) checkUnowned(ctx context.Context, key string, value []byte) error {
	values, err := o.readAllowed(ctx)
	if err != nil {
		return err
	}
	stored := positionOf(values)
	if !slices.ContainsFunc(o.own, func(own []byte) bool { return bytes.Equal(own, stored) }) {
		return fmt.Errorf("%w: another relay has written to topic %s", sink.ErrSuperseded, o.store.topic)
	}
	if key == sink.PositionKey {
		o.own = [][]byte{stored, bytes.Clone(value)}
	}
	return nil
}

// readAllowed is Read of the store, and retries also while the user lacks a right, as the producer does with the record itself.
func (o *owner) readAllowed(ctx context.Context) (values []sink.StoredValue, err error) {
	final := func(err error) error {
		if errors.Is(err, sink.ErrAccess) {
			return nil
		}
		return err // Read has retried it
	}
	err = o.store.client.retryUntil(ctx, final, func() error {
		values, err = o.store.Read(ctx)
		return err
	})
	return values, err
}

// positionOf returns the position among values, or nil.
func positionOf(values []sink.StoredValue) []byte {
	for _, v := range values {
		if v.Key == sink.PositionKey && v.Other == "" {
			return v.Value
		}
	}
	return nil
}

// Post implements [sink.PositionStore]. Each value has a producer id of its own, so that it is stored once.
func (s *positionStore) Post(ctx context.Context, key string, value []byte) error {
	to := leadersFrom(s.client)
	defer to.close()
	var id *identity
	err := s.client.retryTransient(ctx, func() error {
		if id == nil {
			requested, err := s.client.control.requestID(ctx)
			if err != nil {
				return err
			}
			id = &requested
		}
		err := to.use(ctx, s.topic, 0, func(l *link) error {
			return writeRecord(l, s.topic, *id, 0, &sarama.Record{Key: s.recordKey(key), Value: value})
		})
		if code, ok := errors.AsType[*codeError](err); ok && code.code == sarama.ErrDuplicateSequenceNumber {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write to topic %s: %w", s.topic, err)
	}
	return nil
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

// close stops the owner.
func (s *positionStore) close() {
	s.mu.Lock()
	last := s.owner
	s.mu.Unlock()
	if last != nil {
		last.stop(errPositionsClosed)
	}
	s.reading <- struct{}{}
	s.leaders.close()
	s.unlock()
	_ = s.client.Close() // never fails
}

// lock waits until nobody else reads.
func (s *positionStore) lock(ctx context.Context) error {
	select {
	case s.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("read topic %s: %w", s.topic, context.Cause(ctx))
		if st := s.client.Stat(); time.Since(st.LastErrorAt) < time.Minute {
			err = fmt.Errorf("%w (another read waits: %s)", err, st.LastError)
		}
		return err
	}
}

func (s *positionStore) unlock() { <-s.reading }

// Read implements [sink.PositionStore].
func (s *positionStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	return s.read(ctx)
}

// read is Read. s.reading is held.
func (s *positionStore) read(ctx context.Context) ([]sink.StoredValue, error) {
	if err := s.client.retryTransient(ctx, func() error { return s.reader.readNew(ctx, &s.leaders) }); err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	return s.reader.all(), nil
}
