package kafka

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// An idle sender wakes up when this many records or bytes were buffered since its last request, or
	// at Flush. There is no linger timer; records collect while a request is in flight.
	flushBytes   = 64 << 10
	flushRecords = 256
)

// errEnded is what Send returns after Run has returned without an error of its own.
var errEnded = errors.New("producer has ended")

// A producer is the [sink.Writer] of a cluster.
type producer struct {
	client      *client
	cfg         sink.WriterConfig
	log         *slog.Logger
	wakeControl chan struct{} // cap 1; wakes runControl
	wakeMonitor chan struct{} // cap 1; wakes monitorBrokers, because a silence or a stall may have ended
	windowFreed chan struct{} // cap 1; wakes Send
	ended       chan struct{} // closed when Run returns

	// doneMu serializes calls of done. It is never held together with mu.
	doneMu sync.Mutex
	done   func(seqs []uint64, err error)

	mu               sync.Mutex
	topics           map[string]*topic
	senders          map[senderKey]*sender
	identity         identity
	identityAccepted bool // a broker has accepted a batch under identity

	inFlightRecords int       // accepted by Send, without an outcome
	inFlightBytes   int       // size of their keys, values and headers
	window          int       // what client.pool may have in use for their frames
	partitions      int       // of all topics
	reportedMemory  int       // by the last call of MemoryChanged
	windowFullAt    time.Time // when a record last did not fit

	requestsInFlight int  // requests on the wire
	sendClosed       bool // CloseSend was called

	// While identityLost is set, senders send nothing: the producer needs a new identity.
	identityLost  bool
	identityRetry retryState
	newIDRequired bool // a new epoch is not enough, the producer needs another producer id

	errands map[string]time.Time // what brokers are asked for beside the senders, and since when

	ownership     *ownership              // of WriterConfig.Owner; nil: none
	names         namer                   // of rows, for an ownership
	wakeOwner     chan struct{}           // cap 1; wakes runOwner
	lastContested uint64                  // no record with a higher sequence is contested
	contested     int                     // number of contested records that have no outcome and wait to be sent or recognised
	contestedFrom time.Time               // the lowest timestamp of contested records of streamed rows; zero: there is none
	lastCopied    uint64                  // no contested record with a higher sequence is that of a copied row
	unresumed     map[*partition]struct{} // partitions to resume
	gatheredAt    time.Time               // when to resume them; zero: not set yet
	recognising   bool                    // a partition has had tailNames

	// failure ends the producer. If halted is set, nothing more is sent; otherwise the records up to
	// lastSeq are still sent.
	failure  error
	halted   bool
	lastSeq  uint64              // records with a higher sequence are dropped
	rejected []*sink.RecordError // unlockAndReport reports them

	unresolved  map[*topic]struct{}     // topics with resolving set
	retrying    map[*partition]struct{} // partitions that await a leader or have failed attempts
	freeBatches []*batch                // for reuse
	logLines    []func(context.Context) // written by Run's goroutine

	silences    map[int32]*silence // by node
	loggedStall time.Time          // start of the logged stall; zero: none

	missingLoggedAt time.Time // see mayLogMissing

	// stopRun ends Run with errFinished or with the error of a closed fence. It is nil before Run has
	// started.
	stopRun context.CancelCauseFunc
}

type senderKey struct {
	node  int32
	index int
}

func newProducer(c *client, cfg sink.WriterConfig) *producer {
	var o *ownership
	if of, ok := cfg.Owner.(*owner); ok {
		o = of.ownership
	}
	return &producer{
		client:      c,
		ownership:   o,
		names:       newNamer(&cfg),
		wakeOwner:   make(chan struct{}, 1),
		unresumed:   make(map[*partition]struct{}),
		cfg:         cfg,
		log:         c.log,
		wakeControl: make(chan struct{}, 1),
		wakeMonitor: make(chan struct{}, 1), errands: make(map[string]time.Time),
		windowFreed: make(chan struct{}, 1),
		ended:       make(chan struct{}),
		topics:      make(map[string]*topic),
		senders:     make(map[senderKey]*sender),
		unresolved:  make(map[*topic]struct{}),
		retrying:    make(map[*partition]struct{}),
		silences:    make(map[int32]*silence),
		lastSeq:     math.MaxUint64,
	}
}

// Send implements [sink.Writer]. It copies r into the open batch of its partition.
func (p *producer) Send(ctx context.Context, r *sink.Record) error {
	s := shapeOf(r)
	p.mu.Lock()
	for {
		if err := p.sendError(); err != nil {
			p.mu.Unlock()
			return err
		}
		if p.fitsWindow(&s) {
			break
		}
		p.wakeSenders()
		p.mu.Unlock()
		select {
		case <-p.windowFreed:
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.mu.Lock()
	}
	if r.Contested && p.ownership != nil && !p.ownership.first {
		p.lastContested = r.Seq
		p.contested++
		switch {
		case r.Copied:
			p.lastCopied = r.Seq
		case p.contestedFrom.IsZero() || r.Timestamp.Before(p.contestedFrom):
			p.contestedFrom = r.Timestamp
		}
	}
	if p.cfg.Divert != nil {
		r, s = p.divertRecord(r, s)
	}
	p.bufferRecord(r, &s)
	p.mu.Unlock()
	return nil
}

// sendError returns why Send accepts no more records, or nil. p.mu is held.
func (p *producer) sendError() error {
	if p.failure != nil {
		return p.failure
	}
	select {
	case <-p.ended:
		return errEnded
	default:
		return nil
	}
}

// bufferRecord copies r into the open batch of its partition, or into its topic's unassigned
// frames. p.mu is held.
func (p *producer) bufferRecord(r *sink.Record, s *shape) {
	ms := millis(r.Timestamp)
	t := p.topics[r.Topic]
	if t == nil {
		t = p.addTopic(r.Topic)
	}
	p.inFlightRecords++
	p.inFlightBytes += s.payloadSize()
	partition := partitionOf(r)
	if !t.resolving && !t.acceptsRecord(s, partition, p.compresses()) {
		p.resolveTopic(t)
		t.metadataStale = true
	}
	if t.resolving {
		putFrame(t.unassigned.reserve(p.client.pool, s), r, ms)
		return
	}
	part := p.choosePartition(t, r.Key, partition, s, ms)
	putFrame(p.reserveRecord(part, s, ms), r, ms)
}

// addTopic adds a topic, whose partitions the goroutine of Run then looks up. p.mu is held.
func (p *producer) addTopic(name string) *topic {
	t := &topic{name: name, index: len(p.topics)}
	p.topics[name] = t
	p.resolveTopic(t)
	return t
}

// resolveTopic makes the goroutine of Run look up t. Until then, the records of t stay unassigned. p.mu is held.
func (p *producer) resolveTopic(t *topic) {
	t.resolving = true
	p.unresolved[t] = struct{}{}
	signal(p.wakeControl)
}

// acceptsRecord reports whether t has the partition of the record and the record is within the limit of t. If
// compression may shrink the record, or if the limit is a guess, the broker decides.
func (t *topic) acceptsRecord(s *shape, partition int32, compressed bool) bool {
	if !t.hasPartition(partition) {
		return false
	}
	return compressed || t.limitGuessed || batchOverhead+s.wireSize(0, 0) <= t.limit
}

// hasPartition reports whether t has the partition, or any if it is negative.
func (t *topic) hasPartition(partition int32) bool {
	return len(t.parts) > 0 && int(partition) < len(t.parts)
}

func (p *producer) compresses() bool { return p.client.codec != 0 }

// choosePartition returns the partition of a record. A record without key goes to the partition that partitionOf prefers. If it
// prefers none, the record goes to the partition with an open batch, otherwise to the next one without failed attempts. p.mu is
// held.
func (p *producer) choosePartition(t *topic, key []byte, partition int32, s *shape, ms int64) *partition {
	if partition >= 0 {
		return t.parts[partition]
	}
	n := int32(len(t.parts))
	if key != nil {
		return t.parts[p.client.partitioner(key, n)]
	}
	if partition < sink.AnyPartition {
		return t.parts[(sink.AnyPartition-1-partition)%n]
	}
	if part := t.parts[t.stickyPartition]; part.attempts == 0 && part.openBatch(s, ms) != nil {
		return part
	}
	for range n {
		t.stickyPartition = (t.stickyPartition + 1) % n
		if t.parts[t.stickyPartition].attempts == 0 {
			break
		}
	}
	return t.parts[t.stickyPartition]
}

// reserveRecord adds a record to the end of part's queue and returns the memory for its frame.
// p.mu is held.
func (p *producer) reserveRecord(part *partition, s *shape, ms int64) []byte {
	b := part.openBatch(s, ms)
	if b == nil {
		b = p.newBatch()
		part.queue = append(part.queue, b)
	}
	dst := b.reserveRecord(p.client.pool, s, ms)
	part.topic.unacked++
	if part.state == idle {
		p.makeReady(part)
	}
	if sd := part.sender; sd != nil {
		sd.countGathered(len(dst))
	}
	return dst
}

// makeReady adds part to the queue of its sender. If it has none yet, the goroutine of Run first finds its leader.
// p.mu is held.
func (p *producer) makeReady(part *partition) {
	if part.sender == nil {
		part.retryAt = time.Time{}
		p.findLeader(part)
		return
	}
	if p.mustResume(part) {
		p.awaitResume(part)
		return
	}
	part.state = ready
	part.sender.queue.push(part)
}

// findLeader makes the goroutine of Run find the leader of part, at part.retryAt. p.mu is held.
func (p *producer) findLeader(part *partition) {
	part.state = awaitingLeader
	p.retrying[part] = struct{}{}
	signal(p.wakeControl)
}

// Flush implements [sink.Writer].
func (p *producer) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeSenders()
	p.stopRunIfDone()
}

// checkFence returns nil while the fence is open, otherwise its error.
func (p *producer) checkFence() error {
	if p.cfg.Fence == nil {
		return nil
	}
	return p.cfg.Fence()
}

// wakeSenders wakes every sender that has records and no request in flight. p.mu is held.
func (p *producer) wakeSenders() {
	for _, s := range p.senders {
		if !s.busy && !s.queue.empty() {
			signal(s.wake)
		}
	}
}

// CloseSend implements [sink.Writer].
func (p *producer) CloseSend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendClosed = true
	p.wakeSenders()
	p.stopRunIfDone()
}

// stopRunIfDone ends Run if nothing is left to wait for. p.mu is held.
func (p *producer) stopRunIfDone() {
	if p.stopRun == nil {
		return
	}
	switch {
	case p.inFlightRecords == 0 && (p.sendClosed || p.failure != nil), p.requestsInFlight == 0 && p.halted:
		p.stopRun(errFinished)
	case p.requestsInFlight == 0 && p.sendClosed:
		if err := p.checkFence(); err != nil {
			p.stopRun(err)
		}
	}
}

// signal puts a token into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
