package catalog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(pgtest.Wrap(m)) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A source is a database with an outbox, a publication and a slot.
type source struct {
	*pgtest.DB
	cfg replication.Config
}

// newSource creates a source. Slots belong to the server, so the slot has the name of the database.
func newSource(t *testing.T, srv *pgserver.Server) *source {
	t.Helper()
	db := pgtest.DatabaseOn(t, srv)
	db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY, payload text)")
	s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name}}
	if _, err := Setup(t.Context(), s.setup("outbox")); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *source) setup(tables ...string) SetupConfig {
	return SetupConfig{Conn: s.cfg.Conn, Publication: s.cfg.Publication, Slot: s.cfg.Slot, Tables: tables}
}

func (s *source) inspect(t *testing.T) *State {
	t.Helper()
	state, err := Inspect(t.Context(), s.cfg.Conn, s.cfg.Publication, s.cfg.Slot, nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// open opens the stream of s. The stream is closed when the test ends.
func (s *source) open(t *testing.T) *replication.Stream {
	t.Helper()
	stream, err := replication.Open(t.Context(), s.cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close(context.WithoutCancel(t.Context()), 0) })
	return stream
}

// start opens the stream of s and starts it at the slot's position.
func (s *source) start(t *testing.T) *replication.Stream {
	t.Helper()
	stream := s.open(t)
	if err := stream.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return stream
}

// openAndStart streams from s. It returns the error with the explanation from the catalog.
func (s *source) openAndStart(t *testing.T) error {
	t.Helper()
	stream, err := replication.Open(t.Context(), s.cfg, discard())
	if err != nil {
		return err
	}
	defer stream.Close(t.Context(), 0)
	return Diagnose(t.Context(), stream.Config(), stream.Start(t.Context(), 0))
}

// readWhile reads pgoutput messages as long as more returns true, and returns the last one.
func readWhile(t *testing.T, stream *replication.Stream, more func(data []byte) bool) (last []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	out, ended := make(chan *replication.Batch), make(chan error, 1)
	go func() {
		defer close(out)
		ended <- stream.Run(ctx, func() pglogrepl.LSN { return 0 }, out)
	}()
	for b := range out {
		for _, m := range b.Messages {
			if data, ok := m.(*replication.WALData); ok && ctx.Err() == nil && !more(data.Data) {
				last = append(last, data.Data...)
				cancel()
			}
		}
		b.Release()
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the stream has ended: %v", err)
	}
	return last
}

// execEach runs statements, each in a transaction of its own, as the creation of a slot needs it.
func execEach(t *testing.T, db *pgtest.DB, statements string) {
	t.Helper()
	for sql := range strings.SplitSeq(statements, ";") {
		db.Exec(t, sql)
	}
}
