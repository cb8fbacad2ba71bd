package route

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unsafe"

	"github.com/jackc/pglogrepl"
	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/decoder"
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
	plans    map[uint32]*plan // by relation OID
	topics   topicCache
	topic    []byte // the topic being put together
	scratch  []byte // decoded bytea and position headers of the current record
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
	return &Router{
		cfg:      cfg,
		template: template,
		plans:    map[uint32]*plan{},
		topics:   topicCache{},
		scratch:  make([]byte, 0, 256), // never nil: an empty bytea is empty, not NULL
	}, nil
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
// *ColumnError.
func (r *Router) Route(tx Tx, index int, row *decoder.Insert, rec *sink.Record) error {
	p, err := r.planFor(row.Relation)
	if err != nil {
		return err
	}
	b := builder{r: r, plan: p, row: row.Row, rec: rec}
	r.scratch = r.scratch[:0]
	rec.Headers = rec.Headers[:0]
	rec.Timestamp = tx.Timestamp

	b.identity()
	b.topicName()
	b.partitionNumber()
	rec.Key = b.raw(&p.key)
	b.value()
	b.rowHeaders()
	for i := range p.placed {
		h := &p.placed[i]
		b.header(h.name, b.raw(&h.field))
	}
	if r.cfg.PositionHeaders {
		b.positionHeaders(tx, index)
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
	p, err := newPlan(r.cfg, r.template, rel)
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
		b.err = &RowError{Table: b.plan.table, ID: string(b.id), Column: column, Reason: reason}
	}
}

// raw returns the column's bytes, nil for NULL.
func (b *builder) raw(f *field) []byte {
	data, reason := f.raw(b.row, &b.r.scratch)
	if reason != "" {
		b.fail(f.name, reason)
	}
	return data
}

func (b *builder) header(key string, value []byte) {
	b.rec.Headers = append(b.rec.Headers, sink.Header{Key: key, Value: value})
}

func (b *builder) identity() {
	id := b.raw(&b.plan.id)
	if id == nil {
		b.fail(b.plan.id.name, "is NULL; every event needs an id")
	}
	b.id = id
	b.header(IDHeader, id)
	if b.plan.eventType != nil {
		b.header(TypeHeader, b.raw(b.plan.eventType))
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
		v := b.raw(t.field)
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
	b.rec.Partition = sink.AnyPartition
	if b.plan.partition == nil {
		return
	}
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

func (b *builder) value() {
	v := b.raw(&b.plan.payload)
	if b.r.cfg.TombstoneOnEmpty && len(bytes.TrimSpace(v)) == 0 {
		v = nil
	}
	b.rec.Value = v
}

// rowHeaders adds the members of the headers column in the order Postgres prints them.
func (b *builder) rowHeaders() {
	if b.plan.headers == nil {
		return
	}
	v := b.raw(b.plan.headers)
	if v == nil {
		return
	}
	if oid := b.plan.headers.oid; oid != oidJSON && oid != oidJSONB && !json.Valid(v) {
		b.fail(b.plan.headers.name, "is not JSON")
		return
	}
	// v is not written to while the parsed object is in use.
	object := gjson.Parse(unsafe.String(unsafe.SliceData(v), len(v))) //nolint:gosec // saves a copy; see above
	if !object.IsObject() {
		if object.Type != gjson.Null {
			b.fail(b.plan.headers.name, "is not a JSON object")
		}
		return
	}
	object.ForEach(func(name, member gjson.Result) bool {
		text := member.Raw
		if member.Type == gjson.String {
			text = member.Str
		}
		b.header(name.Str, bytesOf(text))
		return true
	})
}

// bytesOf views s as bytes, which must not be written to. Never nil: an empty header is
// not a null one.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // saves a copy; see above
}

func (b *builder) positionHeaders(tx Tx, index int) {
	b.scratchHeader("outbox_lsn", func(s []byte) []byte { return append(s, tx.CommitLSN.String()...) })
	b.scratchHeader("outbox_index", func(s []byte) []byte { return strconv.AppendInt(s, int64(index), 10) })
	b.scratchHeader("outbox_committed_at", func(s []byte) []byte {
		return tx.CommitTime.UTC().AppendFormat(s, time.RFC3339Nano)
	})
}

// scratchHeader adds a header whose value write appends to the scratch space.
func (b *builder) scratchHeader(key string, write func([]byte) []byte) {
	start := len(b.r.scratch)
	b.r.scratch = write(b.r.scratch)
	b.header(key, b.r.scratch[start:len(b.r.scratch):len(b.r.scratch)])
}
