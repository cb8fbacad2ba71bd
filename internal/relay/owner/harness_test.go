package owner

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// A scriptedProducer accepts records and acknowledges them when the test says so.
type scriptedProducer struct {
	auto    bool                       // acknowledge at once
	full    int                        // the number of unacknowledged records that fills the window; 0: no limit
	heldSeq uint64                     // the record with this number waits for ack, even if auto is set
	reject  func(r *sink.Record) error // returns an error to reject the record with it

	mu       sync.Mutex
	sent     []string // key/value of every record
	at       []sink.Position
	open     []uint64
	failed   error
	done     func([]uint64, error)
	running  chan struct{} // closed when Run has started
	closed   chan struct{}
	rejected chan struct{} // closed when a record has been rejected
	acked    chan struct{}
}

func newScriptedProducer() *scriptedProducer {
	return &scriptedProducer{auto: true, running: make(chan struct{}), closed: make(chan struct{}), rejected: make(chan struct{}), acked: make(chan struct{}, 1)}
}

func (p *scriptedProducer) Send(ctx context.Context, r *sink.Record) error {
	<-p.running
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full > 0 && len(p.open) >= p.full {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if p.failed != nil {
		return p.failed
	}
	p.sent = append(p.sent, string(r.Key)+"/"+string(r.Value))
	p.at = append(p.at, r.Position)
	if p.reject != nil {
		if err := p.reject(r); err != nil {
			p.failed = err
			p.done([]uint64{r.Seq}, err)
			close(p.rejected)
			return nil
		}
	}
	if p.auto && r.Seq != p.heldSeq {
		p.done([]uint64{r.Seq}, nil)
		return nil
	}
	p.open = append(p.open, r.Seq)
	return nil
}

func (p *scriptedProducer) Flush()     {}
func (p *scriptedProducer) CloseSend() { close(p.closed) }

func (p *scriptedProducer) Run(ctx context.Context, done func([]uint64, error)) error {
	p.mu.Lock()
	p.done = done
	p.mu.Unlock()
	close(p.running)
	select {
	case <-p.closed:
	case <-p.rejected:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		p.mu.Lock()
		left, failed := len(p.open), p.failed
		p.mu.Unlock()
		if left == 0 || failed != nil {
			return failed
		}
		select {
		case <-p.acked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ack acknowledges the oldest n records.
func (p *scriptedProducer) ack(n int) {
	p.mu.Lock()
	seqs := p.open[:n]
	p.open = p.open[n:]
	p.mu.Unlock()
	p.done(seqs, nil)
	select {
	case p.acked <- struct{}{}:
	default:
	}
}

func (p *scriptedProducer) records() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.sent, " ")
}

const drainTimeout = 25 * time.Second

// A testSession is an ownership together with the source of its current session.
type testSession struct {
	*ownership
	owner     *Owner
	src       source
	from      pglogrepl.LSN // see Session.from
	published *catalog.Publication
	catalog   streamtest.Catalog
	watch     func(context.Context) error
}

// settings are those of a relay that matter to its Owner.
type settings struct {
	route           encode.Config
	tables          []string
	messages        []string
	slot            string
	deadLetterTopic string
	place           position.Place // not opened: the record is kept in memory
	skipTo          pglogrepl.LSN
	delivered       func(time.Duration, string)
	tracer          *tracing.Tracer
}

// newTestOwner returns an Owner, and its log.
func newTestOwner(tb testing.TB, st settings) (*Owner, *bytes.Buffer) {
	tb.Helper()
	st.route.Names, st.route.Columns, st.route.Topic = kafka.Names{}, encode.DefaultColumns(), "${route}"
	router, err := encode.New(st.route)
	if err != nil {
		tb.Fatal(err)
	}
	text := new(bytes.Buffer)
	log := slog.New(slog.NewTextHandler(text, nil))
	store := position.NewStore(st.place, "orders", log)
	return New(Config{
		Place: st.place, Store: store, Positions: position.New(position.Config{Store: store, Log: log}),
		Pump: pump.Config{
			Router: router, Progress: new(pump.Progress), Neighbours: pump.NewNeighbours(log), OnUpdate: st.route.OnUpdate,
			Messages: st.messages, Nonce: rand.Text(), Skip: pump.NewSkip(st.skipTo, false, log), Log: log,
		},
		DeadLetters: pump.NewDeadLetters(pump.DeadLetterConfig{
			Topic: st.deadLetterTopic, Slot: st.slot, IDColumn: st.route.Columns.ID, TopicTimeout: time.Minute, Log: log,
		}),
		DeadLetterTopic: st.deadLetterTopic, DrainTimeout: drainTimeout, SessionEnded: func(context.Context, error) {}, Draining: func(context.Context) {},
		Delivered: st.delivered, Tracer: st.tracer, Log: log,
	}), text
}

// newTestSession returns an ownership that starts at position start, with its first session.
func newTestSession(tb testing.TB, src source, prod sink.Writer, start pglogrepl.LSN) *testSession {
	tb.Helper()
	s, _ := newTestSessionWith(tb, settings{}, src, prod, start)
	s.published = &catalog.Publication{Insert: true}
	return s
}

// newTestSessionWith is newTestSession with settings. It also returns the log.
func newTestSessionWith(tb testing.TB, st settings, src source, prod sink.Writer, start pglogrepl.LSN) (*testSession, *bytes.Buffer) {
	tb.Helper()
	o, log := newTestOwner(tb, st)
	return newSessionOf(o, src, prod, start), log
}

// storeIn has o, which owns nothing yet, store its positions in store.
func storeIn(tb testing.TB, o *Owner, store *positiontest.Store) {
	tb.Helper()
	o.cfg.Store = positiontest.Open(tb, store, slog.New(slog.DiscardHandler))
	o.positions = position.New(position.Config{Store: o.cfg.Store, Log: slog.New(slog.DiscardHandler)})
}

func newSessionOf(o *Owner, src source, prod sink.Writer, start pglogrepl.LSN) *testSession {
	if err := o.positions.Starter.BeginOwnership(context.Background(), positiontest.Server(start)); err != nil {
		panic(err)
	}
	if _, err := o.positions.Starter.ChooseStart(context.Background(), positiontest.Server(start)); err != nil {
		panic(err)
	}
	o.cfg.NewWriter = func(sink.WriterConfig) sink.Writer { return prod }
	return &testSession{
		ownership: o.newOwnership(beginning{start: start}), owner: o, src: src,
		published: &catalog.Publication{Insert: true, Update: true}, watch: func(context.Context) error { return nil },
	}
}

// run runs one session. If the ownership could continue afterwards, run abandons it.
func (s *testSession) run(ctx context.Context) error {
	err := s.next(ctx, s.src)
	if !s.over {
		s.abandon(errors.New("the test is over"))
	}
	return err
}

// next runs another session of the ownership.
func (s *testSession) next(ctx context.Context, src source) error {
	if s.life == nil {
		s.ownership.run(ctx)
	}
	opened := s.owner.startSession(ctx, src, slotIdentity{}, 1)
	opened.from = s.from
	return s.runSession(ctx, opened, s.published, &s.catalog, s.watch)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
