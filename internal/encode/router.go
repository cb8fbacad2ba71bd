package encode

import (
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Tx is what a record takes from its transaction.
type Tx struct {
	CommitLSN  pglogrepl.LSN
	CommitTime time.Time
	Timestamp  time.Time // the records' timestamp: CommitTime, or now where the server's clock is ahead of ours
}

// A Router makes records from rows. It belongs to one goroutine.
type Router struct {
	cfg      Config
	template []part
	describe Describe
	plans    map[uint32]*plan // by relation OID
	topics   topicCache
	topic    []byte // the topic being put together
	scratch  []byte // what has been made for the current record: decoded bytea, encoded values, …

	context     []sink.Header     // of rows of tables
	static      []sink.Header     // behind them
	plain       *connect.Field    // makes a header of a text; nil: that is its bytes
	schemaNames map[string]string // that have been given, by what Debezium tells schemas apart by
	messages    map[string]*plan  // by the members of a message
	shapeBytes  int               // of the keys of messages
}

// New returns a Router, or every problem of cfg at once.
func New(cfg Config) (*Router, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	template, err := parseTemplate(cfg.Topic)
	if err != nil {
		return nil, err
	}
	topics, err := newTopicCache(cfg)
	if err != nil {
		return nil, err
	}
	r := &Router{
		cfg:         cfg,
		template:    template,
		plans:       map[uint32]*plan{},
		topics:      topics,
		schemaNames: map[string]string{},
		messages:    map[string]*plan{},
	}
	r.resetScratch()
	return r, r.fixHeaders()
}

// Check reports whether rows of rel can become records: a *ColumnError if not. It costs
// nothing for the relation that the last one of its OID was; servers often repeat it.
func (r *Router) Check(rel *decoder.Relation) error {
	_, err := r.planFor(rel)
	return err
}

// Route fills rec with the record of row, the index-th row of tx counted from 0.
// rec.Seq is left alone. The slices in rec alias row and the Router: they are valid until
// the next call and until the decoder's next message. The error is a *RowError or a
// *ColumnError, or wraps that of [Describe].
func (r *Router) Route(tx Tx, index int, row *decoder.Insert, rec *sink.Record) error {
	p, err := r.planFor(row.Relation)
	if err != nil {
		return err
	}
	return r.record(p, tx, index, row.Row, nil, rec)
}

// largeScratch is how much scratch space is kept for the next record.
const largeScratch = 1 << 20

// resetScratch empties the scratch space, and releases the memory of a large record. The space is
// never nil, because an empty bytea is empty, not NULL.
func (r *Router) resetScratch() {
	if r.scratch == nil || cap(r.scratch) > largeScratch {
		r.scratch = make([]byte, 0, 256)
	}
	r.scratch = r.scratch[:0]
}

// record fills rec with the record of row. An old row is one whose identity row has changed.
func (r *Router) record(p *plan, tx Tx, index int, row, old []decoder.Value, rec *sink.Record) error {
	b := builder{r: r, plan: p, row: row, rec: rec}
	r.resetScratch()
	rec.Headers = rec.Headers[:0]

	b.identify()
	if old != nil && p.oldKey != nil {
		b.oldKey(p.oldKey, old)
	}
	if p.context != nil {
		rec.Headers = append(rec.Headers, p.context...)
	}
	b.identity()
	b.topicName()
	rec.Partition = sink.AnyPartition
	if p.partition != nil {
		b.partitionNumber()
	}
	rec.Timestamp = tx.Timestamp
	if p.timestamp != nil {
		b.timestamp()
	}
	rec.Key = b.part(&p.key)
	rec.Value = b.value()
	if p.headers != nil {
		b.rowHeaders()
	}
	for i := range p.placed {
		h := &p.placed[i]
		b.header(h.name, b.part(&h.field))
	}
	if p.trace != nil {
		b.traceContext(p.trace)
	}
	if r.cfg.PositionHeaders {
		b.positionHeaders(tx, index)
	}
	if r.static != nil {
		rec.Headers = append(rec.Headers, r.static...)
	}
	if b.err != nil {
		return b.err
	}
	return nil
}

func (r *Router) planFor(rel *decoder.Relation) (*plan, error) {
	if p := r.plans[rel.OID]; p != nil && p.relation == rel {
		return p, nil
	}
	p, err := r.newPlan(rel)
	if err != nil {
		return nil, err
	}
	r.plans[rel.OID] = p
	return p, nil
}

// A builder fills one record. The first column that cannot be used ends up in err; what
// follows is harmless and its result is not used.
type builder struct {
	r    *Router
	plan *plan
	row  []decoder.Value
	rec  *sink.Record
	id   []byte
	err  *RowError
}

func (b *builder) fail(column, reason string) {
	if b.err == nil {
		b.err = &RowError{table: b.plan.table, ID: string(b.id), column: column, reason: reason}
	}
}

// text returns what Postgres prints for the column, nil for NULL. The usual case is short
// enough to be inlined, here and in part.
func (b *builder) text(f *field) []byte {
	if v := &b.row[f.index]; v.Kind == decoder.Text {
		return v.Data
	}
	return b.noText(f)
}

func (b *builder) noText(f *field) []byte {
	data, reason := f.text(b.row)
	return b.checked(f, data, reason)
}

// part returns what the record holds of the column, nil for a null.
func (b *builder) part(f *field) []byte {
	if v := &b.row[f.index]; v.Kind == f.verbatim {
		return v.Data
	}
	return b.made(f)
}

func (b *builder) made(f *field) []byte {
	data, reason := f.part(b.row, &b.r.scratch)
	return b.checked(f, data, reason)
}

// raw returns the column's own bytes, nil for NULL.
func (b *builder) raw(f *field) []byte {
	data, reason := f.raw(b.row, &b.r.scratch)
	return b.checked(f, data, reason)
}

func (b *builder) checked(f *field, data []byte, reason string) []byte {
	if reason != "" {
		b.fail(f.name, reason)
	}
	return data
}

// scratch returns what write appends to the scratch space.
func (b *builder) scratch(column string, write func([]byte) ([]byte, error)) []byte {
	start := len(b.r.scratch)
	out, err := write(b.r.scratch)
	if err != nil {
		b.fail(column, err.Error())
		return nil
	}
	b.r.scratch = out
	return out[start:len(out):len(out)]
}

func (b *builder) header(key string, value []byte) {
	b.rec.Headers = append(b.rec.Headers, sink.Header{Key: key, Value: value})
}

// identify says which row errors are about.
func (b *builder) identify() {
	b.id = b.text(&b.plan.id)
	if b.id == nil {
		b.fail(b.plan.id.name, "is NULL; every event needs an id")
	}
}

func (b *builder) identity() {
	b.header(IDHeader, b.part(&b.plan.id))
	if b.plan.eventType != nil {
		b.header(TypeHeader, b.part(b.plan.eventType))
	}
}

func (b *builder) topicName() {
	name := b.r.topic[:0]
	column := b.r.cfg.Columns.Route
	for _, t := range b.plan.topic {
		if t.field == nil {
			name = append(name, t.text...)
			continue
		}
		v := b.part(t.field)
		if v == nil {
			b.fail(t.field.name, "is NULL, and the topic's name needs it")
		}
		name, column = append(name, v...), t.field.name
	}
	b.r.topic = name
	topic, illegal := b.r.topics.intern(name)
	if illegal != "" {
		b.fail(column, "the topic name "+illegal) // which is not shown: the key may be in it
	}
	b.rec.Topic = topic
}

func (b *builder) partitionNumber() {
	v := b.raw(b.plan.partition)
	if v == nil {
		return
	}
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil || n < 0 {
		b.fail(b.plan.partition.name, "is not a partition's number")
		return
	}
	b.rec.Partition = int32(n)
}

// timestamp takes the record's timestamp from its column, unless that is NULL. Kafka has none
// before 1970.
func (b *builder) timestamp() {
	text := b.text(&b.plan.timestamp.field)
	if text == nil {
		return
	}
	ms, err := b.plan.timestamp.read.Millis(text)
	switch {
	case err != nil:
		b.fail(b.plan.timestamp.name, err.Error())
	case ms < 0:
		b.fail(b.plan.timestamp.name, "is before 1970, where Kafka has no timestamps")
	default:
		b.rec.Timestamp = time.UnixMilli(ms)
	}
}
