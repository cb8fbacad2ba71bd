package walproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Tamper changes messages between relay and server, to make a correct relay behave like an incorrect
// one. Each function gets the type and body of a message and calls pass once for each body that the
// proxy forwards, or not at all. It may modify the body in place. One goroutine per connection and
// direction calls it. A nil function changes nothing.
//
// The Watcher sees the server's messages before FromServer changes them, and the relay's messages after
// FromRelay has changed them.
type Tamper struct {
	FromServer, FromRelay func(kind byte, body []byte, pass func(body []byte))
}

// A Watcher observes one replication stream. The proxy calls its methods in the order of the messages of
// each direction. For a message of the server, it calls them before it forwards the message to the relay.
type Watcher interface {
	Begin(commitLSN pglogrepl.LSN)
	Insert(body []byte) // body of the CopyData message; valid only during the call
	Commit(endLSN pglogrepl.LSN)
	Keepalive(walEnd pglogrepl.LSN)
	Status(at time.Time, flush pglogrepl.LSN) // at: when the proxy received it from the relay
}

// A Config configures a Proxy.
type Config struct {
	Target string // host:port of the server
	Tamper Tamper
	// The proxy calls Watch when the relay sends START_REPLICATION. It may be nil.
	Watch func(at time.Time, from pglogrepl.LSN) Watcher

	// Slot is the slot whose creation is reported: to SlotLost when the relay sends the command, because
	// there is no other slot of that name then, and to SlotCreated before the relay receives the position
	// from which the new slot delivers. Empty: none.
	Slot        string
	SlotLost    func()
	SlotCreated func(position pglogrepl.LSN)
}

// A Proxy forwards connections to Postgres. The connections must not use TLS.
type Proxy struct {
	cfg Config

	listener net.Listener
	ctx      context.Context //nolint:containedctx // the proxy's life; it dials and closes with it
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Start starts a proxy on a free local port. It stops when the test ends.
func Start(t *testing.T, cfg Config) *Proxy {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		stop()
		t.Fatalf("listen for the relay: %v", err)
	}
	p := &Proxy{cfg: cfg, listener: listener, ctx: ctx, stop: stop}
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// close stops the proxy and closes its connections.
func (p *Proxy) close() {
	p.stop()
	_ = p.listener.Close()
	p.wg.Wait()
}

func (p *Proxy) serve() {
	for {
		relay, err := p.listener.Accept()
		if err != nil {
			return // p is closed
		}
		p.wg.Go(func() { p.connect(relay) })
	}
}

// connect forwards the connection of a relay to the server until both directions end.
func (p *Proxy) connect(relay net.Conn) {
	defer relay.Close()
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp4", p.cfg.Target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(p.ctx, func() {
		_ = relay.Close()
		_ = server.Close()
	})()

	fromRelay := &stream{r: bufio.NewReaderSize(relay, 64<<10), w: bufio.NewWriterSize(server, 64<<10), to: server}
	fromServer := &stream{r: bufio.NewReaderSize(server, 64<<10), w: bufio.NewWriterSize(relay, 64<<10), to: relay}
	if err := fromRelay.startup(); err != nil {
		return
	}
	conn := &tap{proxy: p}
	var both sync.WaitGroup
	both.Go(func() { fromRelay.copy(conn.fromRelay) })
	both.Go(func() { fromServer.copy(conn.fromServer) })
	both.Wait()
}

// A stream is one direction of a connection.
type stream struct {
	r  *bufio.Reader
	w  *bufio.Writer
	to net.Conn

	head [5]byte // type and length of the message that copy forwards
	body []byte
	err  error // of w
}

const startupProtocol = 3 << 16

// startup forwards the first message, which has no type.
// https://www.postgresql.org/docs/current/protocol-message-formats.html, StartupMessage
func (s *stream) startup() error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(s.r, head); err != nil {
		return err
	}
	if major := binary.BigEndian.Uint32(head[4:]) >> 16; major != startupProtocol>>16 {
		return errors.New("the relay asks for TLS, or cancels a request")
	}
	if _, err := s.w.Write(head); err != nil {
		return err
	}
	if _, err := io.CopyN(s.w, s.r, int64(binary.BigEndian.Uint32(head))-8); err != nil {
		return err
	}
	return s.w.Flush()
}

// copy calls f, which forwards messages, until a peer closes the connection. It
// then closes the connection to the other peer.
func (s *stream) copy(f func(kind byte, body []byte, pass func([]byte))) {
	err := s.messages(f)
	err = errors.Join(err, s.w.Flush())
	if tcp, ok := s.to.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite() // the other direction still forwards messages
		return
	}
	_ = s.to.Close()
}

// messages reads messages and calls f with each. It returns nil if the source closes the connection
// between two messages.
func (s *stream) messages(f func(kind byte, body []byte, pass func([]byte))) error {
	pass := s.pass
	for {
		if s.r.Buffered() == 0 && s.err == nil {
			s.err = s.w.Flush()
		}
		if s.err != nil {
			return s.err
		}
		if _, err := io.ReadFull(s.r, s.head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(s.head[1:])) - 4
		if cap(s.body) < n {
			s.body = make([]byte, n)
		}
		body := s.body[:n]
		if _, err := io.ReadFull(s.r, body); err != nil {
			return err
		}
		f(s.head[0], body, pass)
	}
}

// pass writes a message. Its type is that of the last message read.
func (s *stream) pass(body []byte) {
	binary.BigEndian.PutUint32(s.head[1:], uint32(len(body)+4))
	for _, part := range [][]byte{s.head[:], body} {
		if s.err == nil {
			_, s.err = s.w.Write(part)
		}
	}
}

// A tap reports the messages of one connection to the Watcher.
type tap struct {
	proxy *Proxy

	mu      sync.Mutex
	watcher Watcher // nil until the relay sends START_REPLICATION
}

func (t *tap) get() Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watcher
}

// fromRelay handles a message of the relay.
func (t *tap) fromRelay(kind byte, body []byte, pass func([]byte)) {
	judged := func(body []byte) {
		t.judge(kind, body)
		pass(body)
	}
	if f := t.proxy.cfg.Tamper.FromRelay; f != nil {
		f(kind, body, judged)
	} else {
		judged(body)
	}
}

func (t *tap) judge(kind byte, body []byte) {
	now := time.Now()
	switch kind {
	case 'Q':
		if from, ok := parseStart(body); ok && t.proxy.cfg.Watch != nil {
			w := t.proxy.cfg.Watch(now, from)
			t.mu.Lock()
			t.watcher = w
			t.mu.Unlock()
		}
		if slot := t.proxy.cfg.Slot; slot != "" && createsSlot(body, slot) {
			t.proxy.cfg.SlotLost()
		}
	case 'd':
		if flush, ok := ParseStatus(body); ok && t.get() != nil {
			t.get().Status(now, flush)
		}
	}
}

// fromServer handles a message of the server.
func (t *tap) fromServer(kind byte, body []byte, pass func([]byte)) {
	if w := t.get(); w != nil && kind == 'd' {
		observe(w, body)
	}
	if slot := t.proxy.cfg.Slot; slot != "" && kind == 'D' {
		if position, ok := parseCreatedSlot(body, slot); ok {
			t.proxy.cfg.SlotCreated(position)
		}
	}
	if f := t.proxy.cfg.Tamper.FromServer; f != nil {
		f(kind, body, pass)
	} else {
		pass(body)
	}
}

func observe(w Watcher, body []byte) {
	if walEnd, ok := ParseKeepalive(body); ok {
		w.Keepalive(walEnd)
		return
	}
	switch m := ParseWAL(body); m.Kind {
	case 'B':
		w.Begin(m.CommitLSN)
	case 'C':
		w.Commit(m.EndLSN)
	case 'I':
		w.Insert(body)
	}
}
