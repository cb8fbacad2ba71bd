package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// pipes is a listener without a network. The server cannot write until the client reads.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A peer is one connection to the server.
type peer struct{ net.Conn }

// dial opens a connection, sends the given text, and waits until the server has handled it.
func (p pipes) dial(t *testing.T, send string) peer {
	t.Helper()
	ours, theirs := net.Pipe()
	p <- theirs
	if send != "" {
		if _, err := io.WriteString(ours, send); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
	t.Cleanup(func() { _ = ours.Close() })
	return peer{ours}
}

// closed reports whether the server has closed the connection. It discards what the server has sent.
func (c peer) closed() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c)
	return err == nil
}

// At the connection limit, a new connection still gets a response. The server closes the connection that has been
// idle for the longest time. If none is idle, it closes one whose client does not read.
func TestConnectionsAreLimited(t *testing.T) {
	const request = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, idle := range map[string]string{
		"nothing sent": "", "half a header sent": request[:20], "answer not read": request,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, listener := newServer(nil), make(pipes)
				s.listener = listener
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error)
				go func() { ended <- s.Run(ctx, healthy) }()

				first := listener.dial(t, idle)
				var others []peer
				for range maxConnections - 1 { // later connections, all with an unread response
					bubble.Sleep(time.Millisecond)
					others = append(others, listener.dial(t, request))
				}
				for range 3 {
					probe := listener.dial(t, request)
					res, err := http.ReadResponse(bufio.NewReader(probe), nil)
					if err != nil {
						t.Fatal(err)
					}
					_ = res.Body.Close()
					if res.StatusCode != http.StatusOK {
						t.Error(res.Status)
					}
					synctest.Wait()
				}
				if !first.closed() {
					t.Error("the oldest connection is open")
				}
				for i, other := range others {
					if other.closed() {
						t.Errorf("connection %d is closed, although others were idle", i)
					}
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
