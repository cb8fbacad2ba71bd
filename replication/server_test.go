package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A server plays the server's part on one connection, as the test tells it.
type server struct {
	t        testing.TB
	conn     net.Conn
	backend  *pgproto3.Backend
	settings map[string]string // answers to the question for settings
	started  chan string       // the START_REPLICATION command
	refuse   *pgproto3.ErrorResponse

	statuses chan status   // what was reported
	copyDone chan struct{} // closed when the client has ended the copy
	closed   chan struct{} // closed when the client has ended the session
}

// A status is a status update as it arrived.
type status struct {
	at                  time.Time
	write, flush, apply pglogrepl.LSN
	ask                 bool
}

func newServer(t testing.TB, conn net.Conn) *server {
	settings := sessionSettings()
	settings["datestyle"] = "ISO, MDY"
	settings[senderTimeout] = "60000"
	return &server{
		t: t, conn: conn, backend: pgproto3.NewBackend(conn, conn), settings: settings,
		started: make(chan string, 1), statuses: make(chan status, 1<<16),
		copyDone: make(chan struct{}), closed: make(chan struct{}),
	}
}

// serve answers until the client has gone.
func (s *server) serve() {
	defer close(s.closed)
	defer s.conn.Close()
	startup, err := s.backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	_ = startup
	s.backend.Send(&pgproto3.AuthenticationOk{})
	s.ready()
	for {
		m, err := s.backend.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			s.query(m.String)
		case *pgproto3.CopyData:
			s.statuses <- parseStatus(m.Data)
		case *pgproto3.CopyDone:
			close(s.copyDone)
			s.backend.Send(&pgproto3.CopyDone{})
			s.backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")})
			s.ready()
		case *pgproto3.Terminate:
			return
		}
	}
}

func (s *server) ready() {
	s.backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	_ = s.backend.Flush()
}

func (s *server) query(sql string) {
	switch {
	case sql == "IDENTIFY_SYSTEM":
		s.rows([]string{"systemid", "timeline", "xlogpos", "dbname"}, []string{"7000000000000000001", "1", "0/FF", "app"})
	case strings.HasPrefix(sql, "SELECT lower(name), setting"):
		var rows [][]string
		for name, value := range s.settings {
			rows = append(rows, []string{name, value})
		}
		s.rows([]string{"name", "setting"}, rows...)
	case strings.HasPrefix(sql, "START_REPLICATION"):
		s.started <- sql
		if s.refuse != nil {
			s.backend.Send(s.refuse)
			s.ready()
			return
		}
		s.backend.Send(&pgproto3.CopyBothResponse{})
		_ = s.backend.Flush()
	default:
		s.t.Errorf("unexpected query %q", sql)
	}
}

func (s *server) rows(columns []string, rows ...[]string) {
	var description pgproto3.RowDescription
	for _, name := range columns {
		description.Fields = append(description.Fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25})
	}
	s.backend.Send(&description)
	for _, row := range rows {
		var data pgproto3.DataRow
		for _, v := range row {
			data.Values = append(data.Values, []byte(v))
		}
		s.backend.Send(&data)
	}
	s.backend.Send(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "SELECT %d", len(rows))})
	s.ready()
}

func parseStatus(b []byte) status {
	lsn := func(i int) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b[i:])) }
	return status{at: time.Now(), write: lsn(1), flush: lsn(9), apply: lsn(17), ask: b[33] != 0}
}

// config returns a configuration whose connections are made by dial.
func config(t testing.TB, dial func() net.Conn) Config {
	t.Helper()
	cfg, err := pgconn.ParseConfig("host=127.0.0.1 user=u database=app sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return dial(), nil }
	return Config{Conn: cfg, Publication: "pub", Slot: "slot"}
}

// walData is a CopyData message with bytes of the plugin.
func walData(start pglogrepl.LSN, data string) []byte {
	b := []byte{'w'}
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, 0)
	return copyData(string(b) + data)
}

func copyData(body string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(body)))
	return append(b, body...)
}
