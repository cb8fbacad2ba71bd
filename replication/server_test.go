package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(pgtest.Wrap(m)) }

// A server is the server side of one connection. It responds to commands, and streams data from the test.
type server struct {
	*walsender.Conn

	tb       testing.TB
	settings map[string]string       // session settings
	refuse   *pgproto3.ErrorResponse // response to START_REPLICATION; nil: it streams
	timeline string
	history  string         // contents of the history file
	silent   bool           // does not respond to CopyDone
	stream   func(net.Conn) // if set, streams instead of the test
	accept   func()         // called before the session

	refuseHistory *pgproto3.ErrorResponse // response to TIMELINE_HISTORY; nil: history

	command  string // the received START_REPLICATION
	statuses chan status
	copyDone chan struct{} // closed when the client has ended the copy
	gone     chan struct{} // closed when the client has ended the session
}

// A status is a received status update.
type status struct {
	at    time.Duration // since the stream began
	lsn   pglogrepl.LSN // write, flush and apply
	asked bool
}

func newServer(tb testing.TB, conn net.Conn) *server {
	tb.Helper()
	settings := streamSettings()
	settings["datestyle"] = "ISO, MDY"
	settings[senderTimeout] = "60000"
	return &server{
		Conn: walsender.New(conn), tb: tb, settings: settings, timeline: "3", history: "1\t0/20\tx\n\n2\t0/1000\tx\n",
		statuses: make(chan status, 1<<10), copyDone: make(chan struct{}), gone: make(chan struct{}),
	}
}

// serve responds until the client has disconnected.
func (s *server) serve() {
	defer close(s.gone)
	defer s.Net.Close()
	if s.accept != nil {
		s.accept()
	}
	if err := s.Accept(); err != nil {
		return
	}
	var began time.Time
	for {
		m, err := s.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			began = time.Now()
			s.query(m.String)
		case *pgproto3.CopyData:
			s.statuses <- s.status(m.Data, began)
		case *pgproto3.CopyDone:
			close(s.copyDone)
			if !s.silent {
				s.Send(&pgproto3.CopyDone{})
				s.Send(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")})
				s.SendReady()
			}
		case *pgproto3.Terminate:
			return
		}
	}
}

func (s *server) query(sql string) {
	switch {
	case sql == "IDENTIFY_SYSTEM":
		s.SendSystem(s.timeline)
	case sql == "TIMELINE_HISTORY "+s.timeline:
		if s.refuseHistory != nil {
			s.Send(s.refuseHistory)
			s.SendReady()
			return
		}
		s.SendRows([]string{"filename", "content"}, []string{"00000003.history", s.history})
	case strings.HasPrefix(sql, "SELECT lower(name), setting"):
		s.SendSettings(s.settings)
	case strings.HasPrefix(sql, "START_REPLICATION"):
		s.command = sql
		if s.refuse != nil {
			s.Send(s.refuse)
			s.SendReady()
			return
		}
		s.StartCopy()
		if s.stream != nil {
			s.stream(s.Net)
		}
	default:
		s.tb.Errorf("unexpected query %q", sql)
	}
}

func (s *server) status(b []byte, began time.Time) status {
	now := time.Now()
	lsn := func(i int) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b[i:])) }
	if len(b) != 34 || b[0] != 'r' || lsn(1) != lsn(9) || lsn(1) != lsn(17) || b[33] > 1 {
		s.tb.Errorf("status update %x", b)
		return status{}
	}
	clock := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(binary.BigEndian.Uint64(b[25:])) * time.Microsecond)
	if clock.Before(began.Truncate(time.Microsecond)) || clock.After(now) {
		s.tb.Errorf("status update from %s", clock)
	}
	return status{at: now.Sub(began), lsn: lsn(1), asked: b[33] == 1}
}

// send streams bytes. It blocks until the client has read them.
func (s *server) send(messages ...[]byte) {
	for _, m := range messages {
		if _, err := s.Net.Write(m); err != nil {
			return
		}
	}
}

// reports returns the status updates received so far.
func (s *server) reports() []status {
	var all []status
	for {
		select {
		case st := <-s.statuses:
			all = append(all, st)
		default:
			return all
		}
	}
}

// encode returns the bytes of a message of the server.
func encode(m pgproto3.BackendMessage) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func copyData(body []byte) []byte { return encode(&pgproto3.CopyData{Data: body}) }

// walData returns WAL data with a message of the plugin.
func walData(start pglogrepl.LSN, data string) []byte {
	b := []byte{'w'}
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, 0)
	return copyData(append(b, data...))
}

// commit returns WAL data with a Commit message.
func commit(commitLSN, end pglogrepl.LSN) []byte {
	b := []byte{'C', 0}
	b = binary.BigEndian.AppendUint64(b, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	b = binary.BigEndian.AppendUint64(b, 0)
	return walData(commitLSN, string(b))
}

func keepalive(walEnd pglogrepl.LSN, ask bool) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(walEnd))
	b = binary.BigEndian.AppendUint64(b, 0)
	if ask {
		return copyData(append(b, 1))
	}
	return copyData(append(b, 0))
}

// testConfig returns a configuration that connects with dial.
func testConfig(tb testing.TB, dial func() (net.Conn, error)) Config {
	tb.Helper()
	cfg, err := pgconn.ParseConfig("host=127.0.0.1 user=u database=app sslmode=disable connect_timeout=0")
	if err != nil {
		tb.Fatal(err)
	}
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return dial() }
	return Config{Conn: cfg, Publication: "pub", Slot: "slot"}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A session is a Stream that is connected to a server of the test. Its fields may be changed before
// open.
type session struct {
	t      *testing.T
	cfg    Config
	server *server
	stream *Stream

	confirmed atomic.Uint64
	position  func() pglogrepl.LSN // the argument of Run; by default it returns confirmed
	out       chan *Batch
	ended     chan error
	cancel    context.CancelCauseFunc
}

func newSession(t *testing.T) *session {
	t.Helper()
	client, remote := net.Pipe()
	s := &session{t: t, server: newServer(t, remote), out: make(chan *Batch), ended: make(chan error, 1)}
	s.cfg = testConfig(t, func() (net.Conn, error) { return client, nil })
	s.position = func() pglogrepl.LSN { return pglogrepl.LSN(s.confirmed.Load()) }
	return s
}

// open opens the stream and starts it at from.
func (s *session) open(from pglogrepl.LSN) *session {
	s.t.Helper()
	go s.server.serve()
	var err error
	if s.stream, err = Open(s.t.Context(), s.cfg, discard()); err != nil {
		s.t.Fatal(err)
	}
	if err := s.stream.Start(s.t.Context(), from); err != nil {
		s.t.Fatal(err)
	}
	s.confirmed.Store(uint64(from))
	return s
}

// run runs the stream until the test ends.
func (s *session) run() *session {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	s.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- s.stream.Run(ctx, s.position, s.out)
	}()
	s.t.Cleanup(func() {
		cancel(nil)
		<-done
		s.stream.wire.conn.Close()
		<-s.server.gone
	})
	return s
}

// receive returns the messages of the next batch as short texts, and releases it.
func (s *session) receive() []string {
	s.t.Helper()
	select {
	case b := <-s.out:
		defer b.Release()
		return describe(b)
	case err := <-s.ended:
		s.t.Fatalf("the stream has ended: %v", err)
		return nil
	}
}

// lastError returns why the stream ended: the row that cannot be streamed, or the error of Run.
func (s *session) lastError() error {
	for {
		select {
		case b := <-s.out:
			row, ok := b.Messages[len(b.Messages)-1].(*RowError)
			b.Release()
			if ok {
				return row
			}
		case err := <-s.ended:
			return err
		}
	}
}

// drain releases every batch until stop is called, after the end of the stream.
func (s *session) drain() (stop func()) {
	go func() {
		for b := range s.out {
			b.Release()
		}
	}()
	return func() { close(s.out) }
}

func describe(b *Batch) []string {
	var all []string
	for _, m := range b.Messages {
		switch m := m.(type) {
		case *WALData:
			all = append(all, fmt.Sprintf("%s %s", m.Start, m.Data))
		case *Keepalive:
			all = append(all, fmt.Sprintf("keepalive %s %t", m.WALEnd, m.replyRequested))
		case *RowError:
			all = append(all, m.Error())
		}
	}
	return all
}
