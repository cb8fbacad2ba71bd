package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
)

// memoryLimit is the maximum size of a value in a memoryBroker.
const memoryLimit = 20_000

var (
	errLost   = fmt.Errorf("%w: the connection is lost", ErrConnection)
	errBusy   = errors.New("the broker is busy")
	errTooBig = &sink.RecordError{Limit: memoryLimit, TooLarge: true, Code: "TOO_LARGE", Reason: errors.New("too large")}
)

// A memoryBroker is a broker in the memory of the test, and its own configuration. It handles requests in any order.
type memoryBroker struct {
	options Options
	checks  bool // Options.Prepare finds the records that it rejects

	mu           sync.Mutex
	destinations map[string][]sink.StoredRecord
	fault        *memoryFault // nil: none
	names        int
	requests     int
}

// A memoryFault is what happens to requests.
type memoryFault struct {
	store func(n int) int                  // how many of n records are stored
	acked func(stored, n int) (int, error) // what is passed to Done
	hold  chan struct{}                    // closed when responses may pass; nil: at once
	met   chan struct{}
	once  sync.Once
}

func (f *memoryFault) meet() { f.once.Do(func() { close(f.met) }) }

func newMemoryBroker(o Options) *memoryBroker {
	return &memoryBroker{
		options: o, destinations: make(map[string][]sink.StoredRecord),
	}
}

// create adds an empty destination.
func (b *memoryBroker) create(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.destinations[name] = []sink.StoredRecord{}
}

func (b *memoryBroker) present() *memoryFault {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// write stores the records of a request up to the first one that is rejected.
func (b *memoryBroker) write(records []*sink.Record) (stored int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range records {
		stored, ok := b.destinations[r.Topic]
		if !ok {
			return i, fmt.Errorf("%w: %s", sink.ErrMissing, r.Topic)
		}
		if len(r.Value) > memoryLimit {
			return i, errTooBig
		}
		copied := *r
		copied.Seq, copied.Partition = 0, 0
		copied.Key, copied.Value, copied.Headers = slices.Clone(r.Key), slices.Clone(r.Value), cloneHeaders(r.Headers)
		b.destinations[r.Topic] = append(stored, sink.StoredRecord{Record: copied, Offset: int64(len(stored))})
	}
	return len(records), nil
}

// A memoryTransport is a connection to a memoryBroker.
type memoryTransport struct {
	*memoryBroker
	handled sync.WaitGroup
}

func (t *memoryTransport) Publish(ctx context.Context, requests []*Request) {
	for _, r := range requests {
		t.handled.Go(func() { t.handle(ctx, r) })
	}
}

func (t *memoryTransport) handle(ctx context.Context, r *Request) {
	t.mu.Lock()
	t.requests++
	t.mu.Unlock()
	if err := r.Fence(); err != nil {
		r.Done(0, err)
		return
	}
	f := t.present()
	if f == nil {
		r.Done(t.write(r.Records))
		return
	}
	n := len(r.Records)
	stored, err := t.write(r.Records[:f.store(n)])
	f.meet()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			r.Done(0, errLost)
			return
		}
	}
	if err != nil {
		r.Done(stored, err)
		return
	}
	r.Done(f.acked(stored, n))
}

func (t *memoryTransport) Close() error {
	t.handled.Wait()
	return nil
}

// A memorySink is the Sink of a memoryBroker.
type memorySink struct {
	*Base

	broker *memoryBroker
}

func (b *memoryBroker) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	o := b.options
	o.Broker = "memory:1"
	if b.checks {
		o.Prepare = func(r *sink.Record) error {
			if len(r.Value) > memoryLimit {
				return errTooBig
			}
			return nil
		}
	}
	s := &memorySink{NewBase(o, log), b}
	return s, s.Retry(ctx, func(context.Context) error { return nil })
}

func (b *memoryBroker) String() string { return "memory:1" }

func (s *memorySink) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return s.NewWriterOver(&memoryTransport{memoryBroker: s.broker}, cfg)
}

func (s *memorySink) CheckDestinations(ctx context.Context, destinations ...string) error {
	return s.CheckEach(ctx, destinations, func(_ context.Context, name string) error { return s.broker.missing(name) })
}

func (b *memoryBroker) missing(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.destinations[name]; !ok {
		return fmt.Errorf("%w: %s", sink.ErrMissing, name)
	}
	return nil
}

func (s *memorySink) Close() error { return nil }

// A memoryReader reads a memoryBroker.
type memoryReader struct{ *memoryBroker }

func (b *memoryBroker) OpenReader(*slog.Logger) (sink.Reader, error) { return memoryReader{b}, nil }

func (r memoryReader) OffsetRanges(_ context.Context, destinations ...string) (map[string][]sink.OffsetRange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ranges := make(map[string][]sink.OffsetRange)
	for _, name := range destinations {
		if stored, ok := r.destinations[name]; ok {
			ranges[name] = []sink.OffsetRange{{End: int64(len(stored))}}
		}
	}
	return ranges, nil
}

func (r memoryReader) Read(_ context.Context, destination string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	for _, rec := range r.records(destination)[offsets.Begin:offsets.End] {
		if err := fn(&rec); err != nil {
			return err
		}
	}
	return nil
}

func (r memoryReader) Close() error { return nil }

func (b *memoryBroker) records(destination string) []sink.StoredRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.destinations[destination])
}

// memoryDeadLetters are one destination of a memoryReader.
type memoryDeadLetters struct {
	memoryReader
	destination string
}

func (b *memoryBroker) OpenDeadLetters(_ context.Context, destination string, _ *slog.Logger) (sink.DeadLetters, error) {
	return memoryDeadLetters{memoryReader{b}, destination}, b.missing(destination)
}

func (d memoryDeadLetters) OffsetRanges(ctx context.Context) ([]sink.OffsetRange, error) {
	ranges, err := d.memoryReader.OffsetRanges(ctx, d.destination)
	return ranges[d.destination], err
}

func (d memoryDeadLetters) Read(ctx context.Context, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	return d.memoryReader.Read(ctx, d.destination, offsets, fn)
}

// A memorySubject is a memoryBroker for package sinktest.
type memorySubject struct{ *memoryBroker }

func (s memorySubject) Broker(window int) sink.Broker {
	s.options.WindowRecords = window
	return s.memoryBroker
}

func (s memorySubject) Destination(t *testing.T) string {
	t.Helper()
	name := s.name()
	s.create(name)
	return name
}

func (s memorySubject) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	return fmt.Sprint("name", s.names)
}

func (s memorySubject) Read(t *testing.T, destination string) []sink.StoredRecord {
	t.Helper()
	return s.records(destination)
}

func (s memorySubject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, make([]byte, memoryLimit)...)
}

func all(n int) int                    { return n }
func none(int) int                     { return 0 }
func half(n int) int                   { return n / 2 }
func acked(stored, _ int) (int, error) { return stored, nil }
func lost(int, int) (int, error)       { return 0, errLost }
func busyAll(int, int) (int, error)    { return 0, errBusy }
func partly(stored, n int) (int, error) {
	if stored == n {
		return stored / 2, errBusy
	}
	return stored, errBusy
}

func (s memorySubject) Hold() sinktest.Fault {
	return s.strike("responses are withheld", &memoryFault{store: all, acked: acked}, true)
}

func (s memorySubject) Faults() []sinktest.Fault {
	return []sinktest.Fault{
		s.strike("connections are lost before a request", &memoryFault{store: none, acked: lost}, false),
		s.strike("connections are lost in a request", &memoryFault{store: half, acked: lost}, false),
		s.strike("connections are lost before the response", &memoryFault{store: all, acked: lost}, false),
		s.strike("the broker is busy", &memoryFault{store: none, acked: busyAll}, false),
		s.strike("the broker is busy after it has stored", &memoryFault{store: all, acked: busyAll}, false),
		s.strike("the broker acknowledges a part", &memoryFault{store: half, acked: partly}, false),
		s.strike("the broker acknowledges less than it has stored", &memoryFault{store: all, acked: partly}, false),
	}
}

func (s memorySubject) strike(name string, f *memoryFault, hold bool) sinktest.Fault {
	return sinktest.Fault{Name: name, Begin: func(*testing.T) (<-chan struct{}, func()) {
		f := &memoryFault{store: f.store, acked: f.acked, met: make(chan struct{})}
		if hold {
			f.hold = make(chan struct{})
		}
		s.mu.Lock()
		s.fault = f
		s.mu.Unlock()
		return f.met, sync.OnceFunc(func() {
			s.mu.Lock()
			s.fault = nil
			s.mu.Unlock()
			if hold {
				close(f.hold)
			}
		})
	}}
}
