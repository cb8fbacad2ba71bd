package cutproxy_test

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

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/cutproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo starts a server that answers every line with the same line.
func echo(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

type client struct {
	net.Conn
	t     *testing.T
	lines *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{Conn: c, t: t, lines: bufio.NewReader(c)}
}

// ask sends a line and returns what comes back, with how that ended.
func (c *client) ask(line string) (string, error) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	got, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

func (c *client) mustAsk(line string) {
	c.t.Helper()
	if got, err := c.ask(line); err != nil || got != line {
		c.t.Fatalf("ask(%q) = %q, %v", line, got, err)
	}
}

func TestCutResetsBothSides(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	a.mustAsk("one")
	b.mustAsk("two")
	if open, ever := p.Connections(); open != 2 || ever != 2 {
		t.Errorf("%d open, %d ever", open, ever)
	}
	p.Cut()
	for _, c := range []*client{a, b} {
		if _, err := c.ask("three"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("after Cut: %v", err)
		}
	}
	dial(t, p.Addr()).mustAsk("four")
}

func TestCutAfterCutsInTheMiddle(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	c := dial(t, p.Addr())
	c.mustAsk("untouched")
	cut := p.CutAfter(cutproxy.ToClient, 8) // "12345\n" and two bytes
	c.mustAsk("12345")
	if got, err := c.ask("67890"); got != "67" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v", got, err)
	}
	<-cut
	cut = p.CutAfter(cutproxy.ToServer, 0)
	if got, err := dial(t, p.Addr()).ask("x"); err == nil {
		t.Errorf("got %q", got)
	}
	<-cut
	dial(t, p.Addr()).mustAsk("over")
}

func TestPauseHoldsBytes(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	c := dial(t, p.Addr())
	for _, ds := range [][]cutproxy.Direction{{cutproxy.ToServer}, {cutproxy.ToClient}, {}} {
		p.Pause(ds...)
		io.WriteString(c, "held\n")
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if got, err := c.lines.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("paused %v: got %q, %v", ds, got, err)
		}
		c.SetReadDeadline(time.Time{})
		p.Resume(ds...)
		if got, err := c.lines.ReadString('\n'); got != "held\n" {
			t.Errorf("resumed %v: got %q, %v", ds, got, err)
		}
	}
	p.Pause()
	io.WriteString(c, "lost\n")
	p.Cut() // does not hang on what is held
}

// What is half-open stays so, whatever either end does; new connections know nothing of it.
func TestStrandLeavesBothEndsWaiting(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := cutproxy.Start(t, l.Addr().String())
	c := dial(t, p.Addr())
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for open, _ := p.Connections(); open == 0; open, _ = p.Connections() {
		time.Sleep(time.Millisecond)
	}
	silent := func(who string, conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s reads %d bytes, %v", who, n, err)
		}
	}
	p.Pause()
	io.WriteString(c, "held")
	p.Strand()
	p.Resume()
	silent("the server", server)
	io.WriteString(server, "lost")
	silent("the client", c)
	server.Close()
	silent("the client of a server that has gone", c)
	io.WriteString(c, "to nobody")
	silent("the client that goes on", c)

	p.Redirect(echo(t))
	dial(t, p.Addr()).mustAsk("new")
}

func TestSlow(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	c := dial(t, p.Addr())
	p.Slow(cutproxy.Slowness{Latency: 20 * time.Millisecond, Jitter: 10 * time.Millisecond})
	began := time.Now()
	c.mustAsk("there and back")
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("a round trip took %v", took)
	}
	p.Slow(cutproxy.Slowness{BytesPerSecond: 1 << 20})
	began = time.Now()
	c.mustAsk(strings.Repeat("x", 100<<10))
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("100 kB at 1 MB a second took %v", took)
	}
	p.Slow(cutproxy.Slowness{Latency: time.Hour})
	io.WriteString(c, "late")
	p.Cut() // does not wait for it
	p.Slow(cutproxy.Slowness{})
	dial(t, p.Addr()).mustAsk("fast")
}

func TestRefuseKeepsThePort(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	c := dial(t, p.Addr())
	c.mustAsk("before")
	p.Refuse()
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	c.mustAsk("stays")
	if err := p.Accept(); err != nil {
		t.Fatal(err)
	}
	dial(t, p.Addr()).mustAsk("after")
}

func TestEndOfInputPasses(t *testing.T) {
	p := cutproxy.Start(t, echo(t))
	c := dial(t, p.Addr())
	io.WriteString(c, "last words")
	c.Conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "last words" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUnreachableTargetResets(t *testing.T) {
	p := cutproxy.Start(t, "")
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	p.Redirect(echo(t))
	dial(t, p.Addr()).mustAsk("now")
}
