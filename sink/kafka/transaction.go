package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

var (
	errAborted error = kafkaError{sink.ErrAborted, "Kafka has aborted the transaction, or its outcome is unknown"}

	// errUncommitted is why Run ends if Commit was not called for the last records.
	errUncommitted = errors.New("no Commit has followed the last records")
)

// transactions makes a producer a [sink.TransactionalWriter]. Each transaction has a group of records:
//
//	collecting ── Commit ──▶ ended ── AddPartitionsToTxn ──▶ open ── every batch is stored, EndTxn ──▶ committed
//
// Groups are stored one after the other, so the first group may be open, and the last one collects records. All
// partitions of a group are added to the transaction at once, and then all of its batches are sent at once. If the
// window is full while a group collects records, the group is opened before it ends.
//
// A transaction is opened only when every partition has a leader, so that a missing topic or leader does not keep it
// open until transaction.timeout.ms. Nothing is repaired within a transaction: after any error that cannot be retried
// with the same sequences, the producer ends, and the next identity aborts the transaction.
//
// All fields are protected by producer.mu.
type transactions struct {
	topic       string // of the values
	key         []byte
	coordinator *coordinator
	wake        chan struct{} // cap 1; wakes runTransactions

	groups  []*group
	pressed bool       // Send waits for the window
	retry   retryState // of a request to the coordinator
	logged  bool       // a rejected request was logged; until the next success
	spare   []uint64   // memory for group.acked
}

// A group has the records of a transaction.
type group struct {
	number    uint64
	lastSeq   uint64 // of its records
	ended     bool   // Commit was called
	committed func() // of Commit

	begun   bool         // a request to begin its transaction was sent
	parts   []*partition // with batches of the group
	added   int          // how many of parts were added to the transaction
	batches int          // number of batches that are not stored
	acked   []uint64     // Seqs of the stored records
}

// valueSeq is set in the Seq of a value, which is a record of the producer like others. The rest is the number of its
// group.
const valueSeq = 1 << 63

func isValue(seq uint64) bool { return seq&valueSeq != 0 }

// NewTransactionalWriter implements [sink.TransactionalStore].
func (s *positionStore) NewTransactionalWriter(writer string, cfg sink.WriterConfig) sink.TransactionalWriter {
	p := s.sink.newProducer(cfg)
	if p.failure == nil && p.epochs == nil {
		p.failure, p.halted = fmt.Errorf("%w: a transactional producer has no identity", errFatal), true
	}
	p.txn = &transactions{
		topic: s.topic, key: s.keyOf(writer), wake: make(chan struct{}, 1), groups: []*group{{number: 1}},
		coordinator: &coordinator{client: s.sink, id: TransactionalID(s.name)},
	}
	return transactionalProducer{p}
}

// A transactionalProducer is a producer with transactions.
type transactionalProducer struct{ *producer }

// Commit implements [sink.TransactionalWriter].
func (p transactionalProducer) Commit(value []byte, committed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sendError() != nil {
		return
	}
	g := p.txn.last()
	r := sink.Record{Seq: valueSeq | g.number, Topic: p.txn.topic, Partition: 0, Key: p.txn.key, Value: value, Timestamp: time.Now()}
	s := shapeOf(&r)
	p.bufferRecord(&r, &s)
	g.ended, g.committed = true, committed
	p.txn.groups = append(p.txn.groups, &group{number: g.number + 1, acked: p.txn.spare[:0]})
	p.txn.spare = nil
	p.wakeSenders()
	signal(p.txn.wake)
}

// Abort implements [sink.TransactionalWriter]. A broker may still receive a produce request whose response the producer
// has not awaited. It rejects the records, because the transaction does not have their partition any more (KIP-890).
func (p transactionalProducer) Abort(ctx context.Context) error {
	p.mu.Lock()
	begun, id := p.txn.groups[0].begun, p.identity
	p.mu.Unlock()
	if !begun {
		return nil
	}
	defer p.txn.coordinator.disconnect()
	return p.client.retryTransient(ctx, func() error {
		err := p.txn.coordinator.endTransaction(ctx, id, false)
		if code, ok := errors.AsType[*codeError](err); ok && abortsTransaction(classify(code.code)) {
			return nil // it has ended
		}
		return err
	})
}

func (t *transactions) last() *group { return t.groups[len(t.groups)-1] }

// groupOf returns the group of a record, or nil without transactions. p.mu is held.
func (p *producer) groupOf(seq uint64) *group {
	if p.txn == nil {
		return nil
	}
	for _, g := range p.txn.groups {
		if isValue(seq) && g.number == seq&^valueSeq || !isValue(seq) && g.ended && seq <= g.lastSeq {
			return g
		}
	}
	return p.txn.last()
}

// noteSeq notes that Send has accepted a record. p.mu is held.
func (t *transactions) noteSeq(seq uint64) {
	g := t.last()
	g.lastSeq = max(g.lastSeq, seq)
}

// joinGroup adds a new batch of part to g. It reports whether g had none of part. p.mu is held.
func (g *group) joinGroup(part *partition) bool {
	g.batches++
	if part.newest == g || part.newest != nil && part.newest.number > g.number && slices.Contains(g.parts, part) {
		return false
	}
	g.parts = append(g.parts, part)
	if part.newest == nil || part.newest.number < g.number {
		part.newest = g
	}
	return true
}

// maySend reports whether the first batch of part may be sent: its transaction is open. p.mu is held.
func (p *producer) maySend(part *partition) bool {
	return p.txn == nil || part.added == part.queue[0].group
}

// collectAcked keeps the Seqs of stored records until their transaction is committed. p.mu is held.
func (t *transactions) collectAcked(seqs []uint64) {
	g := t.groups[0]
	for _, seq := range seqs {
		if !isValue(seq) {
			g.acked = append(g.acked, seq)
		}
	}
	signal(t.wake)
}

// uncommitted returns the number of stored records whose transaction is not committed. p.mu is held.
func (p *producer) uncommitted() int {
	n := 0
	if p.txn != nil {
		for _, g := range p.txn.groups {
			n += len(g.acked)
		}
	}
	return n
}

// isUnresolved reports whether records of g wait for their topic. If resized is false, it ignores topics that wait
// until their records are stored, to get more partitions. p.mu is held.
func (p *producer) isUnresolved(g *group, resized bool) bool {
	for t := range p.unresolved {
		if t.resizeTo > 0 && !resized {
			continue
		}
		for f := range t.unassigned.all {
			if p.groupOf(f.seq) == g {
				return true
			}
		}
	}
	return false
}

// A transactionStep is what runTransactions does next.
type transactionStep uint8

const (
	wait transactionStep = iota
	addPartitions
	endTransaction
)

// nextStep returns the next step for the first group. p.mu is held.
func (p *producer) nextStep() (transactionStep, *group) {
	g := p.txn.groups[0]
	switch {
	case p.halted || p.identityLost:
		return wait, nil
	case g.added == 0:
		if !g.ended && !p.txn.pressed || len(g.parts) == 0 || p.isUnresolved(g, false) {
			return wait, nil
		}
		for _, part := range g.parts {
			if part.state == awaitingLeader {
				return wait, nil
			}
		}
		return addPartitions, g
	case g.added < len(g.parts):
		return addPartitions, g
	case g.ended && g.batches == 0 && !p.isUnresolved(g, true):
		return endTransaction, g
	}
	return wait, nil
}

// runTransactions opens and commits transactions until ctx ends.
func (p *producer) runTransactions(ctx context.Context) {
	defer p.txn.coordinator.disconnect()
	for {
		p.mu.Lock()
		step, g := p.nextStep()
		p.mu.Unlock()
		switch step {
		case addPartitions:
			p.addPartitions(ctx, g)
		case endTransaction:
			p.commitGroup(ctx, g)
		case wait:
			select {
			case <-p.txn.wake:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// addPartitions adds new partitions of g to its transaction, and has their batches sent.
func (p *producer) addPartitions(ctx context.Context, g *group) {
	p.mu.Lock()
	fresh, id := g.parts[g.added:], p.identity
	g.begun = true
	p.mu.Unlock()
	named := make(map[string][]int32)
	for _, part := range fresh {
		named[part.topic.name] = append(named[part.topic.name], part.id)
	}
	if !p.askCoordinator(ctx, func() error { return p.txn.coordinator.addPartitions(ctx, id, named) }) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g.added += len(fresh)
	if g == p.txn.last() {
		p.txn.pressed = false
	}
	for _, part := range fresh {
		part.added = g
		if part.state == gated {
			p.makeReady(part)
		}
	}
	p.wakeSenders()
}

// commitGroup commits the transaction of g, and reports the outcomes of its records.
func (p *producer) commitGroup(ctx context.Context, g *group) {
	p.mu.Lock()
	id := p.identity
	p.requestsInFlight++
	p.mu.Unlock()
	ok := p.askCoordinator(ctx, func() error { return p.txn.coordinator.endTransaction(ctx, id, true) })
	if ok {
		p.reportOutcomes(g.acked, nil)
		g.committed()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestsInFlight--
	if ok {
		p.txn.groups = slices.Delete(p.txn.groups, 0, 1)
		p.txn.spare, g.acked = g.acked, nil
	}
	p.stopRunIfDone()
}

// askCoordinator calls ask until the coordinator has done what it asks for, and reports true. It reports false if ctx
// has ended or the producer must end.
func (p *producer) askCoordinator(ctx context.Context, ask func() error) bool {
	for {
		start := time.Now()
		err := ask()
		if err != nil && ctx.Err() != nil {
			return false
		}
		p.mu.Lock()
		delay, ended := p.noteCoordinator(err, start)
		p.mu.Unlock()
		if ended || err == nil {
			return err == nil
		}
		if !sleepUntil(ctx, time.Now().Add(delay)) {
			return false
		}
	}
}

// noteCoordinator notes the result of a request to the coordinator. It returns the time until the next attempt, or
// ended if the producer must end. p.mu is held.
func (p *producer) noteCoordinator(err error, start time.Time) (delay time.Duration, ended bool) {
	if err == nil {
		if p.txn.retry.attempts > 0 {
			p.txn.retry = retryState{}
			signal(p.wakeMonitor)
		}
		p.txn.logged = false
		return 0, false
	}
	attempts := p.txn.retry.attempts
	p.txn.retry.recordFailure(err, start, time.Now(), rand.Float64())
	if isConcurrent(err) {
		return concurrentRetry(attempts), false
	}
	code, answered := errors.AsType[*codeError](err)
	if !answered {
		p.client.counters.recordError(err.Error())
		return time.Until(p.txn.retry.retryAt), false
	}
	p.client.counters.recordError(err.Error())
	switch c := classify(code.code); {
	case abortsTransaction(c):
		p.stopSending(fmt.Errorf("%w: %w", errAborted, err))
		return 0, true
	case c == fatal:
		p.stopSending(fmt.Errorf("%w: %w", errFatal, err))
		return 0, true
	case c == accessDenied:
		p.logCoordinator(err)
		return time.Duration(rand.Float64() * float64(backoffDenied)), false
	}
	return time.Until(p.txn.retry.retryAt), false
}

// logCoordinator logs, once until the next success, a request that a person has to allow. p.mu is held.
func (p *producer) logCoordinator(err error) {
	if p.txn.logged {
		return
	}
	p.txn.logged = true
	p.logLater(func(ctx context.Context) {
		p.log.ErrorContext(ctx, "transaction coordinator rejects the request, retrying", slog.Any("err", err))
	})
}

// abortsTransaction reports whether the class of a response means that the transaction cannot be committed.
func abortsTransaction(c class) bool { return c == producerLost || c == fenced || c == aborted }

// transactionalID returns the transactional id, or nil without transactions.
func (p *producer) transactionalID() *string {
	if p.txn == nil {
		return nil
	}
	return &p.txn.coordinator.id
}

// countersOf returns the counters of a topic. Values of a position store are not counted.
func (p *producer) countersOf(topic string) *topicCounters {
	if p.txn != nil && topic == p.txn.topic {
		return new(topicCounters)
	}
	return p.client.counters.topic(topic)
}
