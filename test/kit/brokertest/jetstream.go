package brokertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// JetStream starts a NATS server with a stream.
func JetStream(t *testing.T) *Broker {
	t.Helper()
	node := natstest.StartNode(t)
	stream := node.Stream(t, jetstream.StreamConfig{Storage: jetstream.FileStorage, Duplicates: 10 * time.Minute})
	r := &natsReader{js: node.JetStream(t), stream: stream}
	return &Broker{
		Addr: node.Addrs[0], Topic: stream, Process: natsProcess{t, node}, Timed: true, Once: true, Collect: r.collect,
		Config: func(addr string) string { return fmt.Sprintf("sink: {jetstream: {servers: [%q]}}", addr) },
	}
}

// A natsProcess is a NATS server as a process.
type natsProcess struct {
	t    *testing.T
	node *natstest.Node
}

func (p natsProcess) Kill(context.Context) error {
	p.node.Kill(p.t) //nolint:contextcheck // the node limits the time itself
	return nil
}

// Shutdown stops the server, which Restart starts.
func (p natsProcess) Shutdown(context.Context) error {
	p.node.Shutdown(p.t) //nolint:contextcheck // the node limits the time itself
	return nil
}

func (p natsProcess) Restart(ctx context.Context) error {
	p.node.Restart(p.t) //nolint:contextcheck // the node limits the time itself
	return p.node.AwaitReady(ctx)
}

func (p natsProcess) Pause() error {
	p.node.Pause(p.t)
	return nil
}

func (p natsProcess) Resume() error {
	p.node.Resume(p.t)
	return nil
}

// A natsReader reads a stream from its beginning. It continues after restarts of the server.
type natsReader struct {
	js     jetstream.JetStream
	stream string
	read   atomic.Uint64 // sequence of the last message
}

func (r *natsReader) collect(t *testing.T, f Collect) rig.CatchUp {
	t.Helper()
	inBackground(t, func(ctx context.Context) { _ = r.consume(ctx, f) })
	return func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return err
		}
		for last := stream.CachedInfo().State.LastSeq; r.read.Load() < last; {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
}

// consume reads messages until the server fails.
func (r *natsReader) consume(ctx context.Context, f Collect) error {
	creating, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	consumer, err := r.js.CreateConsumer(creating, r.stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.read.Load() + 1, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	for err == nil && ctx.Err() == nil {
		var batch jetstream.MessageBatch
		if batch, err = consumer.FetchNoWait(256); err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := r.take(m, f); err != nil {
				return err
			}
		}
		err = batch.Error()
		time.Sleep(2 * time.Millisecond)
	}
	return err
}

func (r *natsReader) take(m jetstream.Msg, f Collect) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if want := r.read.Load() + 1; meta.Sequence.Stream != want {
		return fmt.Errorf("message %d, not %d", meta.Sequence.Stream, want)
	}
	f(Arrival{
		Number: int64(meta.Sequence.Stream), Key: []byte(m.Headers().Get("outbox_key")), Value: m.Data(), Header: m.Headers().Get, Stored: meta.Timestamp,
	})
	r.read.Store(meta.Sequence.Stream)
	return nil
}
