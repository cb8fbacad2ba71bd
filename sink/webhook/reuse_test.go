package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// An exchange is what a peer does with a POST.
type exchange uint8

const (
	respondOK    exchange = iota
	closeConn             // read the request, and close the connection without a response
	refuseStream          // HTTP/2: RST_STREAM with REFUSED_STREAM
	goAway                // HTTP/2: GOAWAY, with this stream among those that are not processed
)

// A peer is a server that follows a script: what it does with the first POST, the second and so on. It responds to the
// others, and to HEAD.
type peer struct {
	script []exchange

	mu    sync.Mutex
	conns int
	posts []string // "connection id" of each POST
	times []time.Time
}

func (p *peer) connected() (conn int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns++
	return p.conns
}

// next notes a request and returns what to do with it.
func (p *peer) next(conn int, method, id string) exchange {
	if method != http.MethodPost {
		return respondOK
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts, p.times = append(p.posts, fmt.Sprintf("%d %s", conn, id)), append(p.times, time.Now())
	if n := len(p.posts); n <= len(p.script) {
		return p.script[n-1]
	}
	return respondOK
}

// seen returns the connection and the event id of each POST, and how long after the one before it came.
func (p *peer) seen() (posts []string, gaps []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.times); i++ {
		gaps = append(gaps, p.times[i].Sub(p.times[i-1]))
	}
	return slices.Clone(p.posts), gaps
}

// dialPipe returns a connection to the peer, which speaks HTTP/1.1.
func (p *peer) dialPipe(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go p.serveHTTP1(far)
	return near, nil
}

func (p *peer) serveHTTP1(conn net.Conn) {
	defer conn.Close()
	n, r := p.connected(), bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil || p.next(n, req.Method, req.Header.Get("Idempotency-Key")) == closeConn {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// serveHTTP2 serves a connection after its TLS handshake.
func (p *peer) serveHTTP2(conn net.Conn) error {
	defer conn.Close()
	n := p.connected()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	requests := make(map[uint32]*http2.MetaHeadersFrame)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		ends := false
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			requests[f.StreamID], ends = f, f.StreamEnded()
		case *http2.DataFrame:
			ends = f.StreamEnded()
		}
		if id := frame.Header().StreamID; ends {
			err = p.finish(framer, n, id, requests[id])
		}
		if err != nil {
			return err
		}
	}
}

func (p *peer) finish(framer *http2.Framer, conn int, stream uint32, req *http2.MetaHeadersFrame) error {
	id := ""
	for _, f := range req.RegularFields() {
		if f.Name == "idempotency-key" {
			id = f.Value
		}
	}
	switch p.next(conn, req.PseudoValue("method"), id) {
	case closeConn:
		return io.EOF
	case refuseStream:
		return framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
	case goAway:
		return framer.WriteGoAway(stream-2, http2.ErrCodeNo, nil)
	case respondOK:
	}
	var block bytes.Buffer
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"}); err != nil {
		return err
	}
	return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
}

// sendTwo sends two records of a key, the second one when the first is acknowledged and a time has passed.
func sendTwo(t *testing.T, s *sinktest.Session, value []byte, after func()) {
	t.Helper()
	for seq := range uint64(2) {
		if seq > 0 {
			after()
		}
		err := s.Writer.Send(sinktest.Context(t), &sink.Record{
			Seq: seq, Topic: "a", Partition: sink.AnyPartition, Key: []byte("k"), Value: value, Headers: header("id", fmt.Sprint(seq+1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.AwaitAcked(int(seq) + 1)
	}
}

// If a connection that is in use breaks without a response, the receiver may have processed the event: the relay sends it
// again and counts that, and the new connection.
func TestConnectionBreaksInUse(t *testing.T) {
	for name, value := range map[string][]byte{"payload": []byte("{}"), "no payload": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{script: []exchange{respondOK, closeConn}}
				s := start(t, Config{URL: "http://receiver.example", Dial: p.dialPipe}, sink.WriterConfig{})
				sendTwo(t, s, value, func() {})
				posts, gaps := p.seen()
				if got := strings.Join(posts, ", "); got != "1 1, 1 2, 2 2" || gaps[1] > 50*time.Millisecond {
					t.Errorf("POSTs %s, gaps %v", got, gaps)
				}
				if st := s.Sink.Stat(); st.Retries != 1 || st.Reconnects != 1 || !strings.Contains(st.LastError, "closed the connection without a response") {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// A receiver may close an idle connection at the moment at which the relay sends a request. The relay sends it again at
// once, and that is no failure which an operator sees. A second one in a row is.
func TestIdleConnectionIsClosed(t *testing.T) {
	for name, value := range map[string][]byte{"payload": []byte("{}"), "no payload": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{script: []exchange{respondOK, closeConn}}
				s := start(t, Config{URL: "http://receiver.example", Dial: p.dialPipe}, sink.WriterConfig{})
				sendTwo(t, s, value, func() { bubble.Sleep(5 * time.Second) })
				posts, gaps := p.seen()
				if got := strings.Join(posts, ", "); got != "1 1, 1 2, 2 2" || gaps[1] != 0 {
					t.Errorf("POSTs %s, gaps %v", got, gaps)
				}
				if st := s.Sink.Stat(); st.Retries != 1 || st.Reconnects != 0 || st.LastError != "" || s.Journal.String() != "" {
					t.Errorf("%+v\n%s", st, s.Journal)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				p := &peer{script: []exchange{respondOK, closeConn, closeConn}}
				s := start(t, Config{URL: "http://receiver.example", Dial: p.dialPipe}, sink.WriterConfig{})
				sendTwo(t, s, value, func() { bubble.Sleep(5 * time.Second) })
				if st := s.Sink.Stat(); st.Retries != 2 || st.Reconnects != 1 || st.LastError == "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// If a receiver says that it has not processed a request of HTTP/2, the Writer sends it again, not package net/http. It is no
// failure.
func TestUnprocessedStream(t *testing.T) {
	for name, does := range map[string]exchange{"the stream is refused": refuseStream, "the connection is closed gracefully": goAway} {
		t.Run(name, func(t *testing.T) {
			authority := certtest.New()
			listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
				Certificates: []tls.Certificate{authority.Issue(time.Now().Add(time.Hour), "127.0.0.1").TLS}, NextProtos: []string{"h2"},
			})
			if err != nil {
				t.Fatal(err)
			}
			p := &peer{script: []exchange{respondOK, does}}
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					serving.Go(func() { _ = p.serveHTTP2(conn) })
				}
			})
			t.Cleanup(serving.Wait)
			t.Cleanup(func() { listener.Close() })
			s := start(t, Config{
				URL: "https://" + listener.Addr().String(),
				TLS: func() (*tls.Config, error) { return &tls.Config{RootCAs: authority.Pool()}, nil },
			}, sink.WriterConfig{})
			sendTwo(t, s, []byte("{}"), func() {})
			posts, _ := p.seen()
			if got := strings.Join(posts, ", "); !strings.HasPrefix(got, "1 1, 1 2, ") || len(posts) != 3 {
				t.Errorf("POSTs %s", got)
			}
			if st := s.Sink.Stat(); st.Retries != 1 || st.Reconnects != 0 || st.LastError != "" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Close of the Sink closes every connection: also one that package net/http takes for one in use, as it does for a moment after the
// last response of HTTP/2. Otherwise it would stay open for IdleConnTimeout.
func TestCloseClosesEveryConnection(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c, err := newClient(Config{URL: "http://receiver.example", Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }}, sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.poster.network.DialPlain(t.Context(), "tcp", "receiver.example:80"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads: %v", err)
	}
	if _, err := c.poster.network.DialPlain(t.Context(), "tcp", "receiver.example:80"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection after Close: %v", err)
	}
}
