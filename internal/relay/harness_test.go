package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// A script is the input of a source, message by message: pgoutput messages as a server sends them.
type script []replication.Message

const outboxOID = 16385

func walData(b []byte) *replication.WALData { return &replication.WALData{Start: 1, Data: b} }

func beginMessage(commitLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, 0) // 2000-01-01
	return walData(binary.BigEndian.AppendUint32(b, 731))
}

func commitMessage(commitLSN, endLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(endLSN))
	return walData(binary.BigEndian.AppendUint64(b, 0))
}

func outboxRelation() *replication.WALData {
	return walData(relationOf("id", "aggregatetype", "aggregateid", "type", "payload"))
}

// relationOf returns a Relation message for the table of insertOf. All columns are text.
func relationOf(columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, outboxOID)
	b = append(b, "public\x00outbox\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(append(append(b, 0), c...), 0)
		b = binary.BigEndian.AppendUint32(b, 25)
		b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	}
	return b
}

// null represents NULL in a row.
const null = "\x00"

func insertOf(row ...string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'I'}, outboxOID), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(row)))
	for _, v := range row {
		if v == null {
			b = append(b, 'n')
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// insertMessage returns the insert of a row with the given key, id n and payload n.
func insertMessage(key string, n int) *replication.WALData {
	return insertInto("order", key, n)
}

func insertInto(aggregate, key string, n int) *replication.WALData {
	return walData(insertOf(fmt.Sprint("id-", n), aggregate, key, "T", fmt.Sprint(n)))
}

func keepalive(lsn pglogrepl.LSN) *replication.Keepalive { return &replication.Keepalive{WALEnd: lsn} }

// transaction returns a whole transaction with rows of the given key.
func transaction(commitLSN, endLSN pglogrepl.LSN, key string, ns ...int) script {
	s := script{beginMessage(commitLSN)}
	for _, n := range ns {
		s = append(s, insertMessage(key, n))
	}
	return append(s, commitMessage(commitLSN, endLSN))
}

func joinScripts(scripts ...script) script {
	s := script{outboxRelation()}
	for _, part := range scripts {
		s = append(s, part...)
	}
	return s
}

// A scriptedSource returns its script, one message per batch. Then it returns err if that is set, or waits until
// reading is stopped.
type scriptedSource struct {
	script   script
	err      error
	reported pglogrepl.LSN
	closed   bool
	next     chan struct{} // if set, every message waits for a token
	lost     chan struct{} // if set, closing it ends the source with errLost
	expired  error         // returned by Expired
	silent   bool          // Close gets no response
}

func (s *scriptedSource) Run(ctx context.Context, _ func() pglogrepl.LSN, out chan<- *replication.Batch) error {
	for _, m := range s.script {
		if s.next != nil {
			select {
			case <-s.next:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case out <- &replication.Batch{Messages: []replication.Message{m}}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.err != nil {
		for range batchQueue + 1 { // then the pump has handled the earlier messages
			select {
			case out <- &replication.Batch{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return s.err
	}
	select {
	case <-s.lost:
		return errLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *scriptedSource) Expired() error  { return s.expired }
func (s *scriptedSource) Heard(time.Time) {}

func (s *scriptedSource) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	s.closed = true
	if s.silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.reported = confirmed
	return nil
}

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
	relay     *Relay
	src       source
	published *catalog.Publication
	catalog   scriptedCatalog
	watch     func(context.Context) error
}

// A scriptedCatalog has no table, unless the test says what it has.
type scriptedCatalog struct {
	describe encode.Describe
	past     func(ctx context.Context, table uint32) (catalog.Past, error)
}

func (c *scriptedCatalog) Describe(context.Context) encode.Describe { return c.describe }

func (c *scriptedCatalog) Inspect(context.Context) (*catalog.State, error) {
	return &catalog.State{Publication: &catalog.Publication{}}, nil
}

func (c *scriptedCatalog) Past(ctx context.Context, table uint32) (catalog.Past, error) {
	if c.past == nil {
		return catalog.Past{}, nil
	}
	return c.past(ctx, table)
}

// newTestSession returns an ownership that starts at position start, with its first session.
func newTestSession(tb testing.TB, src source, prod sink.Writer, start pglogrepl.LSN) *testSession {
	tb.Helper()
	s, _ := newTestSessionWith(tb, Config{}, src, prod, start)
	s.published = &catalog.Publication{Insert: true}
	return s
}

// newTestSessionWith is newTestSession with a configuration. It also returns the log.
func newTestSessionWith(tb testing.TB, cfg Config, src source, prod sink.Writer, start pglogrepl.LSN) (*testSession, *bytes.Buffer) {
	tb.Helper()
	cfg.Route.Names, cfg.Route.Columns, cfg.Route.Topic, cfg.DrainTimeout = kafka.Names{}, encode.DefaultColumns(), "${route}", drainTimeout
	log := new(bytes.Buffer)
	r, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	return newSessionOf(r, src, prod, start), log
}

// storeIn has r, which has not run, store its positions in store.
func storeIn(tb testing.TB, r *Relay, store *positiontest.Store) {
	tb.Helper()
	r.store = positiontest.Open(tb, store, slog.New(slog.DiscardHandler))
	r.positions = position.NewWriter(position.Config{Store: r.store, Log: slog.New(slog.DiscardHandler)})
}

func newSessionOf(r *Relay, src source, prod sink.Writer, start pglogrepl.LSN) *testSession {
	if err := r.positions.BeginOwnership(context.Background(), positiontest.Server(start)); err != nil {
		panic(err)
	}
	if _, err := r.positions.ChooseStart(context.Background(), positiontest.Server(start)); err != nil {
		panic(err)
	}
	return &testSession{
		ownership: newOwnership(r, beginning{start: start}, func(sink.WriterConfig) sink.Writer { return prod }), relay: r, src: src,
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
	opened := startSession(ctx, src, slotIdentity{}, 1, new(flow), new(phase))
	opened.published, opened.catalog = s.published, &s.catalog
	return s.runSession(ctx, opened, s.watch)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
