// Package inboxfranz handles the records of a franz-go consumer group once each, by an
// [inbox.Processor].
//
// One goroutine per assigned partition handles the partition's records in order. Fetched records wait
// in a queue for it. When the queue holds 1 MiB the partition is paused, so a partition has at most
// that and one more fetch (kgo.FetchMaxPartitionBytes) in memory.
//
// An offset is marked after the transaction in which its record was handled or put into the inbox.
// Only marked offsets are committed: every few seconds (kgo.AutoCommitInterval), before a partition
// is revoked, and when Run returns.
package inboxfranz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// Config is for what is unusual; the zero value serves records of the relay.
type Config struct {
	// Event makes an event of a record. Nil means the function Event. A record of which it makes
	// none, with an error, ends Run: it would stay unprocessed.
	Event func(*kgo.Record) (inbox.Event, error)
	// Log receives errors of fetching that may pass. Nil means nobody.
	Log *slog.Logger
}

// Event returns the event of a record as the relay makes it: id and type are headers. The error is an
// [*inbox.EventError].
func Event(r *kgo.Record) (inbox.Event, error) {
	e := inbox.Event{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Payload: r.Value,
	}
	headers := make([]inbox.Header, 0, len(r.Headers))
	for _, h := range r.Headers {
		headers = append(headers, inbox.Header{Name: h.Key, Value: h.Value})
	}
	return e, e.ParseRecord(headers)
}

// Run consumes as a member of a group, and runs p, until ctx is done; then it returns nil once the
// handlers that run have finished, or Config.Grace of p is over, and what was marked is committed.
//
// options are those of the client: at least kgo.SeedBrokers, kgo.ConsumerGroup and
// kgo.ConsumeTopics. Those about commits and rebalances are Run's own: AutoCommitMarks,
// BlockRebalanceOnPoll, OnPartitionsAssigned, OnPartitionsRevoked, OnPartitionsLost. Keep
// Config.Grace of p below kgo.RebalanceTimeout.
//
// It goes on through rebalances and while brokers cannot be reached. It returns an error for what
// p.Handle and p.Run cannot get over, and for what the brokers refuse for good.
func Run(ctx context.Context, p *inbox.Processor, cfg Config, options ...kgo.Opt) error {
	if cfg.Event == nil {
		cfg.Event = Event
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &consumer{p: p, cfg: cfg, ctx: ctx, fail: stop, workers: make(map[place]*worker)}
	defaults := []kgo.Opt{kgo.FetchMaxWait(fetchMaxWait)}
	client, err := kgo.NewClient(append(append(defaults, options...),
		kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost))...)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	retries := make(chan error, 1)
	go func() { // waited for below
		err := p.Run(ctx)
		stop(err)
		retries <- err
	}()
	err = c.poll(ctx, client)
	stop(err)
	c.end(context.WithoutCancel(ctx), client)
	retriesErr := <-retries
	if failure := c.failure(); failure != nil {
		err = failure
	}
	return errors.Join(err, retriesErr)
}

// fetchMaxWait bounds how long a partition that is assigned or resumed waits for the fetch in flight,
// which does not ask for it. The value is the default of Kafka's own consumer.
const fetchMaxWait = 500 * time.Millisecond

// A consumer hands the records of each partition to a worker of its own.
type consumer struct {
	p    *inbox.Processor
	cfg  Config
	ctx  context.Context //nolint:containedctx // of Run: the client calls back without it
	fail context.CancelCauseFunc

	mu      sync.Mutex
	workers map[place]*worker // of the assigned partitions
	err     error             // the first that a worker could not get over
}

type place struct {
	topic     string
	partition int32
}

// A worker handles the records of an assigned partition.
type worker struct {
	queue  *queue
	cancel context.CancelFunc
	done   chan struct{} // closed when it has stopped
}

// closeTimeout is for the last commit.
const closeTimeout = 5 * time.Second

func (c *consumer) poll(ctx context.Context, client *kgo.Client) error {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		var failure error
		fetches.EachError(func(topic string, partition int32, err error) {
			known, answered := errors.AsType[*kerr.Error](err)
			switch {
			case errors.Is(err, context.Canceled):
			case errors.Is(err, kgo.ErrClientClosed), answered && !known.Retriable:
				failure = fmt.Errorf("fetch %s[%d]: %w", topic, partition, err)
			default:
				c.cfg.Log.WarnContext(ctx, "fetching in trouble", slog.String("topic", topic), slog.Any("err", err))
			}
		})
		if failure != nil {
			client.AllowRebalance()
			return failure
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if len(f.Records) > 0 {
				c.dispatch(client, place{f.Topic, f.Partition}, f.Records)
			}
		})
		client.AllowRebalance() // until here no partition has come or gone since the poll
	}
	return nil
}

// dispatch hands records to the worker of their partition.
func (c *consumer) dispatch(client *kgo.Client, at place, records []*kgo.Record) {
	c.mu.Lock()
	w := c.workers[at]
	c.mu.Unlock()
	if w != nil { // else the partition is another member's
		w.queue.add(client, records)
	}
}

func (c *consumer) assigned(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	client.ResumeFetchPartitions(partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	each(partitions, func(at place) { //nolint:contextcheck // a worker lives longer than the call back
		ctx, cancel := context.WithCancel(c.ctx)
		w := &worker{queue: newQueue(at), cancel: cancel, done: make(chan struct{})}
		c.workers[at] = w
		go func() { // lost and end wait for it
			defer close(w.done)
			if err := c.work(ctx, client, w.queue); err != nil && ctx.Err() == nil {
				c.failed(err)
			}
		}()
	})
}

// work handles the records of a queue until ctx is done.
func (c *consumer) work(ctx context.Context, client *kgo.Client, q *queue) error {
	for {
		r := q.next(ctx)
		if r == nil {
			return nil
		}
		e, err := c.cfg.Event(r)
		if err == nil {
			err = c.p.Handle(ctx, e)
		}
		if err != nil {
			return err
		}
		client.MarkCommitRecords(r)
		q.remove(client)
	}
}

func (c *consumer) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.fail(err)
}

func (c *consumer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// revoked ends the workers of partitions that go to another member, and commits what they have done.
func (c *consumer) revoked(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
	c.lost(ctx, client, partitions)
	if err := client.CommitMarkedOffsets(ctx); err != nil && ctx.Err() == nil {
		c.cfg.Log.WarnContext(ctx, "offsets not committed, their records come again", slog.Any("err", err))
	}
}

// lost ends the workers of partitions that are another member's already.
func (c *consumer) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	c.mu.Lock()
	var ended []*worker
	each(partitions, func(at place) {
		if w := c.workers[at]; w != nil {
			ended = append(ended, w)
			delete(c.workers, at)
		}
	})
	c.mu.Unlock()
	wait(ended)
}

func each(partitions map[string][]int32, f func(place)) {
	for topic, numbers := range partitions {
		for _, n := range numbers {
			f(place{topic, n})
		}
	}
}

func wait(workers []*worker) {
	for _, w := range workers {
		w.cancel()
	}
	for _, w := range workers {
		<-w.done
	}
}

// end waits for the workers, commits what they have done and leaves the group.
func (c *consumer) end(ctx context.Context, client *kgo.Client) {
	c.mu.Lock()
	var all []*worker
	for _, w := range c.workers {
		all = append(all, w)
	}
	c.mu.Unlock()
	wait(all)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		c.cfg.Log.WarnContext(ctx, "offsets not committed, their records come again", slog.Any("err", err))
	}
	client.CloseAllowingRebalance()
}
