package replication

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A source is a database with an outbox table, a publication and a slot.
type source struct {
	*pgtest.DB
	cfg Config
}

// newSource creates a source.
func newSource(t *testing.T, srv *pgserver.Server) *source {
	t.Helper()
	db := pgtest.DatabaseOn(t, srv)
	db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY, payload text)")
	return sourceOf(t, db)
}

// sourceOf creates the publication and the slot for the outbox of db. Slots belong to the server, so the slot has
// the name of the database.
func sourceOf(t *testing.T, db *pgtest.DB) *source {
	t.Helper()
	db.Exec(t, "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')")
	db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Name)
	return &source{DB: db, cfg: Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name}}
}

// confirmed returns confirmed_flush_lsn of the slot.
func (s *source) confirmed(t *testing.T) pglogrepl.LSN {
	t.Helper()
	return lsn(t, s, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", s.cfg.Slot)
}

// insert inserts the rows from to to in one transaction.
func (s *source) insert(t *testing.T, from, to int) {
	t.Helper()
	s.Exec(t, "INSERT INTO outbox SELECT i, repeat('x', 400) FROM generate_series($1::int, $2::int) i", from, to)
}

// A reader runs a stream and records the messages. It confirms the end LSNs of transactions, and keepalives between
// them, unless holdBack is set.
type reader struct {
	stream    *Stream
	confirmed atomic.Uint64
	holdBack  bool
	highest   atomic.Uint64 // highest position that may be confirmed
	free      atomic.Bool   // stops holding back
	rows      atomic.Int64
	commits   chan pglogrepl.LSN // end LSNs of the transactions with rows
	ended     chan error
	cancel    context.CancelCauseFunc
}

// start opens the stream, starts it at from, and reads until the test ends.
func (s *source) start(t *testing.T, from pglogrepl.LSN, holdBack bool) *reader {
	t.Helper()
	stream, err := Open(t.Context(), s.cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Start(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &reader{
		stream: stream, holdBack: holdBack, cancel: cancel,
		commits: make(chan pglogrepl.LSN, 1000), ended: make(chan error, 1),
	}
	r.confirmed.Store(uint64(from))
	out := make(chan *Batch, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := range out {
			r.batch(b)
		}
	}()
	go func() {
		defer close(out)
		r.ended <- stream.Run(ctx, func() pglogrepl.LSN { return pglogrepl.LSN(r.confirmed.Load()) }, out)
	}()
	t.Cleanup(func() {
		cancel(nil)
		<-done
		stream.wire.conn.Close()
	})
	return r
}

func (r *reader) batch(b *Batch) {
	defer b.Release()
	rows := 0
	for _, m := range b.Messages {
		switch m := m.(type) {
		case *Keepalive:
			r.confirm(m.WALEnd) // nothing is in flight, and keepalives do not occur inside a transaction here
		case *RowError:
			panic(m) // no test sends one
		case *WALData:
			if m.Data[0] == 'I' {
				rows++
				r.rows.Add(1)
			}
			if end, ok := commitEndLSN(m.Data); ok {
				r.confirm(end)
				r.commits <- end
			}
		}
	}
}

func (r *reader) confirm(lsn pglogrepl.LSN) {
	r.highest.Store(max(r.highest.Load(), uint64(lsn)))
	if (!r.holdBack || r.free.Load()) && uint64(lsn) > r.confirmed.Load() {
		r.confirmed.Store(uint64(lsn))
	}
}

// close stops reading and closes the stream.
func (r *reader) close(t *testing.T) {
	t.Helper()
	r.cancel(nil)
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	if err := r.stream.Close(ctx, pglogrepl.LSN(r.confirmed.Load())); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// wait returns the error that ended the stream.
func (r *reader) wait(t *testing.T) error {
	t.Helper()
	return wait.Receive(t, "the end of the stream", r.ended)
}

func TestStreamsWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		created := s.confirmed(t)
		s.insert(t, 1, 10)

		r := s.start(t, 0, true)
		end := <-r.commits
		if got := r.rows.Load(); got != 10 {
			t.Errorf("%d rows", got)
		}
		if pid := pgtest.QueryRow[uint32](t, s.DB, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1", s.cfg.Slot); pid != r.stream.PID() {
			t.Errorf("process %d holds the slot, the stream says %d", pid, r.stream.PID())
		}
		r.close(t)
		if got := s.confirmed(t); got != created {
			t.Errorf("nothing was confirmed, but the slot advanced from %s to %s", created, got)
		}
		if pgtest.QueryRow[bool](t, s.DB, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", s.cfg.Slot) {
			t.Error("the slot is active after Close")
		}

		r = s.start(t, 0, true)
		if again := <-r.commits; again != end {
			t.Errorf("the transaction ended at %s, and now at %s", end, again)
		}
		r.confirmed.Store(uint64(end))
		wait.For(t, "the slot is where it was confirmed", func() bool { return s.confirmed(t) == end })
		s.insert(t, 11, 12)
		<-r.commits
		r.close(t)

		r = s.start(t, end, false)
		end = <-r.commits
		if got := r.rows.Load(); got != 2 {
			t.Errorf("%d rows after those that were confirmed", got)
		}
		r.close(t)
		if got := s.confirmed(t); got < end {
			t.Errorf("the slot is at %s after Close with %s", got, end)
		}
	})
}

// Keepalives advance the slot of an idle outbox while rows are written to other tables.
func TestKeepalivesMoveAnIdleSlot(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, "CREATE TABLE other (i int)")
		r := s.start(t, 0, false)
		s.Exec(t, "INSERT INTO other SELECT generate_series(1, 10000)")
		target := lsn(t, s, "SELECT pg_current_wal_lsn()::text")
		wait.For(t, "the slot passes what others wrote", func() bool { return s.confirmed(t) >= target })
		r.close(t)
	})
}

// A client that confirms no positions gets many keepalives. It does not take that for a shutdown of the server.
func TestHoldingBackIsNoShutdown(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, "CREATE TABLE other (i int)")
		r := s.start(t, 0, true)
		n := 5
		if need.Full() {
			n = 20
		}
		for i := range n {
			s.insert(t, i+1, i+1)
			s.Exec(t, "INSERT INTO other VALUES (1)")
			<-r.commits
			select {
			case err := <-r.ended:
				t.Fatalf("Run: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
		}
		r.close(t)
	})
}

func lsn(t *testing.T, s *source, query string, args ...any) pglogrepl.LSN {
	t.Helper()
	v, err := pglogrepl.ParseLSN(pgtest.QueryRow[string](t, s.DB, query, args...))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
