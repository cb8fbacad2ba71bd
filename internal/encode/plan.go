package encode

import (
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A plan maps the columns of a relation to the parts of a record. It is valid only for the relation from
// which it was made; the decoder returns a new pointer for a changed definition.
type plan struct {
	relation *decoder.Relation
	table    string
	context  []sink.Header // before the headers of the record; none for messages, as with Debezium

	id, key, route, payload field
	eventType               *field
	headers                 *field
	trace                   *field
	partition               *field
	timestamp               *timestamp
	topic                   []topicPart
	placed                  []placedHeader
	envelope                *envelope // nil: the value is the payload
	emptyIsNull             bool      // an empty payload is a tombstone
	oldKey                  *oldKey   // for rows whose identity has changed; nil: not made yet, or not configured
}

type topicPart struct {
	text  string
	field *field // nil: literal text
}

type placedHeader struct {
	name  string
	field field
}

// A timestamp is the column with the record's timestamp.
type timestamp struct {
	field
	zoned bool // the text has an offset from UTC
}

// newPlan finds the configured columns in rel. The error is a *ColumnError with all missing or unsuitable
// columns, or that of describe.
func (r *Router) newPlan(rel *decoder.Relation) (*plan, error) {
	p := &plan{relation: rel, table: rel.Namespace + "." + rel.Name, context: r.context}
	return p, r.fill(p, &finder{rel: rel, types: typing{rel: rel, describe: r.describe}, debezium: &r.cfg.Debezium})
}

// fill fills p with the columns that f finds.
func (r *Router) fill(p *plan, f *finder) error {
	cfg, encoding := r.cfg, r.cfg.Encoding

	p.id = f.encoded(cfg.Columns.ID, "columns.id", encoding.Headers, "encoding.headers")
	p.key = f.encoded(cfg.Columns.Key, "columns.key", f.delegated(cfg.Columns.Key, encoding.Key, cfg.Debezium.KeyDelegate), "encoding.key")
	p.route = f.need(cfg.Columns.Route, "columns.route")
	p.payload = f.need(cfg.Columns.Payload, "columns.payload")
	if len(cfg.Columns.Type) > 0 {
		p.eventType = new(f.encoded(cfg.Columns.Type, "columns.type", encoding.Headers, "encoding.headers"))
	}
	f.headers(cfg, p)
	if len(cfg.Columns.TraceContext) > 0 {
		p.trace = new(f.need(cfg.Columns.TraceContext, "columns.trace_context"))
	}
	for _, t := range r.template {
		tp := topicPart{text: t.text}
		if t.column != "" {
			tp.field = new(f.need(cfg.Columns.byRole(t.column), "topic"))
		}
		p.topic = append(p.topic, tp)
	}
	f.timestamp(cfg, p)
	members := f.place(cfg, p)
	f.value(cfg, p, members)
	return f.err(p.table)
}

// headers finds the column whose members become headers.
func (f *finder) headers(cfg Config, p *plan) {
	if len(cfg.Columns.Headers) == 0 {
		return
	}
	if h, ok := f.find(cfg.Columns.Headers); ok {
		p.headers = &h
	} else if !slices.Equal(cfg.Columns.Headers, DefaultColumns().Headers) {
		f.need(cfg.Columns.Headers, "columns.headers")
	}
}

// timestamp finds the column with the record's timestamp.
func (f *finder) timestamp(cfg Config, p *plan) {
	const key = "columns.timestamp"
	if len(cfg.Columns.Timestamp) == 0 {
		return
	}
	t := f.need(cfg.Columns.Timestamp, key)
	if t.name == "" {
		return
	}
	oid := f.types.column(t, false).Type.OID
	if oid != oidTimestamp && oid != oidTimestamptz {
		f.problem("column %q is no timestamp, with or without time zone (outbox.%s)", t.name, key)
		return
	}
	p.timestamp = &timestamp{field: t, zoned: oid == oidTimestamptz}
}

// place finds the placed columns and returns those of the envelope.
func (f *finder) place(cfg Config, p *plan) []member {
	var members []member
	for i, pl := range cfg.Place {
		key := fmt.Sprintf("place[%d]", i)
		c, ok := f.find(ColumnNames{pl.Column})
		if !ok && cfg.OnMissingColumn == MissingIgnore {
			continue
		}
		if !ok {
			c = f.need(ColumnNames{pl.Column}, key)
		}
		switch pl.To {
		case ToHeader:
			if f.placed(&c, key, cfg.Encoding.Headers, cfg.OnMissingColumn) {
				p.placed = append(p.placed, placedHeader{name: pl.name(), field: c})
			}
		case ToEnvelope:
			if f.placed(&c, key, cfg.Encoding.Value, cfg.OnMissingColumn) {
				members = append(members, member{name: pl.name(), field: c})
			}
		case ToPartition:
			f.integer(c, key)
			p.partition = &c
		}
	}
	return members
}

// byRole returns the names of the column for a name in a topic template: the column with that role, or the column of
// that name.
func (c Columns) byRole(name string) ColumnNames {
	switch name {
	case "id":
		return c.ID
	case "key":
		return c.Key
	case "route":
		return c.Route
	case "type":
		if len(c.Type) > 0 {
			return c.Type
		}
	}
	return ColumnNames{name}
}
