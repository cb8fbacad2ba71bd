package relay

import (
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// publisher is the part of a [sink.Writer] that a publication needs; a [Tail] has another one.
type publisher interface {
	Send(ctx context.Context, r *sink.Record) error
	Flush()
}

// A publication decodes what was read and hands every outbox row on, telling the tracker
// of each boundary in read order. It belongs to one goroutine.
type publication struct {
	decoder *decoder.Decoder
	router  *encode.Router
	tracker *checkpoint.Tracker
	writer  publisher
	flow    *flow
	cut     cut // the transaction whose first rows are not sent again

	deadLetters *deadLetters
	spans       *spans // nil: none
	maxSpan     int    // maxSpan; tests have a smaller one

	// published is what the publication sent when the session began. Deleting delivered
	// rows is housekeeping and ignored; a kind of change that comes although it was not
	// published means that somebody changed the publication.
	published *catalog.Publication

	updates  updates
	messages []string     // prefixes of the logical messages that are rows
	skip     *skip        // what the operator does not want; nil: nothing
	copy     *initialCopy // what comes before the stream; nil: nothing

	// describe is what the router asks the catalog by. Nil where it needs none.
	describe func(context.Context) encode.Describe

	// The relay has pg_logical_emit_message tell it, in the stream, which transactions have
	// been delivered by then.
	label string // names this relay among those that read the same database

	acked chan struct{} // holds one token when something was acknowledged since next looked
	tx    *openTx       // nil between transactions
	open  openTx
	rec   sink.Record
	stats flowCounts // what flow has not been told yet
}

// An openTx is the transaction being read.
type openTx struct {
	encode.Tx
	rows    int  // those seen so far that are or would be records
	skipped bool // nothing of it is sent
}

// maxSpan bounds how many records may lie behind the oldest unacknowledged one. The sink's
// window counts what is unacknowledged only: while one partition waits for its leader,
// others go on, and with them grow the tracker's memory and what a crash would repeat.
const maxSpan = 1 << 18

// run publishes batches until the channel is closed, or until stop is closed and no
// transaction is open, or ctx ends. It returns nil in the first two cases.
func (p *publication) run(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) error {
	defer p.flow.add(&p.stats)
	if p.describe != nil {
		p.router.SetDescribe(p.describe(ctx))
	}
	if p.copy != nil {
		if stopped, err := p.sendCopy(ctx, stop); stopped || err != nil {
			return err
		}
	}
	for {
		batch, err := p.next(ctx, stop, batches)
		if batch == nil {
			return err
		}
		stopped, err := p.batch(ctx, stop, batch)
		batch.Release()
		if stopped || err != nil {
			return err
		}
		p.flow.add(&p.stats)
	}
}

// next returns the next batch, nil at the end. When there is none at the moment, what is
// buffered goes out: the sink has no timer of its own.
func (p *publication) next(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) (*replication.Batch, error) {
	if p.tx != nil {
		stop = nil // the open transaction is read to its end
	}
	if stopped, err := p.settle(ctx, stop, p.maxSpan-1); stopped || err != nil {
		return nil, err
	}
	select {
	case batch := <-batches:
		return batch, nil
	default:
		p.writer.Flush()
	}
	select {
	case batch := <-batches:
		return batch, nil
	case <-stop:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// settle waits until no more than most records lie behind the oldest unacknowledged one,
// itself included, or until stop is closed.
func (p *publication) settle(ctx context.Context, stop <-chan struct{}, most int) (stopped bool, err error) {
	for p.tracker.Span() > most {
		p.writer.Flush()
		select {
		case <-p.acked:
		case <-stop:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// acknowledged tells a waiting settle that the tracker may have moved. Any goroutine.
func (p *publication) acknowledged() {
	signal(p.acked)
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// batch publishes one batch. It reports true when stop is closed and a transaction ended;
// what lies behind that comes again.
func (p *publication) batch(ctx context.Context, stop <-chan struct{}, batch *replication.Batch) (bool, error) {
	for _, m := range batch.Messages {
		switch m := m.(type) {
		case *replication.Keepalive:
			p.tracker.Keepalive(m.WALEnd)
			if p.tx == nil {
				p.skip.reached(m.WALEnd)
			}
			p.stats.received = max(p.stats.received, m.WALEnd)
		case *replication.WALData:
			ended, err := p.message(ctx, m)
			if err != nil {
				return false, err
			}
			if ended && isClosed(stop) {
				return true, nil
			}
		}
	}
	return false, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// message publishes one pgoutput message and reports whether it ended a transaction.
func (p *publication) message(ctx context.Context, m *replication.WALData) (ended bool, err error) {
	out, err := p.decoder.Decode(m.Start, m.Data)
	if err != nil {
		return false, err
	}
	if p.tx != nil && p.tx.skipped {
		return p.pass(out), nil
	}
	switch out := out.(type) {
	case *decoder.Begin:
		p.begin(out)
	case *decoder.Insert:
		return false, p.insert(ctx, out)
	case *decoder.Commit:
		p.commit(out)
		return true, nil
	case *decoder.Relation:
		return false, p.router.Check(out)
	case *decoder.Update:
		return false, p.update(ctx, out)
	case *decoder.Delete:
		if !p.published.Delete {
			return false, p.unexpected("DELETE", out.Relation)
		}
	case *decoder.Truncate:
		if !p.published.Truncate {
			return false, p.unexpected("TRUNCATE", out.Relations...)
		}
	case *decoder.LogicalMessage:
		return false, p.logicalMessage(ctx, out)
	case *decoder.Type, *decoder.Origin:
	}
	return false, nil
}

// pass takes a message of a transaction that is not to be sent, and reports whether it ended it.
func (p *publication) pass(out decoder.Output) (ended bool) {
	switch out := out.(type) {
	case *decoder.Insert:
		p.tx.rows++
	case *decoder.LogicalMessage:
		if p.isRow(out) {
			p.tx.rows++
		}
	case *decoder.Commit:
		if p.tx.rows > 0 {
			p.skip.passed()
		}
		p.commit(out)
		return true
	case *decoder.Begin, *decoder.Relation, *decoder.Type, *decoder.Origin, *decoder.Update, *decoder.Delete, *decoder.Truncate:
	}
	return false
}

func (p *publication) begin(b *decoder.Begin) {
	p.tracker.Begin(b.CommitLSN, b.CommitTime)
	p.open = openTx{
		Tx:      encode.Tx{CommitLSN: b.CommitLSN, CommitTime: b.CommitTime, Timestamp: b.CommitTime},
		skipped: p.skip.covers(b.CommitLSN),
	}
	// A broker may refuse a timestamp from the future (KIP-1030).
	if now := time.Now(); b.CommitTime.After(now) {
		p.open.Timestamp = now
	}
	p.tx = &p.open
}

func (p *publication) commit(c *decoder.Commit) {
	p.tracker.Commit(c.EndLSN)
	p.stats.transactions++
	p.stats.received = max(p.stats.received, c.EndLSN)
	if p.cut.commitLSN == c.CommitLSN {
		p.cut = cut{}
	}
	p.tx = nil
}

// rest is the cut the next session has to know of, once everything sent is acknowledged.
func (p *publication) rest() cut {
	commitLSN, acked, ok := p.tracker.Open()
	switch {
	case !ok: // the known one did not come again, or not to its end
		return p.cut
	case commitLSN == p.cut.commitLSN:
		return cut{commitLSN: commitLSN, acked: max(acked, p.cut.acked)}
	default:
		return cut{commitLSN: commitLSN, acked: acked}
	}
}
