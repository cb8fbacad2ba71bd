package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	waitTimeout = time.Minute // of waitFor and CatchUp if ctx has no deadline
	pollRecords = 10_000
)

// A Collector reads topics from the beginning and calls a function with every
// record. It continues after restarts of the brokers, and keeps no records.
type Collector struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{} // closed when the reading goroutine has returned and the client is closed

	mu       sync.Mutex
	count    int64
	next     map[partition]int64 // the offset after the last record that f was called with
	err      error               // the error that ended reading before Stop
	progress chan struct{}       // closed and replaced after each poll
}

type partition struct {
	topic string
	id    int32
}

// Collect starts a Collector that stops when the test ends. It calls f from one
// goroutine, for each partition in offset order. f may keep the record. The
// Collector waits for topics that do not exist yet.
func (c *Cluster) Collect(tb testing.TB, f func(*kgo.Record), topics ...string) *Collector {
	tb.Helper()
	collector := c.collect(tb, f, topics)
	tb.Cleanup(func() {
		collector.Stop()
		if collector.err != nil {
			tb.Errorf("collect %v: %v", topics, collector.err)
		}
	})
	return collector
}

func (c *Cluster) collect(tb testing.TB, f func(*kgo.Record), topics []string) *Collector {
	tb.Helper()
	client, err := kgo.NewClient(c.clientOpts(
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(250*time.Millisecond),
		kgo.FetchMaxBytes(8<<20),
		kgo.MaxConcurrentFetches(2),
		kgo.KeepControlRecords(), // CatchUp needs their offsets: the last record may be a transaction marker
	)...)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	collector := &Collector{
		client: client, cancel: cancel, done: make(chan struct{}),
		next: make(map[partition]int64), progress: make(chan struct{}),
	}
	go collector.read(ctx, f)
	return collector
}

func (c *Collector) read(ctx context.Context, f func(*kgo.Record)) {
	defer close(c.done)
	defer c.client.Close()
	for {
		fetches := c.client.PollRecords(ctx, pollRecords)
		if ctx.Err() != nil {
			return
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				f(r)
			}
		})
		if err := c.advance(fetches); err != nil {
			return
		}
	}
}

// advance records the offsets of the records that f has been called with.
func (c *Collector) advance(fetches kgo.Fetches) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		for _, r := range p.Records {
			if !r.Attrs.IsControl() {
				c.count++
			}
		}
		if n := len(p.Records); n > 0 {
			c.next[partition{p.Topic, p.Partition}] = p.Records[n-1].Offset + 1
		}
		if final(p.Err) && c.err == nil {
			c.err = fmt.Errorf("%s[%d]: %w", p.Topic, p.Partition, p.Err)
		}
	})
	close(c.progress)
	c.progress = make(chan struct{})
	return c.err
}

// final reports whether err is permanent, such as deleted records or denied access.
// An unreachable cluster is a temporary error.
func final(err error) bool {
	var lost *kgo.ErrDataLoss
	var answer *kerr.Error
	return errors.As(err, &lost) || errors.As(err, &answer) && !answer.Retriable
}

// Count returns the number of records that f has been called with.
func (c *Collector) Count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// waitFor blocks until cond returns true. It calls cond after each poll. It fails if
// reading fails or ctx is done. If ctx has no deadline, waitFor gives up after a minute.
func (c *Collector) waitFor(ctx context.Context, cond func() bool) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitTimeout)
		defer cancel()
	}
	for {
		c.mu.Lock()
		err, progress := c.err, c.progress
		c.mu.Unlock()
		switch {
		case cond():
			return nil
		case err != nil:
			return err
		}
		select {
		case <-progress:
		case <-c.done:
			if cond() {
				return nil
			}
			return errors.New("the collector has been stopped")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CatchUp blocks until f has been called with every record that is in the topics at
// the call. It fails if reading fails or ctx is done. If ctx has no deadline, CatchUp
// gives up after a minute. Topics that do not exist yet have no records.
func (c *Collector) CatchUp(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitTimeout)
		defer cancel()
	}
	admin := kadm.NewClient(c.client)
	topics := c.client.GetConsumeTopics()
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	until := make(map[partition]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok && end.Err == nil && start.Offset < end.Offset {
			until[partition{end.Topic, end.Partition}] = end.Offset
		}
	})
	return c.waitFor(ctx, func() bool { return c.reached(until) })
}

func (c *Collector) reached(until map[partition]int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, end := range until {
		if c.next[p] < end {
			return false
		}
	}
	return true
}

// Stop stops the Collector. It does not call f after Stop has returned.
func (c *Collector) Stop() {
	c.cancel()
	<-c.done
}
