// Package inboxfranz runs an [inbox.Processor] as a member of a consumer group, with franz-go.
//
//	err := inboxfranz.Run(ctx, processor, "notifications", []string{"outbox.event.order"}, kgo.SeedBrokers("kafka:9092"))
//
// # Memory
//
// One goroutine for each assigned partition handles the partition's records in order. Fetched records
// wait for it in a queue. When the queue holds 1 MiB, the partition is paused. So a partition has at
// most 1 MiB and one more fetch (kgo.FetchMaxPartitionBytes) in memory.
//
// # Offsets
//
// An offset is marked after the transaction in which its record was handled or stored in the inbox.
// Only marked offsets are committed: every few seconds (kgo.AutoCommitInterval), before a partition is
// revoked, and when Run returns. A new group starts at the beginning of the topics, unless you pass
// kgo.ConsumeResetOffset.
//
// # Rebalances
//
// When Run returns it leaves the group, and the other members get its partitions at once. If the
// process is killed, they get them after kgo.SessionTimeout, 45 s by default. To restart an instance
// without a rebalance, give each instance a name of its own with kgo.InstanceID (static membership):
// it keeps its partitions if it is back within the session timeout.
package inboxfranz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// Event returns the event of a record, without ID and Type. Those are set by [inbox.Processor.Handle],
// or by [inbox.Event.ParseHeaders].
func Event(r *kgo.Record) inbox.Event {
	e := inbox.Event{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Payload: r.Value,
		Headers: make([]inbox.Header, 0, len(r.Headers)),
	}
	for _, h := range r.Headers {
		e.Headers = append(e.Headers, inbox.Header{Name: h.Key, Value: h.Value})
	}
	return e
}

// Run consumes topics as a member of group, and runs p, until ctx is done. Then it waits until the
// running handlers have finished, or until Config.Grace of p is over, commits the marked offsets and
// returns nil.
//
// opts configure the client, at least with kgo.SeedBrokers. Run itself sets the group, the topics,
// kgo.AutoCommitMarks, kgo.BlockRebalanceOnPoll and the callbacks for assigned, revoked and lost
// partitions. Unless opts set it, kgo.FetchMaxWait is 500 ms. Keep Config.Grace of p below
// kgo.RebalanceTimeout.
//
// Run continues through rebalances, and while brokers are unavailable or a topic does not exist. It
// returns an error that a retry cannot fix: from p.Handle or p.Run, or from the brokers.
func Run(ctx context.Context, p *inbox.Processor, group string, topics []string, opts ...kgo.Opt) error {
	if group == "" {
		return errors.New("inboxfranz: the consumer group is empty")
	}
	if len(topics) == 0 {
		return errors.New("inboxfranz: there are no topics")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	log := &logger{log: p.Logger().With("group", group)}
	c := &consumer{p: p, log: log, ctx: ctx, fail: stop, workers: make(map[place]*worker)}
	all := []kgo.Opt{kgo.FetchMaxWait(fetchMaxWait)}
	all = append(all, opts...)
	all = append(all,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(), kgo.WithHooks(log),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost))
	client, err := kgo.NewClient(all...)
	if err != nil {
		return fmt.Errorf("inboxfranz: create the client: %w", err)
	}
	log.joining(ctx, topics)
	var background sync.WaitGroup
	var retriesErr error
	background.Go(func() {
		retriesErr = p.Run(ctx)
		stop(retriesErr)
	})
	background.Go(func() { log.watchTopics(ctx, client, topics) })
	err = c.poll(ctx, client)
	stop(err)
	c.leave(context.WithoutCancel(ctx), client)
	background.Wait()
	if failure := c.failure(); failure != nil {
		err = failure
	}
	return errors.Join(err, retriesErr)
}

// fetchMaxWait bounds how long a partition that is assigned or resumed waits for the fetch in flight,
// which does not ask for it. The value is the default of Kafka's own consumer.
const fetchMaxWait = 500 * time.Millisecond

// closeTimeout is for the last commit.
const closeTimeout = 5 * time.Second

// A consumer hands the records of each partition to a worker of its own.
type consumer struct {
	p    *inbox.Processor
	log  *logger
	ctx  context.Context //nolint:containedctx // of Run: the client calls back without it
	fail context.CancelCauseFunc

	mu      sync.Mutex
	workers map[place]*worker // of the assigned partitions
	err     error             // the first error that stopped a worker
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

func (c *consumer) poll(ctx context.Context, client *kgo.Client) error {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		failure := c.log.fetchErrors(ctx, fetches)
		if failure == nil {
			fetches.EachPartition(func(f kgo.FetchTopicPartition) {
				if len(f.Records) > 0 {
					c.log.fetched(ctx, place{f.Topic, f.Partition})
					c.dispatch(client, place{f.Topic, f.Partition}, f.Records)
				}
			})
		}
		client.AllowRebalance() // since the poll no partition was assigned or revoked
		if failure != nil {
			return failure
		}
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

func (c *consumer) assigned(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
	c.log.assigned(ctx, partitions)
	client.ResumeFetchPartitions(partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	each(partitions, func(at place) { //nolint:contextcheck // a worker lives longer than the callback
		ctx, cancel := context.WithCancel(c.ctx)
		w := &worker{queue: newQueue(at), cancel: cancel, done: make(chan struct{})}
		c.workers[at] = w
		go func() { // stopWorkers waits for it
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
		if err := c.p.Handle(ctx, Event(r)); err != nil {
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

// revoked stops the workers of partitions that go to another member, and commits their offsets.
func (c *consumer) revoked(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
	c.log.revoked(ctx, partitions)
	c.stopPartitions(partitions)
	c.commit(ctx, client)
}

// lost stops the workers of partitions that another member has already.
func (c *consumer) lost(ctx context.Context, _ *kgo.Client, partitions map[string][]int32) {
	c.log.lost(ctx, partitions)
	c.stopPartitions(partitions)
}

func (c *consumer) stopPartitions(partitions map[string][]int32) {
	c.mu.Lock()
	var stopped []*worker
	each(partitions, func(at place) {
		if w := c.workers[at]; w != nil {
			stopped = append(stopped, w)
			delete(c.workers, at)
		}
	})
	c.mu.Unlock()
	stopWorkers(stopped)
}

func each(partitions map[string][]int32, f func(place)) {
	for topic, numbers := range partitions {
		for _, n := range numbers {
			f(place{topic, n})
		}
	}
}

// stopWorkers cancels workers and waits for them.
func stopWorkers(workers []*worker) {
	for _, w := range workers {
		w.cancel()
	}
	for _, w := range workers {
		<-w.done
	}
}

func (c *consumer) commit(ctx context.Context, client *kgo.Client) {
	if err := client.CommitMarkedOffsets(ctx); err != nil && ctx.Err() == nil {
		c.log.commitFailed(ctx, err)
	}
}

// leave waits for the workers, commits their offsets and leaves the group.
func (c *consumer) leave(ctx context.Context, client *kgo.Client) {
	c.mu.Lock()
	var all []*worker
	for _, w := range c.workers {
		all = append(all, w)
	}
	c.mu.Unlock()
	stopWorkers(all)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	c.commit(ctx, client)
	client.CloseAllowingRebalance()
}
