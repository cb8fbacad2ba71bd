package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config says what a Relay reads, how rows become records, and where they go.
type Config struct {
	Name   string // in log lines
	Source replication.Config
	Route  encode.Config
	Sink   sink.Broker

	// Create has the relay create publication, over Tables, and slot if neither exists. It never
	// re-creates a slot that is gone later: rows written in between would be missing.
	Create bool
	Tables []string

	// CreateSlot has the relay create the slot if the publication exists and there is no position
	// record. It needs PositionTopic, which tells a dropped slot from one that never existed.
	CreateSlot bool

	// Messages are the prefixes of logical messages that hold a row as a JSON object, as
	// pg_logical_emit_message writes them; [replication.AnyPrefix] is every prefix that is
	// not reserved, see [catalog.Reserved]. With Create and no Tables, the publication has no tables.
	Messages []string

	// InitialCopy sends the rows that are in the tables when Create creates the slot, before those
	// that are written later. It needs PositionTopic, which tells the next start whether all of
	// them are delivered.
	InitialCopy bool

	// SlotFailover has Create create a failover slot, from Postgres 17 on.
	SlotFailover bool

	// SkipTo is a position up to which nothing is sent: transactions that end there or before are
	// skipped. It must not be after the end of the source's WAL. Zero: nothing is skipped.
	SkipTo pglogrepl.LSN

	// FailIfSlotInUse ends Run when another process streams from the slot. Otherwise the
	// Relay waits for it, as a warm standby does.
	FailIfSlotInUse bool

	// StartupTimeout bounds the first contact with both sides, including retries of what may heal by
	// itself, such as a server that is starting. Later it bounds each attempt to start a session, and
	// retries have no end. Zero means 30 s.
	StartupTimeout time.Duration

	// PositionTopic is where the position record is stored, under Name: a compacted topic. The relay
	// creates it if it is missing. With the record the next start knows whether the slot continues
	// where this one ended, and resends less after a crash of the server. Empty: there is no record.
	// Route.Reserved should have it and DeadLetterTopic: no row may go there.
	PositionTopic string

	// DeadLetterTopic gets the rows and records that cannot be delivered, so that later ones can be.
	// It should accept larger records than other topics: of a dead letter that is too large it gets only
	// what names the row. Empty: the first row or record that cannot be delivered ends the Relay.
	DeadLetterTopic string

	// MissingTopicTimeout is how long a row waits for a topic that it chooses and that does not exist or
	// may not be written, before it goes to DeadLetterTopic. Rows wait less long if they would hold up
	// others or a stop. Zero means 1 min. It has no effect without DeadLetterTopic.
	MissingTopicTimeout time.Duration

	// AcceptGap lets the first session start although the slot does not continue where the position
	// record ends.
	AcceptGap bool

	// WatchInterval is how often the catalog is read while streaming. Zero means 10 s.
	WatchInterval time.Duration

	// LongTransaction is how long a transaction may be open in the source before the relay logs a
	// warning: Postgres retains WAL for it. Zero means 5 min.
	LongTransaction time.Duration

	// Delivered, if it is set, is called when a transaction and everything before it is acknowledged,
	// with the time since its commit (the difference of two clocks, but not negative) and the id of a
	// trace of one of its records: hexadecimal digits, empty if none has a span. One call runs at a
	// time. It must not block.
	Delivered func(sinceCommit time.Duration, traceID string)

	// Answered, if it is set, is called with how long each request of the sink took, and the id of a
	// trace of one of its records, as for Delivered. Several calls may run at a time.
	Answered func(took time.Duration, traceID string)

	// Tracer makes spans of records whose rows have a sampled trace context. Nil: there are no spans,
	// and contexts are passed on as they are.
	Tracer *tracing.Tracer

	// DrainTimeout bounds a stop: until the open transaction is read and everything sent is
	// acknowledged. The next start resends what is not. Zero means 25 s.
	DrainTimeout time.Duration
}

func (cfg Config) withDefaults() Config {
	cfg.StartupTimeout = cmp.Or(cfg.StartupTimeout, 30*time.Second)
	cfg.MissingTopicTimeout = cmp.Or(cfg.MissingTopicTimeout, time.Minute)
	cfg.WatchInterval = cmp.Or(cfg.WatchInterval, 10*time.Second)
	if cfg.PositionTopic != "" {
		cfg.Source.MessagePrefix = catalog.MessagePrefix // snapshots for the record
	}
	cfg.Source.Messages, cfg.Source.ReservedPrefixes = cfg.Messages, catalog.ReservedPrefixes()
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 25*time.Second)
	return cfg
}

// A Relay relays one slot to a broker. Run is called once, Stat at any time from any goroutine.
type Relay struct {
	cfg    Config
	log    *slog.Logger
	nonce  string                    // a secret of this process; its own messages in the WAL begin with it
	router *encode.Router            // the pump's
	tables tableChecker              // the watcher's while a session runs
	sink   atomic.Pointer[sink.Sink] // nil: not reached yet

	// What Stat reads.
	flow        flow
	phase       phase
	slot        atomic.Pointer[SlotStat] // nil: the catalog has not been read yet
	deadLetters *deadLetters

	waits     waitLog
	positions *positionWriter
	tenure    *tenure         // nil: nothing was sent, and nothing is in flight
	sender    sender          // of the newest session
	history   catalog.History // of the source; the watcher's while a session runs
	catalog   *catalog.State  // read by the first contact for the first session
	skip      *skip           // nil: no SkipTo
	copy      *catalog.Copy   // of the slot that this start has created; nil: none, or in use

	warnedTimeline int32 // of the server for which warnLostTail has logged
	orderChecked   bool  // checkOrder has been called; belongs to its goroutine
}

// New returns a Relay. It checks cfg as far as that is possible without a connection.
func New(cfg Config, log *slog.Logger) (*Relay, error) {
	router, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	second, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	if cfg.InitialCopy && cfg.PositionTopic == "" {
		return nil, errors.New("initial_copy needs position_topic: nothing else says at the next start whether it was finished")
	}
	log = log.With(slog.String("name", cfg.Name), slog.String("slot", cfg.Source.Slot))
	r := &Relay{
		cfg: cfg.withDefaults(), nonce: rand.Text(), router: router, log: log, waits: waitLog{log: log},
		tables:      tableChecker{router: second, known: make(map[uint32]*decoder.Relation)},
		deadLetters: newDeadLetters(cfg, log),
		positions:   newPositionWriter(nil, cfg.AcceptGap, log),
		skip:        newSkip(cfg.SkipTo, log),
		history:     catalog.History{LongTransaction: cfg.LongTransaction},
	}
	return r, nil
}

// Run relays until ctx is done or an error occurs that only a person can fix. It returns nil after
// a clean stop: everything read is acknowledged and confirmed. A stop after which the next start may
// resend something is an error with exit code [ExitOK]. Use [ExitCode] and [Advice] on its error.
//
// The first contact is strict: a missing slot, a wrong password or an absent column ends Run at once.
// After a session has streamed, Run retries whatever may heal by itself.
func (r *Relay) Run(ctx context.Context) error {
	defer r.phase.setState(Stopped, nil)
	r.phase.setState(Starting, nil)
	retry := &retry{waits: &r.waits, limit: r.cfg.StartupTimeout, strict: true}
	defer r.closeCopy(ctx)
	if err := r.contactBothSides(ctx, retry); err != nil {
		return unlessStopped(ctx, err)
	}
	defer r.closeSink()
	for {
		err := r.runSession(ctx, retry)
		if ctx.Err() != nil && r.tenure != nil {
			err = nil // the session was lost: there is nothing to stop
		}
		final := r.isFinal(ctx, err)
		if !final {
			r.phase.setState(Waiting, err)
			if over := retry.backOff(ctx, err); over != nil {
				err, final = unlessStopped(ctx, over), true
			}
		}
		if cause := r.tenureFailure(); cause != nil {
			err, final = cause, true
		}
		if final {
			return r.stopTenure(ctx, err)
		}
	}
}

// isFinal reports whether no session follows one that ends with err.
func (r *Relay) isFinal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || faultOf(err).patience == never || r.cfg.FailIfSlotInUse && errors.Is(err, replication.ErrSlotInUse)
}

// tenureFailure returns why the tenure has failed between two sessions, if another session cannot
// recover from it.
func (r *Relay) tenureFailure() error {
	if t := r.tenure; t != nil && t.life.Err() != nil {
		if cause := context.Cause(t.life); faultOf(cause).patience == never {
			return cause
		}
	}
	return nil
}

// stopTenure ends the tenure after the last session, if there is one, and returns why Run ends.
func (r *Relay) stopTenure(ctx context.Context, err error) error {
	t := r.tenure
	if t == nil {
		return err
	}
	r.tenure = nil
	unfinished := t.stopIdle(ctx)
	if err == nil {
		return unfinished
	}
	return t.undelivered(err)
}

// unlessStopped returns err, or nil if ctx is done: an error during a stop is none as long as nothing
// is in flight.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopping is what was asked for
	}
	return err
}

// runSession runs one session, from the catalog to its end. It returns nil if ctx has ended and
// everything is acknowledged and confirmed.
func (r *Relay) runSession(ctx context.Context, retry *retry) error {
	defer r.closeCopy(ctx)
	s, stream, state, err := r.openSession(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	opened := time.Now()
	if err := r.takeOver(ctx, s, stream); err != nil {
		_ = s.close(ctx, errStopReading)
		if s.unstopped() {
			err = s.err
		}
		return unlessStopped(ctx, err)
	}
	r.phase.setState(Streaming, nil)
	r.logStart(ctx, stream, state)
	if retry.strict {
		r.warnSetup(ctx, stream, state)
	}
	retry.strict = false

	t := r.tenure
	before, rows := t.tracker.Confirmed(), r.flow.load().rows
	t.pump.published, t.pump.describe = state.Publication, r.newDescribe
	err = t.runSession(ctx, s, r.newWatcher(stream, state).run)
	if t.over {
		r.tenure = nil
	}
	confirmed := t.tracker.Confirmed()
	if confirmed > before || r.flow.load().rows > rows || time.Since(opened) >= steadySession {
		retry.reset()
	}
	r.logEnd(ctx, confirmed, err)
	return err
}

// logEnd logs the end of a session. Unless it is the last one, what the relay waits for because of err
// is logged next.
func (r *Relay) logEnd(ctx context.Context, confirmed pglogrepl.LSN, err error) {
	attrs := []slog.Attr{slog.String("confirmed", confirmed.String())}
	if err != nil && r.isFinal(ctx, err) {
		attrs = append(attrs, slog.Any("err", err))
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, "session ended", attrs...)
}

func (r *Relay) logStart(ctx context.Context, stream *replication.Stream, state *catalog.State) {
	r.log.InfoContext(ctx, "streaming",
		slog.String("publication", state.Publication.Name),
		slog.String("system_id", stream.System().ID),
		slog.Int("timeline", int(stream.System().Timeline)),
		slog.String("from", r.tenure.tracker.Confirmed().String()),
		slog.String("slot_confirmed", state.Slot.ConfirmedFlushLSN.String()))
}

// warnSetup warns of what works and could be set up better.
func (r *Relay) warnSetup(ctx context.Context, stream *replication.Stream, state *catalog.State) {
	if stream.Superuser() {
		r.log.WarnContext(ctx, "the role is a superuser, and LOGIN and REPLICATION are enough")
	}
	if state.Publication.Update && !r.cfg.Route.TakesUpdates() {
		r.log.WarnContext(ctx, "the publication also sends UPDATEs, and one of an outbox row ends the relay: SET (publish = 'insert')",
			slog.String("publication", state.Publication.Name))
	}
}
