package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// A fakeServer is the part of an AMQP server that a Writer needs, in this process. A script decides what happens to each
// message.
type fakeServer struct {
	listener net.Listener
	script   func(p published) reaction
	opening  func(channel uint16) // called before a channel is opened, if it is set

	mu     sync.Mutex
	stored []published
	opened int // connections
}

// A published is a message that the server has received.
type published struct {
	exchange, routingKey string
	body                 string
	channel              uint16
	tag                  uint64
	others               int // messages on its channel that are not confirmed
}

// A reaction is what the server does with a message. The zero value stores and confirms it.
type reaction struct {
	hold     bool // no response
	nack     bool
	unrouted bool
	channel  int             // close the channel with this code
	hangUp   int             // close the connection with this code
	block    <-chan struct{} // block the connection until then, and confirm the message after it
}

func startFake(t *testing.T, script func(p published) reaction) *fakeServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{listener: l, script: script}
	var serving sync.WaitGroup
	conns := make(chan net.Conn, 100)
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(conns)
				return
			}
			conns <- conn
			s.mu.Lock()
			s.opened++
			s.mu.Unlock()
			serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for conn := range conns {
			_ = conn.Close()
		}
		serving.Wait()
	})
	return s
}

func (s *fakeServer) config() Config {
	return Config{Servers: []string{s.listener.Addr().String()}, User: "guest", Password: password("guest")}
}

// connections returns how many connections were opened.
func (s *fakeServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// bodies returns the bodies of the stored messages.
func (s *fakeServer) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, p := range s.stored {
		all = append(all, p.body)
	}
	return all
}

// Frame types and methods of AMQP: class<<16 + method.
const (
	methodFrame, headerFrame, bodyFrame = 1, 2, 3

	connectionStart, connectionTune, connectionOpen = 10<<16 + 10, 10<<16 + 30, 10<<16 + 40
	connectionStartOk, connectionTuneOk             = 10<<16 + 11, 10<<16 + 31
	connectionClose, connectionCloseOk              = 10<<16 + 50, 10<<16 + 51
	channelOpen, channelClose, channelCloseOk       = 20<<16 + 10, 20<<16 + 40, 20<<16 + 41
	connectionBlocked, connectionUnblocked          = 10<<16 + 60, 10<<16 + 61
	basicPublish, basicReturn, basicAck, basicNack  = 60<<16 + 40, 60<<16 + 50, 60<<16 + 80, 60<<16 + 120
	confirmSelect                                   = 85<<16 + 10
)

// A fakeChannel is the state of a channel.
type fakeChannel struct {
	tag    uint64
	held   int
	msg    published
	header []byte // content header, for basic.return
	left   uint64 // bytes of the body
	closed bool
}

// A fakeConn is a connection of a fakeServer.
type fakeConn struct {
	s        *fakeServer
	w        *bufio.Writer
	channels map[uint16]*fakeChannel
}

func (s *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	c := &fakeConn{s: s, w: bufio.NewWriter(conn), channels: make(map[uint16]*fakeChannel)}
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil { // the protocol header
		return
	}
	capabilities := append(append([]byte{}, field("publisher_confirms", []byte{'t', 1})...), field("basic.nack", []byte{'t', 1})...)
	properties := field("capabilities", append([]byte{'F'}, long(capabilities)...))
	c.method(0, connectionStart, []byte{0, 9}, long(properties), long([]byte("PLAIN")), long([]byte("en_US")))
	for c.w.Flush() == nil {
		var head [7]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		if !c.handle(head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1]) {
			_ = c.w.Flush()
			return
		}
	}
}

// handle reports whether the connection stays open.
func (c *fakeConn) handle(kind byte, id uint16, payload []byte) bool {
	ch := c.channels[id]
	switch kind {
	case methodFrame:
		return c.handleMethod(id, int(binary.BigEndian.Uint32(payload)), payload[4:])
	case headerFrame:
		if ch == nil || ch.closed {
			return true
		}
		ch.header, ch.left = payload, binary.BigEndian.Uint64(payload[4:])
	case bodyFrame:
		if ch == nil || ch.closed {
			return true
		}
		ch.msg.body += string(payload)
		ch.left -= uint64(len(payload))
	default:
		return true
	}
	return ch.left > 0 || c.react(id, ch)
}

func (c *fakeConn) handleMethod(id uint16, method int, args []byte) bool {
	switch method {
	case connectionStartOk:
		c.method(0, connectionTune, []byte{0, 0, 0, 2, 0, 0, 0, 0}) // frame_max 131072
	case connectionTuneOk:
	case connectionOpen:
		c.method(0, connectionOpen+1, []byte{0})
	case connectionClose:
		c.method(0, connectionCloseOk)
		return false
	case channelOpen:
		if c.s.opening != nil {
			c.s.opening(id)
		}
		c.channels[id] = new(fakeChannel)
		c.method(id, channelOpen+1, long(nil))
	case channelClose:
		c.method(id, channelCloseOk)
	case channelCloseOk:
		delete(c.channels, id)
	case confirmSelect:
		c.method(id, confirmSelect+1)
	case basicPublish:
		ch := c.channels[id]
		exchange := args[3 : 3+args[2]]
		rest := args[3+args[2]:]
		ch.tag++
		ch.msg = published{exchange: string(exchange), routingKey: string(rest[1 : 1+rest[0]]), channel: id, tag: ch.tag, others: ch.held}
	}
	return true
}

// react does with a message what the script says.
func (c *fakeConn) react(id uint16, ch *fakeChannel) bool {
	p := ch.msg
	do := c.s.script(p)
	tag := binary.BigEndian.AppendUint64(nil, p.tag)
	if do.block != nil {
		c.method(0, connectionBlocked, short("low on memory"))
		_ = c.w.Flush()
		<-do.block
		c.method(0, connectionUnblocked)
	}
	switch {
	case do.hold:
		ch.held++
	case do.nack:
		c.method(id, basicNack, tag, []byte{0})
	case do.channel > 0:
		ch.closed = true
		c.method(id, channelClose, closeArgs(do.channel))
	case do.hangUp > 0:
		c.method(0, connectionClose, closeArgs(do.hangUp))
	case do.unrouted:
		c.method(id, basicReturn, []byte{1, 56}, short("NO_ROUTE"), short(p.exchange), short(p.routingKey))
		c.frame(headerFrame, id, ch.header)
		if len(p.body) > 0 {
			c.frame(bodyFrame, id, []byte(p.body))
		}
		c.method(id, basicAck, tag, []byte{0})
	default:
		c.s.mu.Lock()
		c.s.stored = append(c.s.stored, p)
		c.s.mu.Unlock()
		c.method(id, basicAck, tag, []byte{0})
	}
	return true
}

// closeArgs are the arguments of connection.close and channel.close after basic.publish. The text is what a broker may say.
func closeArgs(code int) []byte {
	args := binary.BigEndian.AppendUint16(nil, uint16(code))
	args = append(args, short("a text with the s3cr3t of a message")...)
	return append(args, 0, 60, 0, 40)
}

func (c *fakeConn) method(id uint16, method int, args ...[]byte) {
	payload := binary.BigEndian.AppendUint32(nil, uint32(method))
	for _, a := range args {
		payload = append(payload, a...)
	}
	c.frame(methodFrame, id, payload)
}

func (c *fakeConn) frame(kind byte, id uint16, payload []byte) {
	head := binary.BigEndian.AppendUint16([]byte{kind}, id)
	_, _ = c.w.Write(binary.BigEndian.AppendUint32(head, uint32(len(payload))))
	_, _ = c.w.Write(append(payload, 0xCE))
}

func short(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func long(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

func field(name string, value []byte) []byte { return append(short(name), value...) }
