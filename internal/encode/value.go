package encode

import (
	"bytes"
	"slices"
)

// value finds the columns of the value.
func (f *finder) value(cfg Config, p *plan, members []member) {
	enc := f.delegated(ColumnNames{p.payload.name}, cfg.Encoding.Value, cfg.Debezium.ValueDelegate)
	expand := cfg.Debezium.Expand && isJSON(enc) // otherwise bytea, which has no members
	if err := f.encode(&p.payload, enc, expand); err != nil {
		f.problem("column %q %v (outbox.encoding.value)", p.payload.name, err)
		return
	}
	p.emptyIsNull = cfg.TombstoneOnEmpty && (p.payload.oid != oidBytea || p.payload.codec != nil && cfg.Debezium.Modes.BinaryIsText())
	if p.payload.codec == nil || !slices.ContainsFunc(cfg.Place, func(pl Placement) bool { return pl.To == ToEnvelope }) {
		return
	}
	p.envelope = f.envelope(cfg, p, members)
}

// value returns the record's value.
func (b *builder) value() []byte {
	if b.r.cfg.TombstoneOnEmpty && b.isEmpty() {
		return nil
	}
	if b.plan.envelope == nil {
		return b.part(&b.plan.payload)
	}
	return b.envelope(b.plan.envelope)
}

// isEmpty reports whether the payload is NULL or counts as empty.
func (b *builder) isEmpty() bool {
	text := b.text(&b.plan.payload)
	switch {
	case text == nil:
		return true
	case b.plan.payload.oid == oidBytea: // Debezium's text for it is blank only if it is empty
		return b.plan.emptyIsNull && string(text) == `\x`
	}
	return b.plan.emptyIsNull && isBlank(text)
}

// isBlank reports whether java.lang.String.trim returns an empty string for text.
func isBlank(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r > ' ' })
}
