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

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/owner"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config configures a Relay: what it reads, how rows become records, and where it sends them.
type Config struct {
	Name   string // of the relay, in log lines and in the position topic
	Source replication.Config
	Route  encode.Config
	Sink   sink.Broker

	// Tables are the outbox tables, written as in SQL. The publication must publish all of their rows; rows of
	// its other tables are skipped.
	Tables []string

	// Create is what the relay creates if it has no position record. The relay never re-creates a slot that
	// was dropped later: it would miss the rows written in between. Empty means CreateNone.
	Create Creation

	// Messages are the prefixes of logical messages (see pg_logical_emit_message) that have a row as a
	// JSON object. [replication.AnyPrefix] means every prefix that is not reserved, see
	// [catalog.MessagePrefix]. Without Tables, the publication need not have a table.
	Messages []string

	// InitialCopy makes the relay send the rows that are in the tables when it creates the slot,
	// before later rows. It needs Positions, where the relay records whether the copy is finished.
	InitialCopy bool

	// InitialCopyWhere is an SQL condition for the rows of the initial copy, which then come in the order of position, or
	// else of the id. Empty: all rows, in any order.
	InitialCopyWhere string

	// SlotFailover makes a slot that the relay creates a failover slot, from Postgres 17 on.
	SlotFailover bool

	// SkipTo makes the relay skip transactions that end at or before this position. It must not be
	// after the end of the source's WAL, nor before the slot's own without a recorded position to start at. Zero: skip nothing.
	SkipTo pglogrepl.LSN

	// FailIfSlotInUse makes Run return an error if another process streams from the slot. Otherwise the
	// Relay waits for the slot, as a standby.
	FailIfSlotInUse bool

	// StartupTimeout limits the first contact with both sides, including retries of transient errors,
	// such as a server that is starting. Later it limits each attempt to start a session; the relay
	// then retries for ever. Zero means 30 s.
	StartupTimeout time.Duration

	// Positions is where the position record is stored, under Name. With the record, the next start can
	// detect whether the slot continues where this relay ended, and sends fewer duplicates after a crash of
	// the server. Zero: no record. Add its topic, and DeadLetterTopic, to Route.Reserved, so that no row is
	// sent to them.
	Positions position.Place

	// DeadLetterTopic is the topic for rows and records that cannot be delivered, so that the relay can
	// deliver later ones. It should accept larger records than other topics, because the relay
	// truncates a dead letter that is too large to the position and id of the row. Empty: the first
	// row or record that cannot be delivered stops the Relay.
	DeadLetterTopic string

	// ParkedKeys makes a bad record park its key: it and every later record of the key go to
	// DeadLetterTopic, in order, until an operator releases the key. ParkedKeys is the maximum number of
	// parked keys; if there are more, the Relay stops. It needs Positions, where the keys are stored,
	// and DeadLetterTopic. Zero: no key is parked.
	ParkedKeys int

	// MissingTopicTimeout is how long a row waits for a topic that it chooses and that does not exist or
	// may not be written, before it goes to DeadLetterTopic. Rows wait less long if they would hold up
	// others or a stop. Zero means 1 min. It has no effect without DeadLetterTopic.
	MissingTopicTimeout time.Duration

	// AcceptGap lets the first session start although the slot does not continue where the position
	// record ends, or the publication has left out rows since.
	AcceptGap bool

	// RefillOnLoss has the relay refill the gap from the tables if the slot was lost or does not continue where
	// the position record ends. It needs Positions. See Recover.
	RefillOnLoss bool

	// Assume is what a refill may assume.
	Assume catalog.Assumptions

	// WatchInterval is the time between two reads of the catalog while streaming. Zero means 10 s.
	WatchInterval time.Duration

	// LongTransaction is how long a transaction may be open in the source before the relay logs a
	// warning, because Postgres retains WAL for it. Zero means 5 min.
	LongTransaction time.Duration

	// Delivered is called when a transaction and everything before it is acknowledged. sinceCommit is
	// the time since the commit: the difference of two clocks, but never negative. traceID is the id of
	// a trace of one of its records in hexadecimal digits, or empty if no record has a span. Calls do
	// not overlap. Delivered must not block. It may be nil.
	Delivered func(sinceCommit time.Duration, traceID string)

	// Answered is called after each request of the sink with its duration, and with the id of a trace of
	// one of its records, as for Delivered. Calls may overlap. It may be nil.
	Answered func(took time.Duration, traceID string)

	// MemoryChanged is called when the sink's window is known, and whenever it changes; bytes is the
	// maximum memory of unacknowledged records, and what the sink needs for each destination. Calls do not
	// overlap. MemoryChanged must not block. It may be nil.
	MemoryChanged func(bytes int)

	// Tracer makes spans for records whose rows have a sampled trace context. Nil: no spans; trace
	// contexts are passed on unchanged.
	Tracer *tracing.Tracer

	// DrainTimeout limits how long a stop waits until the open transaction is read and every sent
	// record is acknowledged. The next start resends the others. Saving and confirming the last position may take closeTimeout
	// each after that. Zero means 25 s.
	DrainTimeout time.Duration
}

// WithDefaults returns cfg with the defaults of what is not set, as New uses it.
func (cfg Config) WithDefaults() Config {
	cfg.StartupTimeout = cmp.Or(cfg.StartupTimeout, 30*time.Second)
	cfg.MissingTopicTimeout = cmp.Or(cfg.MissingTopicTimeout, time.Minute)
	cfg.WatchInterval = cmp.Or(cfg.WatchInterval, 10*time.Second)
	if !cfg.Positions.IsZero() {
		cfg.Source.MessagePrefix = catalog.MessagePrefix // snapshots for the record
	}
	cfg.Source.Messages, cfg.Source.ReservedPrefix = cfg.Messages, catalog.MessagePrefix
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 25*time.Second)
	return cfg
}

// Rows returns the settings for making records without a stream. It uses Source, Route and StartupTimeout.
func (cfg Config) Rows() rows.Config {
	return rows.Config{Source: cfg.Source, Route: cfg.Route, Timeout: cfg.WithDefaults().StartupTimeout}
}

// A Relay sends the rows of one slot to a broker. Run must be called once. Stat may be called at any time,
// from any goroutine.
type Relay struct {
	cfg        Config
	log        *slog.Logger
	nonce      string          // a secret of this process; its own messages in the WAL start with it
	router     *encode.Router  // used by the pump
	tables     tableChecker    // used by the watcher while a session runs
	named      *catalog.Tables // the outbox tables of the configuration
	neighbours *pump.Neighbours
	sink       atomic.Pointer[sink.Sink] // nil: not open yet

	// Read by Stat.
	progress    pump.Progress
	state       stateMachine
	slot        atomic.Pointer[SlotStat] // nil: the catalog was not read yet
	unsent      atomic.Pointer[unsent]   // nil: the catalog was not read yet
	deadLetters *pump.DeadLetters

	waits     waitLog
	store     *position.Store
	positions *position.Positions // in store
	owner     *owner.Owner
	history   catalog.History // of the source; used by the watcher while a session runs
	catalog   *catalog.State  // read by contactBothSides for the first session
	skip      *pump.Skip      // nil: no SkipTo
	planner   *refill.Planner
}

// New returns a Relay. It checks cfg as far as possible without a connection.
func New(cfg Config, log *slog.Logger) (*Relay, error) {
	cfg = cfg.WithDefaults()
	router, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	second, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	if cfg.InitialCopy && cfg.Positions.IsZero() {
		return nil, errors.New("initial_copy needs a position store, where the relay records whether the copy is finished")
	}
	if cfg.ParkedKeys > 0 && (cfg.Positions.IsZero() || cfg.DeadLetterTopic == "") {
		return nil, errors.New("parked keys need position_topic, where the relay stores them, and dead_letter_topic")
	}
	log = log.With(slog.String("name", cfg.Name), slog.String("slot", cfg.Source.Slot))
	var parked *parking.Set
	if cfg.ParkedKeys > 0 {
		parked = parking.NewSet(cfg.ParkedKeys)
	}
	r := &Relay{
		cfg: cfg, nonce: rand.Text(), router: router, log: log, waits: waitLog{log: log}, state: stateMachine{log: log},
		tables:     tableChecker{router: second, known: make(map[uint32]*decoder.Relation), log: log},
		named:      catalog.NewTables(cfg.Tables),
		neighbours: pump.NewNeighbours(log),
		deadLetters: pump.NewDeadLetters(pump.DeadLetterConfig{
			Topic: cfg.DeadLetterTopic, Slot: cfg.Source.Slot, IDColumn: cfg.Route.Columns.ID, TopicTimeout: cfg.MissingTopicTimeout,
			Parked: parked, Log: log,
		}),
		store:   position.NewStore(cfg.Positions, cfg.Name, log),
		skip:    pump.NewSkip(cfg.SkipTo, !cfg.Positions.IsZero(), log),
		history: catalog.History{LongTransaction: cfg.LongTransaction},
	}
	r.positions = position.New(position.Config{
		Store: r.store, AcceptGap: cfg.AcceptGap, Parked: parked, DeadLetters: cfg.DeadLetterTopic, Log: log,
	})
	r.planner = refill.NewPlanner(r.cfg.refill(), r.positions, planning{r}, log)
	r.owner = owner.New(r.ownerConfig())
	return r, nil
}

// ownerConfig returns what the Owner gets of the Relay.
func (r *Relay) ownerConfig() owner.Config {
	cfg := owner.Config{
		Source: r.cfg.Source, Tables: r.named, Rows: r.cfg.Rows(),
		Broker:    r.cfg.Sink,
		NewWriter: func(cfg sink.WriterConfig) sink.Writer { return (*r.sink.Load()).NewWriter(cfg) },
		Writer: sink.WriterConfig{
			Answered: r.cfg.Answered, MemoryChanged: r.cfg.MemoryChanged, EventHeaders: encode.EventHeaders(), RowHeaders: encode.RowHeaders(),
		},
		Place: r.cfg.Positions, Store: r.store, Positions: r.positions, Planner: r.planner,
		Pump: pump.Config{
			Router: r.router, Progress: &r.progress, Neighbours: r.neighbours, OnUpdate: r.cfg.Route.OnUpdate,
			Messages: r.cfg.Messages, Nonce: r.nonce, Skip: r.skip, Log: r.log,
		},
		DeadLetters: r.deadLetters, DeadLetterTopic: r.cfg.DeadLetterTopic,
		StartupTimeout: r.cfg.StartupTimeout, DrainTimeout: r.cfg.DrainTimeout,
		CheckPublished: r.checkPublished,
		AnnounceWait:   r.announceWait, SessionEnded: r.state.loseSession,
		Draining:  func(ctx context.Context) { r.state.enter(ctx, drain, nil) },
		Delivered: r.cfg.Delivered, Tracer: r.cfg.Tracer, Log: r.log,
	}
	if r.cfg.DeadLetterTopic != "" && r.cfg.Route.FixedTopic() == "" {
		cfg.Writer.GiveUp = r.deadLetters.GiveUpTopic
	}
	return cfg
}

// checkPublished returns [catalog.State.CheckPublished] of the catalog as last read. It warns of a doubt, which nobody can have any more
// once this process has recorded the publication as it is now.
func (r *Relay) checkPublished(recorded string) error {
	err := r.history.CheckPublished(recorded)
	if doubt, ok := errors.AsType[*catalog.LeftOutError](r.history.CheckUnaltered(recorded)); ok && err == nil {
		r.log.Warn("the publication was altered, and may have left out rows before this start", slog.String("reason", doubt.Reason()),
			slog.String("hint", "unless inserts were published all the time, look for missing rows with audit, and send them with replay"))
	}
	if added, ok := errors.AsType[*catalog.LeftOutError](r.history.CheckKnown(recorded)); ok && err == nil {
		r.log.Warn("a table is an outbox from this start on, its older rows are not delivered", slog.String("reason", added.Reason()),
			slog.String("hint", "if they are events, send them with replay"))
	}
	return r.tables.orUnlisted(err)
}

// Run relays until ctx is done or an error occurs that only a person can fix. It returns nil after a
// clean stop, when every record is acknowledged and confirmed. If the next start may resend records, it
// returns an error with exit code [exit.OK]. Use [fault.ExitCode] and [fault.Advice] on the error.
//
// The first contact is strict: Run returns immediately if, for example, the slot or a column is missing or
// the password is wrong. After a session has streamed, or the relay has been a standby, Run retries every error that
// may be transient.
func (r *Relay) Run(ctx context.Context) error {
	defer r.state.enter(ctx, stopped, nil)
	r.state.enter(ctx, firstContact, nil)
	retry := &retry{waits: &r.waits, limit: r.cfg.StartupTimeout, strict: true}
	defer r.planner.Close(ctx)
	if err := r.contactBothSides(ctx, retry); err != nil {
		return unlessStopped(ctx, err)
	}
	defer r.closeSink()
	defer r.positions.Timeline.Close(ctx)
	for {
		err := r.runSession(ctx, retry)
		if ctx.Err() != nil && r.owner.Owns() {
			err = nil // the session ended during the stop
		}
		if ctx.Err() == nil && r.planner.Refills(err) {
			if err = unlessStopped(ctx, r.refillLost(ctx, err)); err == nil {
				continue
			}
		}
		final := r.isFinal(ctx, err)
		if !final {
			r.state.enter(ctx, waitingState(err), err)
			if over := retry.backOff(ctx, err); over != nil {
				err, final = unlessStopped(ctx, over), true
			}
		}
		if cause := r.owner.Failure(); cause != nil {
			err, final = cause, true
		}
		if final {
			return r.recordStop(ctx, r.owner.Stop(ctx, err))
		}
	}
}

// isFinal reports whether no session follows after err.
func (r *Relay) isFinal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || fault.PatienceFor(err) == fault.Never || r.cfg.FailIfSlotInUse && errors.Is(err, replication.ErrSlotInUse)
}

// recordTimeout limits how long a relay that has failed waits for the position store.
const recordTimeout = 2 * time.Second

// recordStop adds err, with which Run returns, to the position record, if this process is the owner: status and check show it to an
// operator who does not have the output of the process. It returns err.
func (r *Relay) recordStop(ctx context.Context, err error) error {
	code := fault.ExitCode(err)
	if ctx.Err() != nil || code == exit.OK {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	stop := checkpoint.Stop{
		At: time.Now().UTC(), ExitCode: code, Reason: replication.HideSettings(err).Error(), Advice: fault.StopAdvice(err), Recover: fault.Recovers(err),
	}
	if failed := r.positions.Recorder.RecordStop(limited, stop); failed != nil && !errors.Is(failed, sink.ErrSuperseded) {
		r.log.WarnContext(ctx, "status will not say why the relay has stopped", slog.Any("err", failed))
	}
	return err
}

// unlessStopped returns err, or nil if ctx is done: while nothing is in flight, an error during a stop
// does not matter.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller wanted to stop
	}
	return err
}

// runSession runs one session, from reading the catalog to its end. It returns nil if ctx has ended and
// every record is acknowledged and confirmed.
func (r *Relay) runSession(ctx context.Context, retry *retry) error {
	defer r.planner.Close(ctx)
	r.state.enter(ctx, own, nil)
	state, err := r.readBeforeSession(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	s, source, err := r.owner.OpenSession(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	opened := time.Now()
	if err := r.owner.TakeOver(ctx, s, source); err != nil {
		return unlessStopped(ctx, explainGap(state, err))
	}
	r.state.enter(ctx, stream, nil)
	r.logStart(ctx, source, state)
	if r.state.sessionCount() == 1 {
		r.warnSetup(ctx, source, state)
	}
	retry.strict = false

	tracker := r.owner.Tracker()
	before, rows := tracker.Confirmed(), r.progress.Counts().Rows
	server := &pump.ServerCatalog{Rows: r.cfg.Rows(), Stream: source.Config(), Tables: r.named}
	err = r.explainColumns(ctx, r.owner.RunSession(ctx, s, state.Publication, server, r.newWatcher(s, source, state).run))
	confirmed := tracker.Confirmed()
	if confirmed > before || r.progress.Counts().Rows > rows || time.Since(opened) >= steadySession {
		retry.reset()
	}
	r.logEnd(ctx, confirmed, err)
	return err
}

// explainGap returns err with the instruction if the slot does not continue at the position record, and recover cannot send what is missing.
func explainGap(state *catalog.State, err error) error {
	if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && gap.SameSlot() {
		return state.ExplainGap(err)
	}
	return err
}

// explainColumns is [tableChecker.explain] with the tables as they are now: the stream may be the first to notice a change.
func (r *Relay) explainColumns(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*encode.ColumnError](err); ok {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), position.Timeout)
		defer cancel()
		if now, unread := catalog.Inspect(limited, r.cfg.Source.Conn, r.cfg.Source.Publication, r.cfg.Source.Slot, r.named); unread == nil {
			r.tables.note(now)
		}
	}
	return r.tables.explain(err)
}

// readBeforeSession returns the catalog before a session. An error says why no session can start.
func (r *Relay) readBeforeSession(ctx context.Context) (*catalog.State, error) {
	state := r.catalog
	r.catalog = nil
	if state == nil {
		var err error
		if state, err = r.readCatalog(ctx); err != nil {
			return nil, err
		}
	}
	return state, r.compareCatalog(ctx, state)
}

// logEnd logs the end of a session, with err if it is the last one. Otherwise the waitLog logs err.
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
		slog.String("from", r.owner.Tracker().Confirmed().String()),
		slog.String("slot_confirmed", state.Slot.ConfirmedFlushLSN.String()))
}

// warnSetup logs warnings about settings that work but should be changed.
func (r *Relay) warnSetup(ctx context.Context, stream *replication.Stream, state *catalog.State) {
	if stream.Superuser() {
		r.log.WarnContext(ctx, "the role is a superuser, but needs only LOGIN and REPLICATION")
	}
	if filter := state.FilterWarning(); filter != "" {
		r.log.WarnContext(ctx, "the publication leaves out rows", slog.String("publication", state.Publication.Name), slog.String("problem", filter))
	}
	if state.Publication.Update && !r.cfg.Route.TakesUpdates() {
		r.log.WarnContext(ctx, "the publication also publishes UPDATEs, and an UPDATE of an outbox row stops the relay",
			slog.String("publication", state.Publication.Name))
	}
}
