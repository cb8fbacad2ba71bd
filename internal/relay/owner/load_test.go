package owner

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// A load generates an endless stream as a WAL sender sends it for the outbox table of package migrations. It reuses
// a ring of batches with new positions.
type load struct {
	ring [ringSize]loadBatch
	used int
	end  pglogrepl.LSN // of the newest transaction
}

// A loadBatch holds some whole transactions.
type loadBatch struct {
	replication.Batch
	wire            []byte   // the same bytes as consecutive CopyData messages
	begins, commits [][]byte // the messages with positions; they share the memory of wire
	rows            int
}

const (
	ringSize     = 8
	minBatchRows = 500 // more only if a transaction has more
	loadKeys     = 4096
	loadTopic    = "order"

	// walFrame is the size of the header in front of pgoutput's bytes: type and length of CopyData, 'w', two
	// positions and a timestamp.
	walFrame = 1 + 4 + 1 + 3*8
)

// newLoad returns a load with transactions of the given number of rows and payloads of the given number of bytes.
func newLoad(rows, payload int) *load {
	l := &load{end: 1 << 20}
	for i := range l.ring {
		b := &l.ring[i]
		b.addMessage(streamtest.RelationOf(loadColumns...)) // Postgres resends it from time to time
		for b.rows < minBatchRows {
			b.addMessage(streamtest.Begin(0).Data)
			for range rows {
				b.addMessage(streamtest.InsertOf(loadRow(i*minBatchRows+b.rows, payload)...))
				b.rows++
			}
			b.addMessage(streamtest.Commit(0, 0).Data)
		}
		b.splitMessages()
	}
	return l
}

// loadColumns are the columns of the table of package migrations.
var loadColumns = []string{"id", "position", "aggregatetype", "aggregateid", "type", "payload", "headers", "created_at", "xid"}

func loadRow(n, payload int) []string {
	return []string{
		fmt.Sprintf("0197a0e0-0000-7000-8000-%012d", n), fmt.Sprint(1_000_000 + n), loadTopic,
		fmt.Sprintf("order-%04d", n*7919%loadKeys), "OrderPlaced",
		`{"body": "` + strings.Repeat("x", payload-len(`{"body": ""}`)) + `"}`,
		streamtest.Null, "2026-03-01 12:30:00.123456+00", "731",
	}
}

func (b *loadBatch) addMessage(message []byte) {
	b.wire = binary.BigEndian.AppendUint32(append(b.wire, 'd'), uint32(walFrame-1+len(message)))
	b.wire = append(append(b.wire, 'w'), make([]byte, 3*8)...)
	b.wire = append(b.wire, message...)
}

// splitMessages finds the messages in wire. No message may be added afterwards.
func (b *loadBatch) splitMessages() {
	for rest := b.wire; len(rest) > 0; {
		size := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		m := streamtest.WALData(rest[walFrame:size])
		switch m.Data[0] {
		case 'B':
			b.begins = append(b.begins, m.Data)
		case 'C':
			b.commits = append(b.commits, m.Data)
		}
		b.Messages = append(b.Messages, m)
		rest = rest[size:]
	}
}

// nextBatch returns the next batch. It is valid until nextBatch has been called ringSize-1 more times.
func (l *load) nextBatch() *loadBatch {
	b := &l.ring[l.used%ringSize]
	l.used++
	for i := range b.begins {
		at := uint64(l.end) + 0x400
		l.end = pglogrepl.LSN(at + 0x30)
		binary.BigEndian.PutUint64(b.begins[i][1:], at)
		binary.BigEndian.PutUint64(b.commits[i][2:], at)
		binary.BigEndian.PutUint64(b.commits[i][10:], uint64(l.end))
	}
	return b
}

// rowBytes returns the size of the stream in bytes per row.
func (l *load) rowBytes() int64 {
	return int64(len(l.ring[0].wire) / l.ring[0].rows)
}

// eachLoad runs f for transactions of each size, with small and medium rows.
func eachLoad(b *testing.B, f func(b *testing.B, l *load)) {
	b.Helper()
	for _, rows := range []int{1, 10, 1000} {
		for _, payload := range []int{200, 1000} {
			b.Run(fmt.Sprintf("rows=%d/payload=%d", rows, payload), func(b *testing.B) {
				l := newLoad(rows, payload)
				b.SetBytes(l.rowBytes())
				b.ReportAllocs()
				f(b, l)
			})
		}
	}
}

// A loadServer streams batches from a channel until the channel is closed.
type loadServer struct{ batches chan *loadBatch }

// openStream returns a started stream from a WAL sender, over TCP.
func openStream(tb testing.TB, w *loadServer) *replication.Stream {
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

// serve handles one session.
func (w *loadServer) serve(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	server := walsender.New(conn)
	if err := server.Accept(); err != nil {
		return
	}
	settings := maps.Clone(server.Startup)
	settings["wal_sender_timeout"] = "60000"
	for {
		m, err := server.Receive()
		if err != nil {
			return
		}
		q, ok := m.(*pgproto3.Query)
		switch {
		case !ok:
		case q.String == "IDENTIFY_SYSTEM":
			server.SendSystem("1")
		case strings.HasPrefix(q.String, "START_REPLICATION"):
			server.StartCopy()
			w.sendBatches(conn)
			return
		default:
			server.SendSettings(settings)
		}
	}
}

// sendBatches sends the batches. It does not read the status updates of the client.
func (w *loadServer) sendBatches(conn net.Conn) {
	for batch := range w.batches {
		if _, err := conn.Write(batch.wire); err != nil {
			return
		}
	}
}
