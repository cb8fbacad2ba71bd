package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A script is what a source reads, message by message: the pgoutput bytes a server sends.
type script []replication.Message

const outboxOID = 16385

func data(b []byte) *replication.WALData { return &replication.WALData{Start: 1, Data: b} }

func begin(commitLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, 0) // 2000-01-01
	return data(binary.BigEndian.AppendUint32(b, 731))
}

func commit(commitLSN, endLSN pglogrepl.LSN) *replication.WALData {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(endLSN))
	return data(binary.BigEndian.AppendUint64(b, 0))
}

func outboxRelation() *replication.WALData {
	return data(relationOf("id", "aggregatetype", "aggregateid", "type", "payload"))
}

// relationOf describes the table that insertOf inserts into, all its columns being text.
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

// null stands for NULL in a row.
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

// insert is a row of the key with id and payload n.
func insert(key string, n int) *replication.WALData {
	return insertInto("order", key, n)
}

func insertInto(aggregate, key string, n int) *replication.WALData {
	return data(insertOf(fmt.Sprint("id-", n), aggregate, key, "T", fmt.Sprint(n)))
}

func keepalive(lsn pglogrepl.LSN) *replication.Keepalive { return &replication.Keepalive{WALEnd: lsn} }

// transaction is one whole transaction of the key's rows.
func transaction(commitLSN, endLSN pglogrepl.LSN, key string, ns ...int) script {
	s := script{begin(commitLSN)}
	for _, n := range ns {
		s = append(s, insert(key, n))
	}
	return append(s, commit(commitLSN, endLSN))
}

func join(scripts ...script) script {
	s := script{outboxRelation()}
	for _, part := range scripts {
		s = append(s, part...)
	}
	return s
}

// A scriptedSource hands its script over, one message a batch, and then waits for the end
// of reading, or ends with err if that is set.
type scriptedSource struct {
	script   script
	err      error
	reported pglogrepl.LSN
	closed   bool
	next     chan struct{} // if set, every message waits for a token
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
		return s.err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *scriptedSource) Expired() error { return nil }

func (s *scriptedSource) Close(_ context.Context, confirmed pglogrepl.LSN) error {
	s.reported, s.closed = confirmed, true
	return nil
}

// A scriptedProducer takes records and answers them when told to.
type scriptedProducer struct {
	auto   bool                       // acknowledge at once
	hold   uint64                     // the record of this number waits for ack all the same
	refuse func(r *sink.Record) error // an error makes the record's outcome that error

	mu     sync.Mutex
	sent   []string // key/value of every record
	open   []uint64
	failed error
	done   func([]uint64, error)
	ready  chan struct{} // closed when Run has begun
	closed chan struct{}
	moved  chan struct{}
}

func newScriptedProducer() *scriptedProducer {
	return &scriptedProducer{auto: true, ready: make(chan struct{}), closed: make(chan struct{}), moved: make(chan struct{}, 1)}
}

func (p *scriptedProducer) Send(_ context.Context, r *sink.Record) error {
	<-p.ready
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return p.failed
	}
	p.sent = append(p.sent, string(r.Key)+"/"+string(r.Value))
	if p.refuse != nil {
		if err := p.refuse(r); err != nil {
			p.failed = err
			p.done([]uint64{r.Seq}, err)
			return nil
		}
	}
	if p.auto && r.Seq != p.hold {
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
	close(p.ready)
	select {
	case <-p.closed:
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
		case <-p.moved:
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
	p.moved <- struct{}{}
}

func (p *scriptedProducer) records() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.sent, " ")
}

const drainTimeout = 25 * time.Second

// given has a session write to w.
func given(w sink.Writer) func(sink.WriterConfig) sink.Writer {
	return func(sink.WriterConfig) sink.Writer { return w }
}

func sessionOf(tb testing.TB, src source, prod sink.Writer, start pglogrepl.LSN, lost cut) *session {
	tb.Helper()
	c, err := New(Config{Route: encode.Config{Columns: encode.DefaultColumns(), Topic: "${route}"}, DrainTimeout: drainTimeout}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	return newSession(c, src, given(prod), start, lost, &catalog.Publication{Insert: true})
}

// A stop in the middle of a transaction reads on to its end, publishes nothing of the next
// one, and reports the position.
func TestStopEndsAtTransactionBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{next: make(chan struct{}), script: join(
			transaction(100, 110, "a", 1), transaction(200, 210, "a", 2, 3), transaction(300, 310, "a", 4))}
		prod := newScriptedProducer()
		s := sessionOf(t, src, prod, 0, cut{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		for range 6 { // up to row 2, of two
			src.next <- struct{}{}
		}
		synctest.Wait()
		stop()
		for range 2 { // row 3 and the commit
			src.next <- struct{}{}
		}
		if err := <-ended; err != nil {
			t.Errorf("session ended with %v", err)
		}
		if got, want := prod.records(), "a/1 a/2 a/3"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if src.reported != 210 {
			t.Errorf("reported %s, want 0/D2", src.reported)
		}
	})
}

// A stop waits for acknowledgements, and no longer than the drain timeout.
func TestStopDrains(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &scriptedSource{script: join(transaction(100, 110, "a", 1), transaction(200, 210, "b", 2))}
				prod := newScriptedProducer()
				prod.auto = false
				s := sessionOf(t, src, prod, 50, cut{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- s.run(ctx) }()
				synctest.Wait()
				stop()
				time.Sleep(time.Second)
				prod.ack(1)
				synctest.Wait()
				want, took := pglogrepl.LSN(110), drainTimeout
				if answered {
					prod.ack(1)
					want, took = 210, time.Second
				}
				err := <-ended
				if errors.Is(err, errDrainTimeout) == answered || (answered && err != nil) {
					t.Errorf("session ended with %v", err)
				}
				if code := ExitCode(err); code != ExitOK {
					t.Errorf("exit code %d", code)
				}
				if src.reported != want {
					t.Errorf("reported %s, want %s", src.reported, want)
				}
				if d := time.Since(began); d != took {
					t.Errorf("took %v, want %v", d, took)
				}
			})
		})
	}
}

// A refused record ends the session with its place in the log; what was before it is
// confirmed, nothing after it.
func TestRefusedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: join(
			transaction(100, 110, "a", 1), transaction(200, 210, "b", 2, 3, 4), transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		refused := &sink.RecordError{Topic: "order", Reason: errors.New("too large")}
		prod.refuse = func(r *sink.Record) error {
			if string(r.Value) == "3" {
				return refused
			}
			return nil
		}
		err := sessionOf(t, src, prod, 0, cut{}).run(t.Context())
		if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "transaction 0/C8, row 1: ") {
			t.Errorf("session ended with %v", err)
		}
		if code := ExitCode(err); code != ExitBadRecord {
			t.Errorf("exit code %d, want %d", code, ExitBadRecord)
		}
		if src.reported != 110 {
			t.Errorf("reported %s, want 0/6E", src.reported)
		}
	})
}

// A row that cannot become a record: everything before it is delivered.
func TestBadRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: join(
			transaction(100, 110, "a", 1), script{begin(200), insert("b", 2), insertInto("no topic", "b", 3), commit(200, 210)}, transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		prod.auto = false
		s := sessionOf(t, src, prod, 0, cut{})
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		prod.ack(2)
		err := <-ended
		var row *encode.RowError
		if !errors.As(err, &row) || row.ID != "id-3" || !strings.HasPrefix(err.Error(), "transaction 0/C8, row 1: ") {
			t.Errorf("session ended with %v", err)
		}
		if got := prod.records(); got != "a/1 b/2" {
			t.Errorf("sent %s", got)
		}
		if src.reported != 110 {
			t.Errorf("reported %s, want 0/6E", src.reported)
		}
	})
}

// A source that is lost in the middle of a transaction costs no repetition: the sink
// drains, and the next session skips what was acknowledged, also when it is cut again.
func TestSourceLostInTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := fmt.Errorf("read: %w", replication.ErrUnreachable)
		whole := transaction(200, 210, "a", 2, 3, 4, 5)
		var start pglogrepl.LSN
		var left cut
		var sent []string
		for _, step := range []struct {
			script script
			want   cut
		}{
			{join(transaction(100, 110, "a", 1), whole[:3]), cut{200, 2}}, // rows 2 and 3
			{join(), cut{200, 2}},          // nothing came
			{join(whole[:2]), cut{200, 2}}, // cut before what is known
			{join(whole[:4]), cut{200, 3}}, // one row further
			{join(whole), cut{}},
		} {
			src := &scriptedSource{script: step.script, err: lost}
			prod := newScriptedProducer()
			s := sessionOf(t, src, prod, start, left)
			if err := s.run(t.Context()); !errors.Is(err, replication.ErrUnreachable) {
				t.Fatalf("session ended with %v", err)
			}
			start, left = s.tracker.Confirmed(), s.publication.rest()
			sent = append(sent, prod.sent...)
			if diff := cmp.Diff(step.want, left, cmp.AllowUnexported(cut{})); diff != "" {
				t.Errorf("cut (-want +got):\n%s", diff)
			}
		}
		if got, want := strings.Join(sent, " "), "a/1 a/2 a/3 a/4 a/5"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if start != 210 {
			t.Errorf("confirmed %s", start)
		}
	})
}

// A source that ends by itself is let go at once: a server that stops waits for its
// connections, and the sink may take long to drain.
func TestSourceEndsWhileSinkIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: join(transaction(100, 110, "a", 1), transaction(200, 210, "a", 2)), err: replication.ErrServerStopping}
		prod := newScriptedProducer()
		prod.auto = false
		s := sessionOf(t, src, prod, 0, cut{})
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		if !src.closed {
			t.Error("the connection is held while the sink drains")
		}
		prod.ack(2)
		if err := <-ended; !errors.Is(err, replication.ErrServerStopping) {
			t.Errorf("session ended with %v", err)
		}
		if got := s.tracker.Confirmed(); got != 210 {
			t.Errorf("confirmed %s for the next session", got)
		}
	})
}

// Keepalives move the position of an idle outbox, and never past what is outstanding.
func TestKeepalives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: join(script{keepalive(150), begin(200), keepalive(195), insert("a", 1), commit(200, 210), keepalive(400)})}
		prod := newScriptedProducer()
		prod.auto = false
		s := sessionOf(t, src, prod, 100, cut{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		synctest.Wait()
		if got := s.tracker.Confirmed(); got != 150 {
			t.Errorf("confirmed %s while a record is outstanding, want 0/96", got)
		}
		prod.ack(1)
		if got := s.tracker.Confirmed(); got != 400 {
			t.Errorf("confirmed %s, want 0/190", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A kind of change that was not published when the session began means that the
// publication was changed.
func TestUnexpectedChange(t *testing.T) {
	b := binary.BigEndian.AppendUint32([]byte{'T'}, 1)
	truncate := data(binary.BigEndian.AppendUint32(append(b, 0), outboxOID))
	script := join(script{begin(200), truncate, commit(200, 210)})
	synctest.Test(t, func(t *testing.T) {
		s := sessionOf(t, &scriptedSource{script: script}, newScriptedProducer(), 0, cut{})
		err := s.run(t.Context())
		if ExitCode(err) != ExitNoDelivery || !strings.Contains(err.Error(), "TRUNCATE of public.outbox") {
			t.Errorf("session ended with %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: script, err: replication.ErrServerStopping}
		s := sessionOf(t, src, newScriptedProducer(), 0, cut{})
		s.publication.published = &catalog.Publication{Insert: true, Truncate: true}
		if err := s.run(t.Context()); !errors.Is(err, replication.ErrServerStopping) || s.tracker.Confirmed() != 210 {
			t.Errorf("session ended with %v at %s", err, s.tracker.Confirmed())
		}
	})
}

// While one record is not acknowledged, others go on, but not without end.
func TestSpanIsBounded(t *testing.T) {
	const span = 100
	synctest.Test(t, func(t *testing.T) {
		long := script{outboxRelation()}
		for n := range span + 10 {
			lsn := pglogrepl.LSN(1000 + 10*n)
			long = append(long, begin(lsn), insert("a", n), commit(lsn, lsn+5))
		}
		prod := newScriptedProducer()
		prod.hold = 1
		s := sessionOf(t, &scriptedSource{script: long, err: replication.ErrServerStopping}, prod, 0, cut{})
		s.publication.maxSpan = span
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		if got := len(prod.sent); got != span {
			t.Errorf("%d records sent behind one that is not acknowledged, want %d", got, span)
		}
		prod.ack(1)
		if err := <-ended; !errors.Is(err, replication.ErrServerStopping) {
			t.Error(err)
		}
		if got := len(prod.sent); got != span+10 {
			t.Errorf("%d records sent in the end", got)
		}
	})
}

func TestPositionStaysInItsEpoch(t *testing.T) {
	home := epoch{system: replication.System{ID: "7", Timeline: 1, Database: "app"}, slot: "s"}
	p := position{epoch: home, confirmed: 500, cut: cut{600, 3}}
	if lsn, c := p.resume(home); lsn != 500 || c != p.cut {
		t.Errorf("same epoch: %s %v", lsn, c)
	}
	for name, change := range map[string]func(*epoch){
		"timeline": func(e *epoch) { e.system.Timeline++ }, "system": func(e *epoch) { e.system.ID = "8" },
		"slot": func(e *epoch) { e.slot = "t" },
	} {
		other := home
		change(&other)
		if lsn, c := p.resume(other); lsn != 0 || c != (cut{}) {
			t.Errorf("another %s: %s %v", name, lsn, c)
		}
	}
	if lsn, _ := (position{}).resume(home); lsn != 0 {
		t.Errorf("first session: %s", lsn)
	}
}
