package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A recordWriter is the part of a [sink.Writer] that a pump needs. A [Tail] has its own.
type recordWriter interface {
	Send(ctx context.Context, r *sink.Record) error
	Flush()
}

// A pump moves batches from the stream to the writer: it decodes them, sends each outbox row as a
// record, and reports transactions and keepalives to the Tracker in the order in which it reads them. It
// does not resend rows that a later session reads again, because the Tracker knows which rows have a
// record. One goroutine at a time uses a pump, except for signalAck.
type pump struct {
	decoder *decoder.Decoder
	router  *encode.Router
	tracker *checkpoint.Tracker
	writer  recordWriter
	flow    *flow

	deadLetters *deadLetters
	spans       *spans // nil: none
	maxSpan     int    // the constant maxSpan; smaller in tests

	// published is the publication as of the start of the session. The pump ignores published DELETEs
	// and TRUNCATEs, which remove delivered rows. If they arrive although they were not published,
	// somebody has altered the publication.
	published *catalog.Publication

	// An earlier owner of the slot may have sent the transactions before horizon: the end of the WAL when this one had
	// acquired it.
	horizon pglogrepl.LSN

	neighbours *neighbours
	lookUp     func(context.Context) error                         // reads the catalog into neighbours; nil: only what neighbours knows
	readPast   func(context.Context, uint32) (catalog.Past, error) // of a neighbour; nil: neighbours were never anything else
	relation   *decoder.Relation                                   // the relation that relays was called for last
	relayed    bool                                                // its rows are relayed
	until      pglogrepl.LSN                                       // its rows are relayed if they were committed before

	updates  updatePolicy
	messages []string   // prefixes of the logical messages that have rows
	skip     *skip      // transactions that the operator wants to skip; nil: none
	copy     *tableCopy // pending; to be sent before the stream; nil: none

	copying atomic.Bool // copy is pending; read by any goroutine

	// describe returns the function with which the router reads the catalog. Nil: the router does not
	// need the catalog.
	describe func(context.Context) encode.Describe

	turn chan struct{} // cap 1; held while rows are sent, so that a release can pause the pump; nil: none pauses it

	nonce string // [Relay.nonce]; messages with a snapshot start with it

	ackSignal chan struct{} // cap 1; records were acknowledged
	tx        *openTx       // nil between transactions
	open      openTx
	raw       []byte // the message being handled
	record    sink.Record
	counts    flowCounts // not added to flow yet
}

// An openTx is the transaction being read.
type openTx struct {
	encode.Tx
	rows    int  // rows read so far
	skipped bool // its rows are not sent
	copied  bool // its rows are read from tables
}

// forRecord returns what a record gets of the transaction. A copied row has no position.
func (tx *openTx) forRecord() encode.Tx {
	if tx.copied {
		return encode.Tx{CommitTime: tx.CommitTime, Timestamp: tx.Timestamp}
	}
	return tx.Tx
}

// position returns the position of a row in the stream, which a copied row does not have.
func (tx *openTx) position(index int) sink.Position {
	if tx.copied {
		return sink.Position{}
	}
	return sink.Position{CommitLSN: uint64(tx.CommitLSN), Index: index}
}

// maxSpan limits the number of records from the oldest unacknowledged one to the newest. The sink's
// window is no such limit, because it counts unacknowledged records only: while one partition waits
// for its leader, the others continue, and the Tracker's memory and the number of duplicates after a
// crash would grow. In the same way, maxSpanBytes limits what the next session reads again.
const (
	maxSpan      = 1 << 18
	maxSpanBytes = 256 << 20
)

// run sends the pending copy, then the batches of a session. It returns nil when batches is closed, or
// when stop is closed and no transaction is open. If ctx ends, it returns the cause.
func (p *pump) run(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) error {
	defer p.flow.addCounts(&p.counts)
	p.decoder, p.tx, p.relation = decoder.New(), nil, nil
	p.tracker.Reread()
	if p.describe != nil {
		p.router.SetDescribe(p.describe(ctx))
	}
	if p.copy != nil {
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		stopped, err := p.sendCopy(ctx, stop)
		p.endTurn()
		if stopped || err != nil {
			return err
		}
	}
	for {
		batch, err := p.nextBatch(ctx, stop, batches)
		if batch == nil {
			return err
		}
		if err := p.takeTurn(ctx); err != nil {
			batch.Release()
			return err
		}
		stopped, err := p.pumpBatch(ctx, stop, batch)
		p.endTurn()
		batch.Release()
		if stopped || err != nil {
			return err
		}
		p.flow.addCounts(&p.counts)
	}
}

// takeTurn waits until no release pauses the pump.
func (p *pump) takeTurn(ctx context.Context) error {
	if p.turn == nil {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endTurn lets a release pause the pump.
func (p *pump) endTurn() {
	if p.turn != nil {
		<-p.turn
	}
}

// nextBatch returns the next batch, or nil at the end. If no batch is waiting, it flushes the writer,
// which has no timer of its own.
func (p *pump) nextBatch(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) (*replication.Batch, error) {
	if p.tx != nil {
		stop = nil // the pump stops at a transaction boundary
	}
	if stopped, err := p.waitForAcks(ctx, stop, p.maxSpan-1); stopped || err != nil {
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

// waitForAcks blocks until the Tracker's span is at most most records and maxSpanBytes. stopped is true if
// stop was closed first.
func (p *pump) waitForAcks(ctx context.Context, stop <-chan struct{}, most int) (stopped bool, err error) {
	defer p.deadLetters.holdUp.Store(false)
	for p.tracker.Span() > most || p.tracker.SpanBytes() > maxSpanBytes {
		p.deadLetters.holdUp.Store(true)
		p.writer.Flush()
		select {
		case <-p.ackSignal:
		case <-stop:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// signalAck wakes waitForAcks. It may be called from any goroutine.
func (p *pump) signalAck() { signal(p.ackSignal) }

// signal puts a token into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pumpBatch sends the rows of one batch. It reports true if stop is closed and a transaction has
// ended. The rest of the batch is then not handled; the next session reads it again.
func (p *pump) pumpBatch(ctx context.Context, stop <-chan struct{}, batch *replication.Batch) (bool, error) {
	for _, m := range batch.Messages {
		switch m := m.(type) {
		case *replication.Keepalive:
			p.tracker.Keepalive(m.WALEnd)
			if p.tx == nil {
				p.skip.notePosition(m.WALEnd)
			}
			p.counts.received = max(p.counts.received, m.WALEnd)
		case *replication.RowError:
			return false, m
		case *replication.WALData:
			ended, err := p.pumpMessage(ctx, m)
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

// pumpMessage handles one pgoutput message and reports whether it ended a transaction.
func (p *pump) pumpMessage(ctx context.Context, m *replication.WALData) (ended bool, err error) {
	p.raw = m.Data
	out, err := p.decoder.Decode(m.Start, m.Data)
	if err != nil {
		return false, err
	}
	if rel := tableOf(out); rel != nil {
		if relayed, err := p.relays(ctx, rel); !relayed || err != nil {
			return false, err
		}
	}
	if p.tx != nil && p.tx.skipped {
		return p.skipMessage(out)
	}
	switch out := out.(type) {
	case *decoder.Begin:
		return false, p.beginTransaction(out)
	case *decoder.Insert:
		return false, p.sendInsert(ctx, out)
	case *decoder.Commit:
		return true, p.commitTransaction(out)
	case *decoder.Relation:
		return false, p.router.Check(out)
	case *decoder.Update:
		return false, p.sendUpdate(ctx, out)
	case *decoder.Delete:
		if !p.published.Delete {
			return false, p.unexpectedChange("DELETE", out.Relation)
		}
	case *decoder.Truncate:
		return false, p.checkTruncate(ctx, out)
	case *decoder.LogicalMessage:
		return false, p.handleLogicalMessage(ctx, out)
	case *decoder.Type, *decoder.Origin:
	}
	return false, nil
}

// checkTruncate returns an error for a TRUNCATE of an outbox table that was not published when the session started.
func (p *pump) checkTruncate(ctx context.Context, out *decoder.Truncate) error {
	for _, rel := range out.Relations {
		relayed, err := p.relays(ctx, rel)
		if err == nil && relayed && !p.published.Truncate {
			err = p.unexpectedChange("TRUNCATE", rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tableOf returns the table that a message is about, or nil.
func tableOf(out decoder.Output) *decoder.Relation {
	switch out := out.(type) {
	case *decoder.Insert:
		return out.Relation
	case *decoder.Relation:
		return out
	case *decoder.Update:
		return out.Relation
	case *decoder.Delete:
		return out.Relation
	case *decoder.Begin, *decoder.Commit, *decoder.Truncate, *decoder.LogicalMessage, *decoder.Type, *decoder.Origin:
	}
	return nil
}

// skipMessage handles a message of a skipped transaction and reports whether it ended the transaction.
func (p *pump) skipMessage(out decoder.Output) (ended bool, err error) {
	switch out := out.(type) {
	case *decoder.Insert:
		p.tx.rows++
	case *decoder.LogicalMessage:
		if p.isRow(out) {
			p.tx.rows++
		}
	case *decoder.Commit:
		if p.tx.rows > 0 {
			p.skip.countTransaction()
		}
		return true, p.commitTransaction(out)
	case *decoder.Begin, *decoder.Relation, *decoder.Type, *decoder.Origin, *decoder.Update, *decoder.Delete, *decoder.Truncate:
	}
	return false, nil
}

// maxAhead is how far a timestamp may be in the future. A broker rejects one that is an hour ahead
// (message.timestamp.after.max.ms). A commit time that is less far ahead is not changed, so that a row has the same timestamp when
// it is read again.
const maxAhead = time.Minute

func (p *pump) beginTransaction(b *decoder.Begin) error {
	p.open = openTx{
		Tx:      encode.Tx{CommitLSN: b.CommitLSN, CommitTime: b.CommitTime, Timestamp: b.CommitTime},
		skipped: p.skip.covers(b.CommitLSN),
	}
	if now := time.Now(); b.CommitTime.After(now.Add(maxAhead)) {
		p.open.Timestamp = now
	}
	p.tx = &p.open
	return p.tracker.Begin(b.CommitLSN, b.CommitTime)
}

func (p *pump) commitTransaction(c *decoder.Commit) error {
	p.counts.transactions++
	p.counts.received = max(p.counts.received, c.EndLSN)
	p.tx = nil
	return p.tracker.Commit(c.EndLSN)
}
