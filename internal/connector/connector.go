package connector

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config says what a Connector reads, how rows become records, and where they go.
type Config struct {
	Name   string // in log lines
	Source replication.Config
	Route  route.Config
	Sink   sink.Config

	// Create makes publication and slot when neither exists yet, over Tables. A slot that
	// is gone later is never made again: what was written in between would be missing.
	Create bool
	Tables []string

	// FailIfSlotInUse ends Run when another process streams from the slot. Otherwise the
	// Connector waits for it, as a warm standby does.
	FailIfSlotInUse bool

	// StartupTimeout bounds the first contact with both sides: how long is waited for what
	// may heal by itself, such as a server that is still starting. Later such waiting has
	// no end, but of each attempt to begin a session: a server that takes the connection and
	// says nothing more is tried again. Zero means 30 s.
	StartupTimeout time.Duration

	// PositionTopic is a compacted topic that keeps, under Name, the position that the server
	// may be told. It is created if it is missing. With it the next start knows whether the
	// slot continues where this one ended, and repeats less after a crash of the server.
	// Empty: nothing is kept.
	PositionTopic string

	// DeadLetterTopic takes the rows and records that cannot be delivered, and those behind
	// them go on. It must take larger records than other topics do, or what is too large for
	// them ends the Connector all the same. Empty: the first one ends it.
	DeadLetterTopic string

	// AcceptGap lets the first session start although the slot does not continue where the
	// recorded position ends.
	AcceptGap bool

	// WatchInterval is how often the catalog is read while streaming. Zero means 10 s.
	WatchInterval time.Duration

	// LongTransaction is how long a transaction may be open in the source before it is warned
	// of, as one for which log is kept. Zero means 5 min.
	LongTransaction time.Duration

	// DrainTimeout is how long a stop may take: until the open transaction is read and
	// everything sent is acknowledged. What is not acknowledged then is sent again by the
	// next start. It should be less than half of the server's wal_sender_timeout.
	// Zero means 25 s.
	DrainTimeout time.Duration
}

func (cfg Config) withDefaults() Config {
	cfg.StartupTimeout = cmp.Or(cfg.StartupTimeout, 30*time.Second)
	cfg.WatchInterval = cmp.Or(cfg.WatchInterval, 10*time.Second)
	if cfg.PositionTopic != "" {
		cfg.Source.MessagePrefix = MessagePrefix // snapshots for the record
	}
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 25*time.Second)
	return cfg
}

// A Connector relays one slot to Kafka. Run is called once; Stat at any time from any
// goroutine.
type Connector struct {
	cfg     Config
	log     *slog.Logger
	router  *route.Router // the publication's
	checker *route.Router // for what the catalog says
	client  atomic.Pointer[sink.Client]
	flow    flow
	phase   phase
	slot    slotState

	deadLetters *deadLetters

	register *sink.Register // nil: no PositionTopic
	recorder *recorder
	history  replication.History  // of the source; the watcher's while a session runs
	catalog  *replication.Catalog // read by the first contact for the first session
	position position             // what the last session left
}

// New returns a Connector. It contacts nobody; cfg is checked as far as that is possible
// without.
func New(cfg Config, log *slog.Logger) (*Connector, error) {
	router, err := route.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	checker, err := route.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	log = log.With(slog.String("name", cfg.Name), slog.String("slot", cfg.Source.Slot))
	return &Connector{
		cfg: cfg.withDefaults(), router: router, checker: checker, log: log,
		deadLetters: newDeadLetters(cfg.DeadLetterTopic, cfg.Source.Slot, log),
		recorder:    newRecorder(nil, cfg.AcceptGap, log),
		history:     replication.History{LongTransaction: cfg.LongTransaction},
	}, nil
}

// Run relays until ctx is done or something happens that only a person can mend. It
// returns nil after a clean stop: everything read was acknowledged and reported. A stop that
// was not clean, so that the next start may repeat something, is an error with exit code
// [ExitOK]. Use [ExitCode] and [Advice] on its error.
//
// The first contact is strict: a missing slot, a wrong password, an absent column end Run
// at once. After a session has streamed, what may heal by itself is waited for.
func (c *Connector) Run(ctx context.Context) error {
	defer c.phase.enter(Stopped, nil)
	c.phase.enter(Starting, nil)
	retry := &retry{log: c.log, limit: c.cfg.StartupTimeout, strict: true}
	if err := c.firstContact(ctx, retry); err != nil {
		return unlessStopped(ctx, err)
	}
	defer c.closeSink()
	for {
		err := c.session(ctx, retry)
		if err == nil || faultOf(err).patience == never {
			return err
		}
		if c.cfg.FailIfSlotInUse && errors.Is(err, replication.ErrSlotInUse) {
			return err
		}
		c.phase.enter(Waiting, err)
		if err := retry.wait(ctx, err); err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// unlessStopped returns err, or nil when ctx is done: an error met while stopping before
// anything was in flight is no error.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopping is what was asked for
	}
	return err
}

// firstContact reaches both sides at once, so that a mistake on one is told although the
// other is down, and creates what is wanted when both have answered: a slot that nobody
// reads holds the server's log.
func (c *Connector) firstContact(ctx context.Context, retry *retry) error {
	limited, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	g, both := errgroup.WithContext(limited)
	g.Go(func() error {
		client, err := sink.Open(both, c.cfg.Sink, c.log)
		if err != nil {
			return err
		}
		c.client.Store(client)
		return c.openRegister(both)
	})
	create := false
	g.Go(func() error {
		for {
			catalog, err := c.prepare(both)
			if create = c.creates(catalog, err); create || err == nil {
				c.catalog = catalog
				retry.succeeded()
				return nil
			}
			if faultOf(err).patience == never || retry.wait(both, err) != nil {
				return err
			}
		}
	})
	err := g.Wait()
	if err == nil && create {
		err = c.create(limited)
	}
	if err != nil {
		c.closeSink()
	}
	return err
}

// openRegister reaches the topic that keeps the position.
func (c *Connector) openRegister(ctx context.Context) error {
	if c.cfg.PositionTopic == "" {
		return nil
	}
	reg, err := sink.OpenRegister(ctx, c.cfg.Sink, c.cfg.PositionTopic, c.cfg.Name, c.log)
	if err != nil {
		return err
	}
	c.register, c.recorder.register = reg, reg
	return nil
}

// closeSink closes what the first contact has opened at Kafka.
func (c *Connector) closeSink() {
	if c.register != nil {
		_ = c.register.Close()
	}
	if client := c.client.Load(); client != nil {
		_ = client.Close()
	}
}

// prepare reads the source's catalog and checks that what the publication sends can become
// records. With an error from that check it returns the catalog too.
func (c *Connector) prepare(ctx context.Context) (*replication.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	catalog, err := replication.Inspect(ctx, c.cfg.Source.Conn, c.cfg.Source.Publication, c.cfg.Source.Slot)
	if err != nil {
		return nil, err
	}
	if err := catalog.Verify(); err != nil {
		return catalog, err
	}
	return catalog, routable(c.checker, catalog)
}

// creates reports whether err is that neither publication nor slot exists, and they are
// to be created.
func (c *Connector) creates(catalog *replication.Catalog, err error) bool {
	if !c.cfg.Create || catalog == nil || catalog.Publication != nil || catalog.Slot != nil {
		return false
	}
	return errors.Is(err, replication.ErrPublication) || errors.Is(err, replication.ErrSlotMissing)
}

// create makes publication and slot.
func (c *Connector) create(ctx context.Context) error {
	if err := c.recorder.left(ctx, c.cfg.Source.Slot); err != nil {
		return err
	}
	steps, err := replication.Setup(ctx, replication.SetupConfig{
		Conn: c.cfg.Source.Conn, Publication: c.cfg.Source.Publication, Slot: c.cfg.Source.Slot, Tables: c.cfg.Tables,
	})
	for _, s := range steps {
		c.log.InfoContext(ctx, "set up", slog.String("object", s.Object), slog.String("action", s.Action))
	}
	if err == nil {
		c.catalog, err = c.prepare(ctx)
	}
	return err
}

// session runs one session from the catalog to the drained sink, and keeps what it leaves
// to the next one.
func (c *Connector) session(ctx context.Context, retry *retry) error {
	catalog := c.catalog
	c.catalog = nil
	if catalog == nil {
		var err error
		if catalog, err = c.prepare(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
	}
	if err := c.look(ctx, catalog); err != nil {
		return err
	}
	if err := c.recorder.restore(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	contact, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	stream, err := replication.Open(contact, c.cfg.Source, c.log)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	e := epoch{system: stream.System(), slot: c.cfg.Source.Slot}
	start, lost, err := c.resume(ctx, e, stream.WALEnd(), catalog.Slot)
	if err == nil {
		err = stream.Start(contact, start)
	}
	if err == nil {
		err = c.recorder.hold(contact)
	}
	if err != nil {
		_ = stream.Close(contact, 0)
		return unlessStopped(ctx, err)
	}
	retry.succeeded()
	retry.strict = false
	c.phase.enter(Streaming, nil)
	c.logStart(ctx, stream, start, catalog)

	producer := c.client.Load().NewProducer()
	s := newSession(c, stream, producer, start, lost, catalog.Publication)
	producer.SetSubstitute(s.deadRecord)
	producer.SetGuard(stream.Lapsed)
	s.watch = c.newWatcher(stream, catalog).run
	err = s.run(ctx)
	c.position = position{epoch: e, confirmed: s.tracker.Confirmed(), cut: s.publication.rest()}
	c.log.InfoContext(ctx, "session ended",
		slog.String("confirmed", c.position.confirmed.String()), slog.Any("err", err))
	return err
}

// resume returns where the next session starts: where the last one of this process ended,
// else where the recorder says, else at 0/0, which leaves the choice to the slot.
func (c *Connector) resume(ctx context.Context, e epoch, walEnd pglogrepl.LSN, slot *replication.Slot) (pglogrepl.LSN, cut, error) {
	recorded, err := c.recorder.resume(ctx, checkpoint.Server{
		SystemID: e.system.ID, Timeline: e.system.Timeline, Slot: e.slot,
		Confirmed: slot.ConfirmedFlushLSN, WALEnd: walEnd,
	})
	if err != nil {
		return 0, cut{}, err
	}
	start, lost := c.position.resume(e)
	return max(start, recorded), lost, nil
}

func (c *Connector) logStart(ctx context.Context, stream *replication.Stream, start pglogrepl.LSN, catalog *replication.Catalog) {
	c.log.InfoContext(ctx, "streaming",
		slog.String("publication", catalog.Publication.Name),
		slog.String("system_id", stream.System().ID),
		slog.Int("timeline", int(stream.System().Timeline)),
		slog.String("from", start.String()),
		slog.String("slot_confirmed", catalog.Slot.ConfirmedFlushLSN.String()))
	if t := stream.SenderTimeout(); t > 0 && c.cfg.DrainTimeout > t/2 {
		c.log.WarnContext(ctx, "drain_timeout is more than half of the server's wal_sender_timeout: a slow stop may end in duplicates",
			slog.Duration("drain_timeout", c.cfg.DrainTimeout), slog.Duration("wal_sender_timeout", t))
	}
	if stream.Superuser() {
		c.log.WarnContext(ctx, "the role is a superuser, and LOGIN and REPLICATION are enough")
	}
	if catalog.Publication.Update {
		c.log.WarnContext(ctx, "the publication also sends UPDATEs, and one of an outbox row ends the relay: SET (publish = 'insert')",
			slog.String("publication", catalog.Publication.Name))
	}
}
