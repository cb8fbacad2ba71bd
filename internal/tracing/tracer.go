package tracing

import (
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	maxSpans  = 2048 // maximum number of spans at a time
	batchSize = 512  // maximum number of spans in a request

	// exportEvery is the maximum time that an ended span waits for others.
	exportEvery = time.Second
)

// A Stat counts spans since the start.
type Stat struct {
	Exported uint64
	Dropped  uint64 // sampled records without a span, because too many were in progress or waited for the receiver
	Rejected uint64 // spans that the receiver rejected
}

// A Tracer makes and exports spans. Start, End, Fail, Abandon and Stat may be called from any goroutine and
// do not wait for an export. Run must be called once.
type Tracer struct {
	cfg    Config
	log    *slog.Logger
	client *http.Client
	some   chan struct{} // cap 1; a span has ended
	full   chan struct{} // cap 1; a full batch of spans has ended

	resource, scope []byte // encoded
	body            []byte // of the request; used by the exporting goroutine
	failing         bool   // logFailure has logged; used by the exporting goroutine
	partly          bool   // a rejection was logged; used by the exporting goroutine

	mu      sync.Mutex
	made    int
	free    []*span
	started map[uint64]*span // by the record's Seq
	ended   []*span          // the oldest first
	stat    Stat
}

// New returns a Tracer. It does not connect.
func New(cfg Config, log *slog.Logger) *Tracer {
	t := &Tracer{
		cfg: cfg, log: log, client: newClient(cfg.TLS),
		some: make(chan struct{}, 1), full: make(chan struct{}, 1),
		started: make(map[uint64]*span),
	}
	t.resource, t.scope = encodeResource(&cfg), encodeScope(&cfg)
	return t
}

// Start starts the span for a record that is about to be sent, and returns the trace context for the
// record. ok is false if there is no room for another span; the record must then keep its context.
func (t *Tracer) Start(m *Message) (c Context, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.acquireSpan()
	if s == nil {
		t.stat.Dropped++
		return Context{}, false
	}
	s.set(m, now, t.cfg.Keys)
	t.started[m.Seq] = s
	return s.context(), true
}

// acquireSpan returns an unused span, or nil. The caller holds t.mu.
func (t *Tracer) acquireSpan() *span {
	if last := len(t.free) - 1; last >= 0 {
		s := t.free[last]
		t.free = t.free[:last]
		return s
	}
	if t.made == maxSpans {
		return nil
	}
	t.made++
	return new(span)
}

// A Delivery is a sequence of records that the broker has acknowledged.
type Delivery struct {
	Partition int32
	Offset    int64  // of the first; negative: not known
	Broker    string // host:port
	Seqs      []uint64
}

// End ends the spans of acknowledged records. It returns the trace id of one of them in hexadecimal digits,
// or "" if none of them has a span.
func (t *Tracer) End(d Delivery) (traceID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.started) == 0 {
		return ""
	}
	now := time.Now()
	for i, seq := range d.Seqs {
		s := t.started[seq]
		if s == nil {
			continue
		}
		s.partition, s.broker = d.Partition, d.Broker
		if d.Offset >= 0 {
			s.offset = d.Offset + int64(i)
		}
		if traceID == "" {
			traceID = hex.EncodeToString(s.parent.TraceID[:])
		}
		t.end(seq, s, now)
	}
	return traceID
}

// Fail ends the span of a rejected record, if it has one. kind is the class of the error, such as an error
// code.
func (t *Tracer) Fail(seq uint64, kind, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.started[seq]; s != nil {
		s.failure, s.reason = kind, reason
		t.end(seq, s, time.Now())
	}
}

// Abandon ends all spans in progress as failures, because their records have no outcome and will be resent.
// The sequences may be used again.
func (t *Tracer) Abandon(kind, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for seq, s := range t.started {
		s.failure, s.reason = kind, reason
		t.end(seq, s, now)
	}
}

// end moves a span to the ended ones. The caller holds t.mu.
func (t *Tracer) end(seq uint64, s *span, now time.Time) {
	s.end = max(s.handed, now.UnixNano())
	delete(t.started, seq)
	t.ended = append(t.ended, s)
	signal(t.some)
	if len(t.ended) >= batchSize {
		signal(t.full)
	}
}

// batch removes and returns the oldest ended spans.
func (t *Tracer) batch() []*span {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.ended), batchSize)
	batch := make([]*span, n)
	copy(batch, t.ended)
	t.ended = append(t.ended[:0], t.ended[n:]...)
	return batch
}

// keep puts a batch back in front of the ended spans.
func (t *Tracer) keep(batch []*span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(batch, t.ended...)
}

// releaseBatch counts the spans of a batch that the receiver has processed, and reuses their memory.
func (t *Tracer) releaseBatch(batch []*span, rejected uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rejected = min(rejected, uint64(len(batch)))
	t.stat.Rejected += rejected
	t.stat.Exported += uint64(len(batch)) - rejected
	t.free = append(t.free, batch...)
}

// Stat returns a snapshot.
func (t *Tracer) Stat() Stat {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stat
}

// signal puts a token into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A Config says where spans are exported to, and what they contain in addition to the record.
type Config struct {
	// URL is the endpoint for traces, such as https://collector:4318/v1/traces.
	URL string

	// Headers returns the headers of a request, such as an API key. It is called for each request, so
	// that secrets may be rotated. An error is retried like an unreachable receiver. Nil: no headers.
	Headers func() (http.Header, error)

	// TLS configures TLS. Nil means Go's defaults.
	TLS *tls.Config

	Service  string      // service.name of the resource
	Version  string      // service.version, and that of the instrumentation
	Resource []Attribute // what else the resource has; one of a name from above replaces that

	System   string // messaging.system of the broker, such as kafka
	ClientID string // messaging.client.id
	Keys     bool   // record keys become messaging.kafka.message.key, or outbox_cdc.message.key for another broker
}

// An Attribute is a name with a text.
type Attribute struct{ Name, Value string }
