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
	maxSpans  = 2048 // that exist at a time
	batchSize = 512  // of one request

	// exportEvery is how long an ended span waits for others at most.
	exportEvery = time.Second
)

// A Stat counts spans since the start. Whatever has begun is exported, lost or under way.
type Stat struct {
	Exported uint64
	Dropped  uint64 // sampled records that got none: too many were under way, or waited for the receiver
	Rejected uint64 // by the receiver
}

// A Tracer makes spans. Begin, End, Fail, Abandon and Stat may be called from any goroutine and
// do not wait for an export; Run is called once.
type Tracer struct {
	cfg    Config
	log    *slog.Logger
	client *http.Client
	some   chan struct{} // cap 1: a span has ended
	full   chan struct{} // cap 1: a batch of them has

	resource, scope []byte // encoded
	body            []byte // of the request; the exporter's
	failing         bool   // has been logged; the exporter's
	partly          bool   // that a receiver took some has been logged; the exporter's

	mu      sync.Mutex
	made    int
	free    []*span
	started map[uint64]*span // by the record's Seq
	ended   []*span          // the oldest first
	stat    Stat
}

// New returns a Tracer. It contacts nobody.
func New(cfg Config, log *slog.Logger) *Tracer {
	t := &Tracer{
		cfg: cfg, log: log, client: newClient(cfg.TLS),
		some: make(chan struct{}, 1), full: make(chan struct{}, 1),
		started: make(map[uint64]*span),
	}
	t.resource, t.scope = encodeResource(&cfg), encodeScope(&cfg)
	return t
}

// Start begins the span of a record that is about to be handed over, and returns what the record
// is to name as its context. ok is false where there is no room for one more: then the record
// keeps the context it has.
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

// acquireSpan returns a span that is not in use, or nil. t.mu is held.
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

// A Delivery is where records were appended to a log.
type Delivery struct {
	Partition int32
	Offset    int64  // of the first; negative: not known
	Broker    string // host:port
	Seqs      []uint64
}

// End ends the spans of acknowledged records. It returns the trace id of one of them in
// hexadecimal digits; empty if none of them has a span.
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

// Fail ends the span of a record that was not taken, if it has one: kind is a class of errors,
// such as the name of a code.
func (t *Tracer) Fail(seq uint64, kind, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.started[seq]; s != nil {
		s.failure, s.reason = kind, reason
		t.end(seq, s, time.Now())
	}
}

// Abandon ends the spans that have begun, as failures: their records have no outcome, and will
// be sent again. The sequences may be used again.
func (t *Tracer) Abandon(kind, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for seq, s := range t.started {
		s.failure, s.reason = kind, reason
		t.end(seq, s, now)
	}
}

// end moves a span to those that are exported. t.mu is held.
func (t *Tracer) end(seq uint64, s *span, now time.Time) {
	s.end = max(s.handed, now.UnixNano())
	delete(t.started, seq)
	t.ended = append(t.ended, s)
	signal(t.some)
	if len(t.ended) >= batchSize {
		signal(t.full)
	}
}

// batch takes the oldest ended spans; none if there are none.
func (t *Tracer) batch() []*span {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.ended), batchSize)
	batch := make([]*span, n)
	copy(batch, t.ended)
	t.ended = append(t.ended[:0], t.ended[n:]...)
	return batch
}

// keep puts a batch back to the front.
func (t *Tracer) keep(batch []*span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(batch, t.ended...)
}

// releaseBatch forgets a batch of which the receiver has rejected so many.
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

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A Config says where spans go, and what they say beside what is known of the record.
type Config struct {
	// URL is where traces are posted: https://collector:4318/v1/traces.
	URL string

	// Headers returns what each request carries, such as a key. It is called for each one, so
	// that secrets may be replaced; an error counts as a receiver that cannot be reached. Nil:
	// nothing.
	Headers func() (http.Header, error)

	// TLS is how to encrypt. Nil stands for Go's defaults.
	TLS *tls.Config

	Service  string      // service.name of the resource
	Version  string      // service.version, and that of the instrumentation
	Resource []Attribute // what else the resource has; one of a name from above replaces that

	ClientID string // messaging.client.id
	Keys     bool   // record keys become messaging.kafka.message.key
}

// An Attribute is a name with a text.
type Attribute struct{ Name, Value string }
