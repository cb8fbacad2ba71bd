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
	// An idle sender is woken when this much has gathered since its last request, or at
	// Flush. There is no linger timer: a request that is out is what others gather behind.
	flushBytes   = 64 << 10
	flushRecords = 256
)

// errEnded is what Send returns after Run has returned without an error of its own.
var errEnded = errors.New("producer has ended")

// A producer is the [sink.Writer] of a cluster.
type producer struct {
	client *client
	cfg    sink.WriterConfig
	log    *slog.Logger
	attend chan struct{} // cap 1: Run's goroutine has something to do
	eased  chan struct{} // cap 1: something in trouble may have come right
	space  chan struct{} // cap 1: Send may look again
	ended  chan struct{} // closed when Run returns

	// doneMu serialises calls of done. It is never held together with mu.
	doneMu sync.Mutex
	done   func(seqs []uint64, err error)

	mu       sync.Mutex
	topics   map[string]*topic
	senders  map[senderKey]*sender
	identity identity
	proven   bool // a batch was accepted under identity

	records int // taken by Send, without an outcome
	payload int // their bytes, as the user counts
	memory  int // and what they occupy

	unanswered int  // requests on the wire
	closed     bool // CloseSend was called

	// gated keeps senders from sending until there is a new identity.
	gated      bool
	idTrouble  trouble
	idRequired bool // epochs do not do: it has to be another producer id

	// failure ends the producer. If halted, nothing more is sent; else what was sent
	// before the record at fault still is.
	failure  error
	halted   bool
	cut      uint64              // the sequence at fault; what comes after it is dropped
	rejected []*sink.RecordError // to be reported once mu is free

	holding map[*topic]struct{}     // topics with hold
	trouble map[*partition]struct{} // partitions with attempts
	spare   []*batch                // for reuse
	notes   []func(context.Context) // log lines waiting for Run's goroutine

	silences map[int32]*silence // by node
	stalled  time.Time          // since when, if it has been logged

	finish func() // ends Run; nil before
}

type senderKey struct {
	node  int32
	index int
}

func newProducer(c *client, cfg sink.WriterConfig) *producer {
	return &producer{
		client:   c,
		cfg:      cfg,
		log:      c.log,
		attend:   make(chan struct{}, 1),
		eased:    make(chan struct{}, 1),
		space:    make(chan struct{}, 1),
		ended:    make(chan struct{}),
		topics:   make(map[string]*topic),
		senders:  make(map[senderKey]*sender),
		holding:  make(map[*topic]struct{}),
		trouble:  make(map[*partition]struct{}),
		silences: make(map[int32]*silence),
		cut:      math.MaxUint64,
	}
}

// Send implements [sink.Writer]. It copies r into the open batch of its partition.
func (p *producer) Send(ctx context.Context, r *sink.Record) error {
	s := shapeOf(r)
	p.mu.Lock()
	for {
		if err := p.over(); err != nil {
			p.mu.Unlock()
			return err
		}
		if p.admits(&s) {
			break
		}
		p.flush()
		p.mu.Unlock()
		select {
		case <-p.space:
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.mu.Lock()
	}
	p.accept(r, &s)
	p.mu.Unlock()
	return nil
}

// over returns why nothing more is accepted, or nil. p.mu is held.
func (p *producer) over() error {
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

// admits reports whether one more record of this shape fits the window. An empty window
// takes any record. p.mu is held.
func (p *producer) admits(s *shape) bool {
	return p.records == 0 ||
		p.records < p.client.cfg.WindowRecords && p.memory+s.frame() <= p.client.cfg.WindowBytes
}

// accept puts r where it has to wait. p.mu is held.
func (p *producer) accept(r *sink.Record, s *shape) {
	ms := millis(r.Timestamp)
	t := p.topics[r.Topic]
	if t == nil {
		t = p.introduce(r.Topic)
	}
	p.records++
	p.payload += s.payload()
	if !t.hold && !t.fits(s, r.Partition, p.compresses()) {
		p.holdFor(t)
		t.recheck = true
	}
	if t.hold {
		before := t.held.held
		putFrame(t.held.room(p.client.pool, s), r, ms)
		p.memory += t.held.held - before
		return
	}
	part := p.choose(t, r.Key, r.Partition, s, ms)
	putFrame(p.enqueue(part, s, ms), r, ms)
}

// introduce begins with a topic; Run's goroutine looks up its partitions. p.mu is held.
func (p *producer) introduce(name string) *topic {
	t := &topic{name: name, number: len(p.topics), counters: p.client.counters.topic(name)}
	p.topics[name] = t
	p.holdFor(t)
	return t
}

// holdFor diverts t's records until Run's goroutine has seen to it. p.mu is held.
func (p *producer) holdFor(t *topic) {
	t.hold = true
	p.holding[t] = struct{}{}
	signal(p.attend)
}

// fits reports whether what is known of t allows the record. With compression, a record over
// the limit may still be small enough, and so it may if the limit is a guess: then the broker
// decides.
func (t *topic) fits(s *shape, partition int32, compressed bool) bool {
	if len(t.parts) == 0 || partition != sink.AnyPartition && (partition < 0 || int(partition) >= len(t.parts)) {
		return false
	}
	return compressed || t.guessed || batchOverhead+s.wire(0, 0) <= t.limit
}

func (p *producer) compresses() bool { return p.client.codec != 0 }

// choose returns the partition of a record. Records without a key go where a batch is open,
// or else to the next partition that is not in trouble. p.mu is held.
func (p *producer) choose(t *topic, key []byte, partition int32, s *shape, ms int64) *partition {
	if partition != sink.AnyPartition {
		return t.parts[partition]
	}
	n := int32(len(t.parts))
	if key != nil {
		return t.parts[p.client.partitioner(key, n)]
	}
	if part := t.parts[t.sticky]; part.attempts == 0 && part.open(s, ms) != nil {
		return part
	}
	for range n {
		t.sticky = (t.sticky + 1) % n
		if t.parts[t.sticky].attempts == 0 {
			break
		}
	}
	return t.parts[t.sticky]
}

// enqueue makes room for a record at the end of part's queue and returns the memory for its
// frame. p.mu is held.
func (p *producer) enqueue(part *partition, s *shape, ms int64) []byte {
	b := part.open(s, ms)
	if b == nil {
		b = p.newBatch()
		part.queue = append(part.queue, b)
	}
	before := b.held
	dst := b.add(p.client.pool, s, ms)
	p.memory += b.held - before
	part.topic.unacked++
	if part.state == idle {
		p.makeReady(part)
	}
	if sd := part.sender; sd != nil {
		sd.gathered(len(dst))
	}
	return dst
}

// makeReady puts part on the list of its sender, or has it placed first. p.mu is held.
func (p *producer) makeReady(part *partition) {
	if part.sender == nil {
		part.due = time.Time{}
		p.setTroubled(part)
		return
	}
	part.state = ready
	part.sender.list.push(part)
}

// setTroubled hands part over to Run's goroutine. p.mu is held.
func (p *producer) setTroubled(part *partition) {
	part.state = troubled
	p.trouble[part] = struct{}{}
	signal(p.attend)
}

// Flush implements [sink.Writer].
func (p *producer) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
}

// fenced returns why the fence has closed, after ending the producer with it, or nil while it is
// open. p.mu is held.
func (p *producer) fenced() error {
	if p.cfg.Fence == nil {
		return nil
	}
	err := p.cfg.Fence()
	if err != nil {
		p.halt(err)
	}
	return err
}

// askFence is fenced for who does not hold p.mu: while a request is being written.
func (p *producer) askFence() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fenced()
}

// flush wakes every sender that has something to send and nothing on the wire. p.mu is held.
func (p *producer) flush() {
	for _, s := range p.senders {
		if !s.busy && !s.list.empty() {
			signal(s.wake)
		}
	}
}

// CloseSend implements [sink.Writer].
func (p *producer) CloseSend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.flush()
	p.finishIfDone()
}

// finishIfDone ends Run when it has nothing left to wait for. p.mu is held.
func (p *producer) finishIfDone() {
	if p.finish == nil {
		return
	}
	drained := p.records == 0 && (p.closed || p.failure != nil)
	if drained || p.halted && p.unanswered == 0 {
		p.finish()
	}
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
