package rabbitmq

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// fakeAddr is the address of a fakeServer for the one who dials it.
const fakeAddr = "fake:5672"

// A fakeServer is the part of an AMQP server that a Writer needs, in this process and over pipes, so that a test can use it in a
// bubble. A script decides what happens to each message.
type fakeServer struct {
	script  func(p published) reaction
	opening func(channel uint16) // called before a channel is opened, if it is set
	serving sync.WaitGroup

	mu     sync.Mutex
	stored []published
	conns  []net.Conn // all that were opened
	closed bool
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
	s := &fakeServer{script: script}
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		for _, conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.serving.Wait()
	})
	return s
}

// dial connects to the server.
func (s *fakeServer) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	s.conns = append(s.conns, far)
	s.serving.Go(func() { s.serve(far) })
	return near, nil
}

func (s *fakeServer) config() Config {
	return Config{Servers: []string{fakeAddr}, User: "guest", Password: password("guest"), Dial: s.dial}
}

// connections returns how many connections were opened.
func (s *fakeServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
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
	exchangeDeclare, confirmSelect                  = 40<<16 + 10, 85<<16 + 10
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

// A queue is a buffer between the server and a pipe, which has none: neither side of a network connection waits until the other reads.
type queue chan []byte

func (q queue) Write(b []byte) (int, error) {
	q <- slices.Clone(b)
	return len(b), nil
}

// writeTo passes what is written to q to conn, and closes conn at the end.
func (q queue) writeTo(conn net.Conn) {
	for b := range q {
		_, _ = conn.Write(b)
	}
	_ = conn.Close()
}

// readFrom writes to q what comes from conn.
func (q queue) readFrom(conn net.Conn) {
	defer close(q)
	_, _ = io.Copy(q, conn)
}

// A queueReader reads what was written to a queue.
type queueReader struct {
	queue queue
	rest  []byte
}

func (r *queueReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		next, ok := <-r.queue
		if !ok {
			return 0, io.EOF
		}
		r.rest = next
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (s *fakeServer) serve(conn net.Conn) {
	in, out := make(queue, 1<<16), make(queue, 1<<16)
	s.serving.Go(func() { in.readFrom(conn) })
	s.serving.Go(func() { out.writeTo(conn) })
	defer close(out)
	r := bufio.NewReader(&queueReader{queue: in})
	c := &fakeConn{s: s, w: bufio.NewWriter(out), channels: make(map[uint16]*fakeChannel)}
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
	case exchangeDeclare, confirmSelect:
		c.method(id, method+1)
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
