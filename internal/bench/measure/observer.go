package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// An observer consumes all committed records that are written to the topics from now on, and passes them to a checker. It
// shares the machine with the contenders, so it is cheap: no group, large fetches, reused memory.
type observer struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string
	onRow  func(row int, at time.Time) // called for the first record of a row; may be nil

	received atomic.Int64  // rows
	first    chan struct{} // closed with the first record
	all      chan struct{} // closed with the last row
	lastAt   time.Time     // when the last row arrived; valid after done is closed

	stop context.CancelFunc
	done chan struct{} // closed when run has returned; other goroutines use the fields below after that
	err  error
	*checker
	next map[partition]int64 // offset after the last record
}

type partition struct {
	topic string
	id    int32
}

// Fetches are large, but limited, so that an observer that lags does not use much memory.
const (
	fetchBytes          = 16 << 20
	fetchPartitionBytes = 4 << 20
	pollRecords         = 20_000
)

// observe starts an observer. It returns when the first fetch was sent to a broker.
func (w *Workbench) observe(ctx context.Context, p plan, onRow func(row int, at time.Time)) (*observer, error) {
	offsets, err := w.admin.ListEndOffsets(ctx, w.topics...)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, kafkaError("find the ends of the topics", err)
	}
	fetching := &firstFetch{begun: make(chan struct{})}
	client, err := w.servers.newClient(ctx,
		kgo.ConsumePartitions(offsets.KOffsets()), kgo.WithHooks(fetching), kgo.WithPools(&recordPool{}), kgo.DisableFetchCRCValidation(),
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords()) // finish needs the offsets of control records
	if err != nil {
		return nil, err
	}
	select {
	case <-fetching.begun:
	case <-ctx.Done():
		client.Close()
		return nil, context.Cause(ctx)
	}
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &observer{
		client: client, admin: w.admin, topics: w.topics, onRow: onRow, checker: newChecker(p, w.prefix), stop: stop,
		first: make(chan struct{}), all: make(chan struct{}), done: make(chan struct{}), next: make(map[partition]int64),
	}
	offsets.Each(func(at kadm.ListedOffset) { o.next[partition{at.Topic, at.Partition}] = at.Offset })
	go func() { // close waits for it
		defer close(o.done)
		o.err = o.run(consuming)
	}()
	return o, nil
}

// run consumes until ctx is done.
func (o *observer) run(ctx context.Context) error {
	for {
		if err := o.poll(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// poll passes the next records to the checker. It returns when ctx is done.
func (o *observer) poll(ctx context.Context) error {
	fetches := o.client.PollRecords(ctx, pollRecords)
	now := time.Now()
	if ctx.Err() != nil && len(fetches.Errors()) > 0 {
		return nil
	}
	for _, e := range fetches.Errors() {
		return kafkaError("consume "+e.Topic, e.Err)
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if n := len(p.Records); n > 0 {
			o.next[partition{p.Topic, p.Partition}] = p.Records[n-1].Offset + 1
		}
		for _, r := range p.Records {
			if !r.Attrs.IsControl() {
				o.enter(r, now)
			}
			r.Recycle()
		}
	})
	return nil
}

func (o *observer) enter(r *kgo.Record, now time.Time) {
	select {
	case <-o.first:
	default:
		close(o.first)
	}
	where := delivery.Coordinates{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	if row := o.take(where, r.Key, r.Value); row >= 0 {
		if o.onRow != nil {
			o.onRow(row, now)
		}
		o.lastAt = now
		if o.received.Add(1) == int64(o.rows) {
			close(o.all)
		}
	}
}

// catchUpTimeout limits reading the last records of a contender.
const catchUpTimeout = 30 * time.Second

// finish reads to the ends of the topics, stops the observer and returns the verdict. The contender must have
// ended.
func (o *observer) finish(ctx context.Context) (Verdict, error) {
	defer o.close()
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	ends, err := o.admin.ListEndOffsets(ctx, o.topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return Verdict{}, kafkaError("find the ends of the topics", err)
	}
	o.stop()
	<-o.done
	for o.err == nil && o.behind(ends) {
		o.err = o.poll(ctx)
		if ctx.Err() != nil {
			return Verdict{}, fmt.Errorf("consume to the ends of the topics: %w", context.Cause(ctx))
		}
	}
	return o.verdict(), o.err
}

// behind reports whether there are unread records.
func (o *observer) behind(ends kadm.ListedOffsets) bool {
	behind := false
	ends.Each(func(end kadm.ListedOffset) {
		behind = behind || o.next[partition{end.Topic, end.Partition}] < end.Offset
	})
	return behind
}

// close stops the observer. It may be called twice.
func (o *observer) close() {
	o.stop()
	<-o.done
	o.client.Close()
}

// firstFetch is a hook that detects the first fetch request.
type firstFetch struct {
	once  sync.Once
	begun chan struct{}
}

var _ kgo.HookBrokerWrite = (*firstFetch)(nil)

// OnBrokerWrite is called with every request.
func (f *firstFetch) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Fetch) && err == nil {
		f.once.Do(func() { close(f.begun) })
	}
}

// A recordPool reuses the memory of records.
type recordPool struct{ records sync.Pool }

var _ kgo.PoolRecords = (*recordPool)(nil)

// GetRecords returns memory for n records.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:n]
	}
	return make([]kgo.Record, n)
}

// PutRecords returns the memory of records.
func (p *recordPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }
