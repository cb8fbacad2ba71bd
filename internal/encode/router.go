package encode

import (
	"hash/crc32"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Tx has the parts of a record that come from its transaction.
type Tx struct {
	CommitLSN  pglogrepl.LSN // 0 for rows that are read from a table
	CommitTime time.Time
	Timestamp  time.Time // timestamp of the records: CommitTime, or now if the server's clock is ahead of ours
}

// A Router makes records from rows. One goroutine uses it.
type Router struct {
	cfg      Config
	template []part
	describe Describe
	plans    map[uint32]*plan // by relation OID
	topics   topicCache
	topic    []byte // buffer for the topic name
	scratch  []byte // buffer for the current record: decoded bytea, encoded values, …
	lsn      []byte // buffer for the header lsn

	context     []sink.Header     // context headers of table rows
	static      []sink.Header     // static headers, last in the record
	plain       format.Codec      // encodes a text as a header; nil: the header has its bytes
	schemaNames map[string]string // schema names, by the version or the type of the payload
	messages    map[string]*plan  // by the members and types of a message
	shapeBytes  int               // size of the keys of messages
}

// New returns a Router. The error has every problem of cfg.
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

// Check checks that rows of rel can become records. The error is a *ColumnError, or wraps that of
// [Describe]. Check is cheap if rel is the same pointer as in the last call for its OID; servers often
// repeat a definition.
func (r *Router) Check(rel *decoder.Relation) error {
	_, err := r.planFor(rel)
	return err
}

// HasColumns reports whether rel has the columns that every outbox row must have, whatever their types are.
func (r *Router) HasColumns(rel *decoder.Relation) bool {
	c := r.cfg.Columns
	for _, names := range []ColumnNames{c.ID, c.Key, c.Route, c.Payload} {
		if names.in(rel) == "" {
			return false
		}
	}
	return true
}

// Route fills rec with the record for row. index is the index of the row in tx, from 0. Route does not set
// rec.Seq. The slices in rec alias row and the Router, and are valid until the next call and until the
// decoder's next message. The error is a *RowError or a *ColumnError, or wraps that of [Describe]. With a
// *RowError, rec still has the topic and the key if the row has valid ones, and otherwise "" or nil.
func (r *Router) Route(tx Tx, index int, row *decoder.Insert, rec *sink.Record) error {
	p, err := r.planFor(row.Relation)
	if err != nil {
		return err
	}
	return r.record(p, tx, index, row.Row, nil, rec)
}

// castagnoli is the polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// Hash returns a checksum of the id, the key and the payload of a row, which are the same in the stream and in the table. The error is a
// *ColumnError, or wraps that of [Describe].
func (r *Router) Hash(row *decoder.Insert) (uint32, error) {
	p, err := r.planFor(row.Relation)
	if err != nil {
		return 0, err
	}
	var sum uint32
	for _, c := range [...]*field{&p.id, &p.key, &p.payload} {
		sum = crc32.Update(sum, castagnoli, row.Row[c.index].Data)
		sum = crc32.Update(sum, castagnoli, separator[:])
	}
	return sum, nil
}

// separator is in no text of Postgres.
var separator = [1]byte{0} //nolint:gochecknoglobals // a constant

// largeScratch is the maximum size of the scratch buffer that is kept for the next record.
const largeScratch = 1 << 20

// resetScratch empties the scratch buffer, and releases it after a large record. The buffer is never nil,
// because an empty bytea is empty, not NULL.
func (r *Router) resetScratch() {
	if r.scratch == nil || cap(r.scratch) > largeScratch {
		r.scratch = make([]byte, 0, 256)
	}
	r.scratch = r.scratch[:0]
}

// record fills rec with the record for row. old is nil, or the previous row if its identity has changed.
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
	if r.cfg.LSNHeader && tx.CommitLSN != 0 {
		b.lsnHeader(tx.CommitLSN, index)
	}
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

// A builder fills one record. err is the error of the first invalid column. The builder then continues,
// and the caller does not use the result.
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

// text returns the text of the column, nil for NULL. Like part, it is split so that the usual case can be
// inlined.
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

// part returns the column as a part of the record, nil for null.
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

// scratch calls write, which appends to the scratch buffer, and returns the appended bytes.
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

// identify adds the id of the row to err.
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
	column, known := b.plan.route.name, true
	for _, t := range b.plan.topic {
		if t.field == nil {
			name = append(name, t.text...)
			continue
		}
		v := b.part(t.field)
		if v == nil {
			b.fail(t.field.name, "is NULL, and the topic's name needs it")
			known = false
		}
		name, column = append(name, v...), t.field.name
	}
	b.r.topic = name
	topic, illegal := b.r.topics.intern(name)
	if illegal != "" {
		b.fail(column, "the topic name "+illegal) // without the name, which may contain the key
	}
	if !known {
		topic = ""
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

// timestamp sets the record's timestamp from its column, unless that is NULL. Brokers do not accept
// timestamps before 1970.
func (b *builder) timestamp() {
	text := b.text(&b.plan.timestamp.field)
	if text == nil {
		return
	}
	ms, err := pgtime.Millis(text, b.plan.timestamp.zoned)
	switch {
	case err != nil:
		b.fail(b.plan.timestamp.name, err.Error())
	case ms < 0:
		b.fail(b.plan.timestamp.name, "is before 1970, where records have no timestamps")
	default:
		b.rec.Timestamp = time.UnixMilli(ms)
	}
}
