package replication

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

// BenchmarkRun reads rows of 480 bytes, ten to a transaction, from a server on loopback
// that sends as fast as it can.
func BenchmarkRun(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	cfg := config(b, func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Error(err)
		}
		return conn
	})
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s := newServer(b, conn)
		go s.serve()
		<-s.started
		row := walData(0x100, "I"+strings.Repeat("x", 480))
		tx := walData(0x100, "B"+strings.Repeat("x", 20))
		for range 10 {
			tx = append(tx, row...)
		}
		tx = append(tx, walData(0x100, "C"+strings.Repeat("\x00", 25))...)
		var chunk []byte
		for len(chunk) < 128<<10 {
			chunk = append(chunk, tx...)
		}
		for {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	}()
	stream, err := Open(b.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	if err := stream.Start(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	out := make(chan *Batch, 2)
	ended := make(chan error, 1)
	go func() { ended <- stream.Run(b.Context(), func() pglogrepl.LSN { return 0 }, out) }()
	b.ReportAllocs()
	b.ResetTimer()
	batches := 0
	for n := 0; n < b.N; {
		batch := <-out
		n += len(batch.Messages)
		batches++
		batch.Release()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(b.N)/float64(batches), "msgs/batch")
	b.StopTimer()
	stream.wire.conn.Close()
	<-ended
}
