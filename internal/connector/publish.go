package connector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// publisher is what a session needs of its producer; the session's tests implement it too.
type publisher interface {
	Send(ctx context.Context, r *sink.Record) error
	Kick()
}

// A publication decodes what was read and hands every outbox row on, telling the tracker
// of each boundary in read order. It belongs to one goroutine.
type publication struct {
	decoder  *decoder.Decoder
	router   *route.Router
	tracker  *checkpoint.Tracker
	producer publisher
	flow     *flow
	cut      cut // the transaction whose first rows are not sent again

	deadLetters *deadLetters
	maxSpan     int // maxSpan; tests have a smaller one

	// published is what the publication sent when the session began. Deleting delivered
	// rows is housekeeping and ignored; a kind of change that comes although it was not
	// published means that somebody changed the publication.
	published *replication.Publication

	// The relay has pg_logical_emit_message tell it, in the stream, which transactions have
	// been delivered by then.
	label     string // names this relay among those that read the same database
	delivered func(checkpoint.Snapshot)

	acked chan struct{} // holds one token when something was acknowledged since next looked
	tx    *openTx       // nil between transactions
	open  openTx
	rec   sink.Record
	stats flowCounts // what flow has not been told yet
}

// An openTx is the transaction being read.
type openTx struct {
	route.Tx
	rows     int    // inserts seen so far
	snapshot string // what a message of ours in it said
}

// maxSpan bounds how many records may lie behind the oldest unacknowledged one. The sink's
// window counts what is unacknowledged only: while one partition waits for its leader,
// others go on, and with them grow the tracker's memory and what a crash would repeat.
const maxSpan = 1 << 18

// run publishes batches until the channel is closed, or until stop is closed and no
// transaction is open, or ctx ends. It returns nil in the first two cases.
func (p *publication) run(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) error {
	defer p.flow.add(&p.stats)
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
	for p.tracker.Span() >= p.maxSpan {
		p.producer.Kick()
		select {
		case <-p.acked:
		case <-stop:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case batch := <-batches:
		return batch, nil
	default:
		p.producer.Kick()
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

// acknowledged tells a waiting next that the tracker may have moved. Any goroutine.
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
		return false, p.unexpected("UPDATE", out.Relation)
	case *decoder.Delete:
		if !p.published.Delete {
			return false, p.unexpected("DELETE", out.Relation)
		}
	case *decoder.Truncate:
		if !p.published.Truncate {
			return false, p.unexpected("TRUNCATE", out.Relations...)
		}
	case *decoder.LogicalMessage:
		p.logicalMessage(out)
	case *decoder.Type, *decoder.Origin:
	}
	return false, nil
}

// MessagePrefix is that of the messages a relay writes to itself: its name, a bar, and what
// pg_current_snapshot() returned.
const MessagePrefix = "outbox-cdc"

func (p *publication) logicalMessage(m *decoder.LogicalMessage) {
	if !m.Transactional || m.Prefix != MessagePrefix || p.tx == nil {
		return
	}
	if name, snapshot, ok := strings.Cut(string(m.Content), "|"); ok && name == p.label {
		p.tx.snapshot = snapshot
	}
}

func (p *publication) begin(b *decoder.Begin) {
	p.tracker.Begin(b.CommitLSN)
	p.open = openTx{Tx: route.Tx{CommitLSN: b.CommitLSN, CommitTime: b.CommitTime, Timestamp: b.CommitTime}}
	// A broker may refuse a timestamp from the future (KIP-1030).
	if now := time.Now(); b.CommitTime.After(now) {
		p.open.Timestamp = now
	}
	p.tx = &p.open
}

// insert sends one row, unless it belongs to the acknowledged beginning of a transaction
// that was cut: that is recognised by its commit LSN, and its rows come in the same order.
func (p *publication) insert(ctx context.Context, row *decoder.Insert) error {
	index := p.tx.rows
	p.tx.rows++
	if p.cut.commitLSN == p.tx.CommitLSN && index < p.cut.acked {
		return p.tracker.Ack(p.tracker.Next())
	}
	rec := &p.rec
	if err := p.router.Route(p.tx.Tx, index, row, rec); err != nil {
		if rec = p.deadRow(index, row, err); rec == nil {
			return &DeliveryError{CommitLSN: p.tx.CommitLSN, Row: index, Err: err}
		}
	}
	rec.Seq = uint64(p.tracker.Next())
	p.stats.rows++
	p.stats.bytes += uint64(len(rec.Key) + len(rec.Value))
	return p.producer.Send(ctx, rec)
}

// deadRow returns the dead letter of a row that Route has refused, nil if none is wanted. A
// table whose columns are not those configured is not about one row.
func (p *publication) deadRow(index int, row *decoder.Insert, err error) *sink.Record {
	refused, ok := errors.AsType[*route.RowError](err)
	if !ok {
		return nil
	}
	return p.deadLetters.row(p.router, p.tx.Tx, index, row, refused)
}

func (p *publication) commit(c *decoder.Commit) {
	p.tracker.Commit(c.EndLSN)
	if p.tx.snapshot != "" {
		p.delivered(checkpoint.Snapshot{EndLSN: c.EndLSN, Text: p.tx.snapshot})
	}
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

// unexpected is a change that the publication did not send when the session began, or an
// UPDATE, which is no event and cannot be made one.
func (p *publication) unexpected(kind string, relations ...*decoder.Relation) error {
	e := &ChangeError{Kind: kind, CommitLSN: p.tx.CommitLSN}
	if len(relations) > 0 {
		e.Table = relations[0].Namespace + "." + relations[0].Name
	}
	return e
}

// A ChangeError is a change of an outbox row other than its insertion.
type ChangeError struct {
	Kind      string // UPDATE, DELETE, TRUNCATE
	Table     string
	CommitLSN pglogrepl.LSN
}

// Error names the change, its table and its transaction.
func (e *ChangeError) Error() string {
	return fmt.Sprintf("transaction %s: %s of %s is published, but only INSERTs are events", e.CommitLSN, e.Kind, e.Table)
}
