package faultproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// connect returns both ends of a new connection through p to the server l.
func connect(t *testing.T, p *faultproxy.Proxy, l net.Listener) (client, server net.Conn) {
	t.Helper()
	before := p.Accepted()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	for p.Accepted() == before {
		time.Sleep(time.Millisecond)
	}
	return client, server
}

// start starts a server and a proxy to it.
func start(t *testing.T, toxics ...string) (*faultproxy.Proxy, net.Listener) {
	t.Helper()
	p := faultproxy.Start(t, "", toxics...)
	l, err := p.Listen("tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if l.Addr().String() != p.Addr() {
		t.Fatalf("the server advertises %v, not %s", l.Addr(), p.Addr())
	}
	return p, l
}

// passes sends a line of six bytes and checks that the peer receives it.
func passes(t *testing.T, from, to net.Conn) {
	t.Helper()
	io.WriteString(from, "hello\n")
	if got, err := bufio.NewReader(to).ReadString('\n'); got != "hello\n" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// fill writes to conn until the buffers are full and only a read of the peer would empty them.
func fill(conn net.Conn) {
	conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	io.WriteString(conn, strings.Repeat("x", 64<<20))
}

func TestCut(t *testing.T) {
	p, l := start(t)
	client, server := connect(t, p, l)
	other, _ := connect(t, p, l)
	passes(t, client, server)
	passes(t, server, client)
	fill(server) // the client does not read
	p.Cut()
	for _, conn := range []net.Conn{client, server, other} {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is not closed")
		}
	}
	client, server = connect(t, p, l)
	passes(t, client, server)
}

func TestCutIsAResetWithThatToxic(t *testing.T) {
	p, l := start(t, `{"type": "reset_peer", "toxicity": 0}`)
	client, server := connect(t, p, l)
	passes(t, client, server)
	p.Cut()
	for _, conn := range []net.Conn{client, server} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	}
}

func TestCutAfterPassesExactlySoManyBytes(t *testing.T) {
	p, l := start(t)
	for _, d := range []stream.Direction{stream.Upstream, stream.Downstream} {
		client, server := connect(t, p, l)
		other, _ := connect(t, p, l)
		from, to := client, server
		if d == stream.Downstream {
			from, to = server, client
		}
		passes(t, from, to)
		cut := p.CutAfter(d, 8)
		passes(t, from, to)
		io.WriteString(from, "67890")
		if got, _ := io.ReadAll(to); string(got) != "67" {
			t.Errorf("%v: got %q", d, got)
		}
		<-cut
		if got, _ := io.ReadAll(other); len(got) > 0 {
			t.Errorf("the other connection got %q", got)
		}
	}
}

func TestPartitionHidesDataAndEnd(t *testing.T) {
	p, l := start(t)
	client, server := connect(t, p, l)
	passes(t, client, server)
	p.Partition()
	later, laterServer := connect(t, p, l)
	p.Heal()
	silent := func(conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	}
	for _, conns := range [][2]net.Conn{{client, server}, {laterServer, later}} {
		io.WriteString(conns[0], "lost")
		silent(conns[1])
		conns[0].Close()
		silent(conns[1])
	}
	client, server = connect(t, p, l)
	passes(t, server, client)
}

func TestStallKeepsWhatIsSent(t *testing.T) {
	p, l := start(t)
	client, server := connect(t, p, l)
	passes(t, client, server)
	release := p.Stall(stream.Upstream)
	io.WriteString(client, "kept\n")
	passes(t, server, client) // the other direction
	client.(*net.TCPConn).CloseWrite()
	server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	release()
	server.SetReadDeadline(time.Time{})
	if got, err := io.ReadAll(server); string(got) != "kept\n" {
		t.Errorf("got %q, %v", got, err)
	}

	client, server = connect(t, p, l)
	defer p.Stall()()
	io.WriteString(client, "cut\n")
	p.Cut()
	if got, err := io.ReadAll(server); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRefuseKeepsThePort(t *testing.T) {
	p, l := start(t)
	client, _ := connect(t, p, l)
	p.Refuse()
	p.Cut() // does not make the proxy accept connections again
	if _, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is not closed")
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	p.Accept()
	client, server := connect(t, p, l)
	passes(t, client, server)
}
