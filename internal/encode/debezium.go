package encode

import (
	"errors"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// Debezium has the options for records that must be byte for byte those of Debezium's outbox event
// router. The options for values apply only to parts of the record whose encoding is not raw.
type Debezium struct {
	// Name is topic.prefix of the connector. It is part of context headers and of the schema
	// names of envelopes.
	Name string

	// ContextHeaders adds the headers __debezium.context.… to the records of table rows, before
	// all others. For rows whose identity has changed, it also adds __debezium.oldkey before
	// them.
	ContextHeaders bool

	// Modes are the options of the connector for values.
	Modes connect.Modes

	// KeyDelegate and ValueDelegate are the encodings of a key or value that is not bytea, if
	// its encoding is [format.Bytes]. Empty: only bytea is allowed.
	KeyDelegate, ValueDelegate format.Encoding

	// Expand writes a payload that is a JSON document as a document instead of a string, as
	// Expansion says.
	Expand    bool
	Expansion connect.Expansion

	// Exact rejects a row whose values Debezium damages, such as a NULL that it replaces with the
	// default of the column. Without Exact, the record has the correct value.
	Exact bool
}

// modes returns the modes with Exact.
func (d Debezium) modes() connect.Modes {
	m := d.Modes
	m.Exact = d.Exact
	return m
}

// header returns the Codec of headers that have a text.
func (d Debezium) header(enc format.Encoding) (format.Codec, error) {
	text := format.Column{Type: format.Type{OID: oidText, Name: "text", Kind: 'b', Modifier: -1}}
	of, err := connect.NewField(text, d.modes())
	if err != nil {
		return nil, err
	}
	return of.Codec(enc, nil), nil
}

// convert sets the codec of c, unless the values with enc are the column's text.
func (f *finder) convert(c *field, enc format.Encoding, expand bool) error {
	of, column, err := f.converter(*c, enc)
	if err != nil {
		return unwritable{err}
	}
	nullIsNull := enc == format.String || enc == format.Simple
	switch {
	case expand || f.message && column.Type.OID == oidJSON && isJSON(enc):
		c.codec, c.expanded = of.Codec(enc, &f.debezium.Expansion), true
	case nullIsNull && column.Type.OID != oidBytea && of.Verbatim(enc):
		return nil
	default:
		c.codec = of.Codec(enc, nil)
	}
	c.verbatim = 0
	return nil
}

func (f *finder) converter(c field, enc format.Encoding) (*connect.Field, format.Column, error) {
	column := f.types.column(c, enc == format.JSONSchema)
	of, err := connect.NewField(column, f.debezium.modes())
	return of, column, err
}

// isUnsupported reports whether err is about a type that Debezium leaves out.
func isUnsupported(err error) bool {
	_, unsupported := errors.AsType[*connect.UnsupportedError](err)
	return unsupported
}

// unwritable is an error of package connect, as the end of a sentence.
type unwritable struct{ error }

func (u unwritable) Error() string {
	if e, ok := errors.AsType[*connect.UnsupportedError](u.error); ok {
		return "is of type " + e.Type + ", which only the encoding raw can send: Debezium leaves such a column out"
	}
	if e, ok := errors.AsType[*connect.DroppedError](u.error); ok {
		return "was of type " + e.Type + ", or of a domain over it, which was dropped after this row was written: its values can be sent as they are, with the encoding raw, but not be encoded"
	}
	return "cannot be written: " + u.error.Error()
}

func (u unwritable) Unwrap() error { return u.error }
