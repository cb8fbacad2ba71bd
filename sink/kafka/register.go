package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A Register keeps one value under one key of a compacted topic: a little state that has to
// outlive the process, written rarely and read at the start.
//
// It has connections and a producer id of its own, so it neither waits for the records of a
// [Producer] nor holds them up. Its records go to partition 0. Methods may be called from
// any goroutine.
type Register struct {
	client *Client
	topic  string
	key    []byte

	cancel context.CancelCauseFunc
	ran    chan struct{} // closed when the producer has ended

	writing  sync.Mutex // one Write at a time
	producer *Producer
	seq      uint64

	mu      sync.Mutex
	acked   uint64        // the newest sequence
	failure error         // why no more can be written
	changed chan struct{} // cap 1: one of these has
}

// registerWindow is far more than the one record that waits in it.
const registerWindow = 64 << 10

var errRegisterClosed = errors.New("register is closed")

// OpenRegister reaches the cluster as [Open] does and makes sure that the topic is there: a
// missing one is created with one partition and cleanup.policy=compact. A topic that is not
// compacted is used as it is, and a warning logged: there the value may expire.
//
// The Register must be closed.
func OpenRegister(ctx context.Context, cfg Config, topic, key string, log *slog.Logger) (*Register, error) {
	cfg.Compression, cfg.CreateTopics = "none", nil
	cfg.WindowBytes, cfg.WindowRecords, cfg.ConnectionsPerBroker = registerWindow, 0, 1
	client, err := Open(ctx, cfg, log.With(slog.String("register", topic)))
	if err != nil {
		return nil, err
	}
	if err := client.persist(ctx, func() error { return client.cluster.provide(ctx, topic, log) }); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &Register{
		client: client, topic: topic, key: []byte(key), producer: client.NewProducer(),
		cancel: cancel, ran: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go func() {
		defer close(r.ran)
		if err := r.producer.Run(run, r.outcome); err != nil {
			r.fail(err)
		}
	}()
	return r, nil
}

// outcome is the producer's done.
func (r *Register) outcome(seqs []uint64, err error) {
	if err != nil {
		r.fail(err)
		return
	}
	r.mu.Lock()
	r.acked = max(r.acked, seqs[len(seqs)-1])
	r.mu.Unlock()
	signal(r.changed)
}

func (r *Register) fail(err error) {
	r.mu.Lock()
	if r.failure == nil {
		// Not a RecordError: what it is about is no row of anybody's.
		r.failure = fmt.Errorf("%w: topic %s: %w", ErrFatal, r.topic, unrecorded(err))
	}
	r.mu.Unlock()
	signal(r.changed)
}

// unrecorded is err without the record it is about.
func unrecorded(err error) error {
	if rec, ok := errors.AsType[*RecordError](err); ok {
		return rec.Reason
	}
	return err
}

// Write replaces the value and returns when all in-sync replicas have it. What may heal is
// retried until ctx ends; then the value may or may not have been replaced. Values take
// effect in the order of Write, whatever is retried. An error other than the end of ctx
// wraps ErrFatal, and nothing more can be written.
func (r *Register) Write(ctx context.Context, value []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.seq++
	err := r.producer.Send(ctx, &Record{Seq: r.seq, Topic: r.topic, Partition: 0, Key: r.key, Value: value, Timestamp: time.Now()})
	if err == nil {
		r.producer.Kick()
	}
	for {
		r.mu.Lock()
		acked, failure := r.acked >= r.seq, r.failure
		r.mu.Unlock()
		switch {
		case acked:
			return nil
		case failure != nil:
			return failure
		case err != nil:
			return err
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			err = fmt.Errorf("write to topic %s: %w", r.topic, context.Cause(ctx))
		}
	}
}

// Close ends the Register; what was not acknowledged is given up.
func (r *Register) Close() error {
	r.cancel(errRegisterClosed)
	<-r.ran
	return r.client.Close()
}
