package replication

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

// BenchmarkRun reads rows of 480 bytes, ten per transaction, from a loopback server that sends as fast as it can.
// One operation is one message.
func BenchmarkRun(b *testing.B) {
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	cfg := testConfig(b, func() (net.Conn, error) {
		return new(net.Dialer).DialContext(b.Context(), "tcp", listener.Addr().String())
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s := newServer(b, conn)
		s.stream = transactions
		s.serve()
	}()
	stream, err := Open(b.Context(), cfg, discard())
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
	n, batches := 0, 0
	for b.Loop() {
		if n > 0 {
			n--
			continue
		}
		batch := <-out
		n = len(batch.Messages) - 1
		batches++
		batch.Release()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(b.N)/float64(batches), "msgs/batch")
	stream.wire.conn.Close()
	for len(ended) == 0 {
		select {
		case batch := <-out:
			batch.Release()
		case err := <-ended:
			ended <- err
		}
	}
	<-served
}

// transactions writes transactions until the connection is closed.
func transactions(conn net.Conn) {
	row := walData(0x100, "I"+strings.Repeat("x", 480))
	var chunk []byte
	for len(chunk) < 128<<10 {
		chunk = append(chunk, walData(0x100, "B"+strings.Repeat("x", 20))...)
		for range 10 {
			chunk = append(chunk, row...)
		}
		chunk = append(chunk, commit(0x100, 0x100)...)
	}
	for {
		if _, err := conn.Write(chunk); err != nil {
			return
		}
	}
}
