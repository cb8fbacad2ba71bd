package twin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// queueTimeout is how long a client waits for a response. It then closes the connection.
const queueTimeout = 10 * time.Second

// pageRecords is how many records of a destination a client asks for at once.
const pageRecords = 100

// A queueClient is a connection of a process to a queue, which is made when it is needed. Its methods may be called from any
// goroutine.
type queueClient struct {
	queue *queue
	host  *host

	turn // held while link is used, and while a connection is made
	link *queueLink
}

// A queueLink is a connection that is made. Requests on it do not wait for each other.
type queueLink struct {
	net.Conn

	mu      sync.Mutex
	last    int
	waiting map[int]chan *message // nil: the connection is lost
}

// call sends a request and returns the response. fence is called before the request is written.
func (c *queueClient) call(ctx context.Context, m *message, fence func() error) (*message, error) {
	link, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	if err := fence(); err != nil {
		return nil, err
	}
	return link.call(ctx, m)
}

// open is a fence that is open.
func open() error { return nil }

// connect returns the connection. If it is lost, connect makes another one, and logs in.
func (c *queueClient) connect(ctx context.Context) (*queueLink, error) {
	select {
	case c.turn <- struct{}{}:
		defer c.give()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.link != nil && !c.link.isLost() {
		return c.link, nil
	}
	conn, err := c.host.dial(ctx, "tcp", queueAddr)
	if err != nil {
		return nil, err
	}
	link := &queueLink{Conn: conn, waiting: make(map[int]chan *message)}
	go link.receive()
	if _, err := link.call(ctx, &message{Op: opLogin}); err != nil {
		link.lose()
		return nil, err
	}
	c.link = link
	return link, nil
}

// Close implements [sink.Sink], [sink.Reader] and [lane.Transport].
func (c *queueClient) Close() error {
	c.take()
	defer c.give()
	if c.link != nil {
		c.link.lose()
	}
	return nil
}

func (l *queueLink) call(ctx context.Context, m *message) (*message, error) {
	response := make(chan *message, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", lane.ErrStale, net.ErrClosed)
	}
	l.last++
	m.ID = l.last
	l.waiting[m.ID] = response
	l.mu.Unlock()
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	if err := m.send(l); err != nil {
		l.lose()
		return nil, fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	var err error
	select {
	case res := <-response:
		if res != nil {
			return res, nil
		}
		err = net.ErrClosed
	case <-timer.C:
		l.lose()
		err = errors.New("no response")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("%w: %w", lane.ErrConnection, err)
}

// receive passes responses on until the connection is lost.
func (l *queueLink) receive() {
	defer l.lose()
	for {
		res, err := receive(l)
		if err != nil {
			return
		}
		l.mu.Lock()
		response := l.waiting[res.ID]
		delete(l.waiting, res.ID)
		l.mu.Unlock()
		if response != nil {
			response <- res
		}
	}
}

// lose closes the connection and ends its requests.
func (l *queueLink) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, response := range l.waiting {
		close(response)
	}
	l.waiting = nil
	_ = l.Close()
}

func (l *queueLink) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting == nil
}

// A busyError asks for a delay.
type busyError struct{ delay time.Duration }

func (e busyError) Error() string             { return codeBusy }
func (e busyError) RetryAfter() time.Duration { return e.delay }

// err returns the error of a response.
func (m *message) err() error {
	switch m.Code {
	case "":
		return nil
	case codeMissing:
		return sink.NewError(sink.ErrMissing, m.Code, "")
	case codeDenied:
		return sink.NewError(sink.ErrAccess, m.Code, "")
	case codeSuperseded:
		return sink.NewError(sink.ErrSuperseded, m.Code, "")
	case codeRejected:
		return &sink.RecordError{Code: m.Code}
	}
	return busyError{m.Delay}
}

// A queueTransport is the [lane.Transport] of a Writer.
type queueTransport struct {
	*queueClient
	sink    *queueSink
	writer  writer
	handled sync.WaitGroup
}

// Publish implements [lane.Transport].
func (t *queueTransport) Publish(ctx context.Context, requests []*lane.Request) {
	for _, r := range requests {
		t.handled.Go(func() { t.handle(ctx, r) })
	}
}

func (t *queueTransport) handle(ctx context.Context, r *lane.Request) {
	m := &message{Op: opStore, Destination: r.Records[0].Topic, Writer: t.writer.producer}
	_, m.Known = t.sink.known.Load(m.Destination)
	for _, rec := range r.Records {
		m.Records = append(m.Records, sink.StoredRecord{Record: *rec})
	}
	res, err := t.call(ctx, m, r.Fence)
	if err != nil {
		r.Done(0, err)
		return
	}
	if res.Stored > 0 {
		t.sink.known.Store(m.Destination, nil)
		t.queue.history.acknowledged(t.writer, m, res.Stored)
	}
	r.Done(res.Stored, res.err())
}

// Close implements [lane.Transport].
func (t *queueTransport) Close() error {
	t.handled.Wait()
	return t.queueClient.Close()
}

// A queueBroker is the [sink.Broker] of a process.
type queueBroker struct {
	queue *queue
	host  *host
}

// connect implements broker.
func (q *queue) connect(h *host) sink.Broker { return queueBroker{q, h} }

func (b queueBroker) String() string { return queueAddr }

func (b queueBroker) newClient() *queueClient {
	return &queueClient{queue: b.queue, host: b.host, turn: newTurn()}
}

// Open implements [sink.Broker].
func (b queueBroker) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	s := &queueSink{Base: lane.NewBase(b.queue.options, log), queueClient: b.newClient(), broker: b}
	if _, err := s.ask(ctx, message{Op: opLogin}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// A queueSink is the [sink.Sink] of a process, and its position store.
type queueSink struct {
	*lane.Base
	*queueClient

	broker queueBroker
	known  sync.Map // destinations that a Writer has written to
}

// ask calls the server until it responds without a transient error.
func (s *queueSink) ask(ctx context.Context, m message) (res *message, err error) {
	err = s.Retry(ctx, func(ctx context.Context) error {
		again := m
		if res, err = s.call(ctx, &again, open); err == nil {
			err = res.err()
		}
		return err
	})
	return res, err
}

// NewWriter implements [sink.Sink].
func (s *queueSink) NewWriter(cfg sink.WriterConfig) sink.Writer {
	w := writer{run: s.host.run, producer: int64(s.queue.newID())}
	s.queue.history.opened(w)
	return s.NewWriterOver(&queueTransport{queueClient: s.broker.newClient(), sink: s, writer: w}, cfg)
}

// CheckDestinations implements [sink.Sink]. All destinations exist.
func (s *queueSink) CheckDestinations(context.Context, ...string) error { return nil }

// OpenPositions implements [sink.PositionOpener].
func (s *queueSink) OpenPositions(context.Context, string, string) (sink.PositionStore, error) {
	return s, nil
}

// Read implements [sink.PositionStore].
func (s *queueSink) Read(ctx context.Context) ([]sink.StoredValue, error) {
	res, err := s.ask(ctx, message{Op: opList})
	if err != nil {
		return nil, err
	}
	return res.Values, nil
}

// Post implements [sink.PositionStore].
func (s *queueSink) Post(ctx context.Context, key string, value []byte) error {
	_, err := s.ask(ctx, message{Op: opWrite, Key: key, Value: value})
	return err
}

// CheckOrder implements [sink.PositionStore].
func (s *queueSink) CheckOrder(context.Context) error { return errors.ErrUnsupported }

// Own implements [sink.PositionStore].
func (s *queueSink) Own(ctx context.Context) (sink.Owner, error) {
	o := &queueOwner{sink: s, id: s.queue.newID()}
	_, err := s.ask(ctx, message{Op: opWrite, Owner: o.id})
	return o, err
}

// A queueOwner is the [sink.Owner] of the position store.
type queueOwner struct {
	sink *queueSink
	id   int

	mu      sync.Mutex
	written int
}

// Write implements [sink.Owner].
func (o *queueOwner) Write(ctx context.Context, key string, value []byte) error {
	o.mu.Lock()
	o.written++
	m := message{Op: opWrite, Owner: o.id, Write: o.written, Key: key, Value: value}
	o.mu.Unlock()
	_, err := o.sink.ask(ctx, m)
	return err
}

// A queueReader reads a destination.
type queueReader struct {
	*queueSink
	destination string
}

// OpenDeadLetters implements [sink.ReaderOpener].
func (b queueBroker) OpenDeadLetters(ctx context.Context, destination string, log *slog.Logger) (sink.DeadLetters, error) {
	s, err := b.Open(ctx, log)
	if err != nil {
		return nil, err
	}
	r := queueReader{s.(*queueSink), destination}
	if _, err := r.OffsetRanges(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

// OffsetRanges implements [sink.DeadLetters].
func (r queueReader) OffsetRanges(ctx context.Context) ([]sink.OffsetRange, error) {
	res, err := r.ask(ctx, message{Op: opRead, Destination: r.destination})
	if err != nil {
		return nil, err
	}
	return []sink.OffsetRange{{End: res.End}}, nil
}

// Read implements [sink.DeadLetters]. It asks for a page at a time: a destination takes longer than queueTimeout on a slow network.
func (r queueReader) Read(ctx context.Context, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	for next := offsets.Begin; next < offsets.End; {
		res, err := r.ask(ctx, message{Op: opRead, Destination: r.destination, Offset: next, Count: int(min(pageRecords, offsets.End-next))})
		if err != nil {
			return err
		}
		for _, rec := range res.Records {
			if err := fn(&rec); err != nil {
				return err
			}
		}
		next += int64(len(res.Records))
	}
	return nil
}

// OpenReader implements [sink.ReaderOpener].
func (b queueBroker) OpenReader(*slog.Logger) (sink.Reader, error) {
	return nil, errors.ErrUnsupported // a relay reads dead letters only
}
