package pump

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Writer is the part of a [sink.Writer] that a Pump needs.
type Writer interface {
	Send(ctx context.Context, r *sink.Record) error
	Flush()
}

// Config configures the Pump of an ownership.
type Config struct {
	Router     *encode.Router
	Writer     Writer
	Outcomes   *Outcomes // of the records that Writer accepts
	Progress   *Progress // to be updated
	Neighbours *Neighbours
	OnUpdate   encode.Updates
	Messages   []string           // prefixes of the logical messages that have rows
	Nonce      string             // messages with a snapshot of this process start with it
	Witness    checkpoint.Witness // the newest one of the position record
	Skip       *Skip              // transactions that the operator wants to skip; nil: none
	Copy       *Copy              // to be sent before the stream; nil: none

	// An earlier owner of the slot may have sent the transactions before Horizon: the end of the WAL when this one had
	// acquired it.
	Horizon pglogrepl.LSN

	Turn chan struct{} // cap 1; held while rows are sent, so that a release can pause the Pump; nil: none pauses it
	Log  *slog.Logger
}

// A Pump moves batches from the stream to the writer: it decodes them, sends each outbox row as a
// record, and reports transactions and keepalives to the Tracker in the order in which it reads them. It
// does not resend rows that a later session reads again, because the Tracker knows which rows have a
// record. One goroutine at a time uses a Pump, except for Copying.
type Pump struct {
	decoder     *decoder.Decoder
	router      *encode.Router
	tracker     *checkpoint.Tracker
	writer      Writer
	deadLetters *DeadLetters
	spans       *spans // nil: none
	progress    *Progress
	log         *slog.Logger

	// published is the publication as of the start of the session. The Pump ignores published DELETEs
	// and TRUNCATEs, which remove delivered rows. If they arrive although they were not published,
	// somebody has altered the publication.
	published *catalog.Publication
	catalog   Catalog

	horizon pglogrepl.LSN // Config.Horizon

	neighbours *Neighbours
	judgements map[uint32]judgement // of the tables of the session, by OID

	updates   updatePolicy
	messages  []string
	skip      *Skip
	copy      *Copy       // pending; nil: none
	copying   atomic.Bool // copy is pending
	turn      chan struct{}
	nonce     string
	witnesses checkpoint.Witnesses // of the snapshots
	unhashed  *decoder.Relation    // see addWitness; nil: none

	acked  chan struct{} // cap 1; records were acknowledged
	tx     *openTx       // nil between transactions
	open   openTx
	raw    []byte // the message being handled
	record sink.Record
	counts Counts // not added to progress yet
}

// New returns the Pump of an ownership. StartSession must be called before it gets the messages of a session.
func New(cfg Config) *Pump {
	p := &Pump{
		router: cfg.Router, tracker: cfg.Outcomes.tracker, writer: cfg.Writer, deadLetters: cfg.Outcomes.deadLetters, spans: cfg.Outcomes.spans,
		progress: cfg.Progress, log: cfg.Log, horizon: cfg.Horizon, neighbours: cfg.Neighbours, updates: newUpdatePolicy(cfg.OnUpdate, cfg.Log),
		messages: cfg.Messages, skip: cfg.Skip, copy: cfg.Copy, turn: cfg.Turn, nonce: cfg.Nonce, witnesses: checkpoint.NewWitnesses(cfg.Witness), acked: cfg.Outcomes.acked,
	}
	if cfg.Copy != nil {
		p.copying.Store(true)
		cfg.Outcomes.copiedAt.Store(uint64(cfg.Copy.transaction()))
	}
	return p
}

// StartSession prepares the Pump for the messages of a session: from is where the server starts to send, published is the publication as
// of the start of the session, and c the catalog of its server.
func (p *Pump) StartSession(ctx context.Context, from pglogrepl.LSN, published *catalog.Publication, c Catalog) {
	p.decoder, p.tx, p.judgements = decoder.New(), nil, make(map[uint32]judgement)
	p.published, p.catalog = published, c
	p.tracker.Reread(from)
	p.router.SetDescribe(c.Describe(ctx))
}

// Copying reports whether a copy is pending. It may be called from any goroutine.
func (p *Pump) Copying() bool { return p.copying.Load() }

// Row returns the position of the row that is being sent. ok is false for a message outside of a transaction.
func (p *Pump) Row() (commitLSN pglogrepl.LSN, index int, ok bool) {
	if p.tx == nil {
		return 0, 0, false
	}
	return p.tx.CommitLSN, p.tx.rows - 1, true
}

// MaxWindow limits the number of records from the oldest unacknowledged one to the newest. The sink's
// window is no such limit, because it counts unacknowledged records only: while one partition waits
// for its leader, the others continue, and the Tracker's memory and the number of duplicates after a
// crash would grow. In the same way, maxWindowBytes limits what the next session reads again.
const (
	MaxWindow      = 1 << 18
	maxWindowBytes = 256 << 20
)

// waitForAcks blocks until the Tracker's window is at most most records and maxWindowBytes. stopped is true if
// stop was closed first.
func (p *Pump) waitForAcks(ctx context.Context, stop <-chan struct{}, most int) (stopped bool, err error) {
	defer p.deadLetters.holdUp.Store(false)
	for p.tracker.Window() > most || p.tracker.WindowBytes() > maxWindowBytes {
		p.deadLetters.holdUp.Store(true)
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
