package relay

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A walsender plays a server that streams what it is given, until that is closed.
type walsender struct {
	conn    net.Conn
	backend *pgproto3.Backend
	stream  chan *loadBatch
}

// openStream returns a started stream from a walsender, over TCP.
func openStream(tb testing.TB, w *walsender) *replication.Stream {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.serve(listener)
	}()
	tb.Cleanup(func() {
		listener.Close()
		<-served
	})
	cfg, err := pgconn.ParseConfig("postgres://u@" + listener.Addr().String() + "/app?sslmode=disable")
	if err != nil {
		tb.Fatal(err)
	}
	stream, err := replication.Open(tb.Context(), replication.Config{Conn: cfg, Publication: "pub", Slot: "slot"}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	if err := stream.Start(tb.Context(), 0); err != nil {
		tb.Fatal(err)
	}
	return stream
}

// serve takes one session: what is asked before the stream, then the stream.
func (w *walsender) serve(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	w.conn, w.backend = conn, pgproto3.NewBackend(conn, conn)
	m, err := w.backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	settings := [][]string{{"wal_sender_timeout", "60000"}}
	for name, value := range m.(*pgproto3.StartupMessage).Parameters {
		settings = append(settings, []string{name, value})
	}
	w.backend.Send(&pgproto3.AuthenticationOk{})
	w.ready()
	for {
		m, err := w.backend.Receive()
		if err != nil {
			return
		}
		q, ok := m.(*pgproto3.Query)
		switch {
		case !ok:
		case q.String == "IDENTIFY_SYSTEM":
			w.rows([]string{"systemid", "timeline", "xlogpos", "dbname"}, []string{"7000000000000000001", "1", "0/FF", "app"})
		case strings.HasPrefix(q.String, "START_REPLICATION"):
			w.backend.Send(&pgproto3.CopyBothResponse{})
			_ = w.backend.Flush()
			w.copy()
			return
		default:
			w.rows([]string{"name", "setting"}, settings...)
		}
	}
}

func (w *walsender) ready() {
	w.backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	_ = w.backend.Flush()
}

func (w *walsender) rows(names []string, rows ...[]string) {
	var description pgproto3.RowDescription
	for _, name := range names {
		description.Fields = append(description.Fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25})
	}
	w.backend.Send(&description)
	for _, row := range rows {
		var values pgproto3.DataRow
		for _, v := range row {
			values.Values = append(values.Values, []byte(v))
		}
		w.backend.Send(&values)
	}
	w.backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT")})
	w.ready()
}

// copy leaves what the client reports in the socket.
func (w *walsender) copy() {
	for batch := range w.stream {
		if _, err := w.conn.Write(batch.wire); err != nil {
			return
		}
	}
}
