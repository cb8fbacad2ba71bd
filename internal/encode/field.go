package encode

import (
	"encoding/hex"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// Object identifiers of built-in types (src/include/catalog/pg_type.dat).
const (
	oidBool        = 16
	oidBytea       = 17
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidJSON        = 114
	oidFloat8      = 701
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidJSONB       = 3802
)

// A field is a column of a relation.
type field struct {
	name       string
	index      int // place in the tuple
	oid        uint32
	verbatim   decoder.Kind // of values that are the record's part as they are: Text, or else 0
	hasDefault bool         // with Exact, reject NULL: Debezium would send the default
	codec      format.Codec // nil: the column's own bytes
	expanded   bool         // codec expands JSON documents
}

// text returns what Postgres prints for the column's value in row, nil for NULL. reason says why
// there is nothing, "" if there is.
func (c *field) text(row []decoder.Value) (data []byte, reason string) {
	v := &row[c.index]
	switch v.Kind {
	case decoder.Text:
		return v.Data, ""
	case decoder.Null:
		if c.hasDefault {
			return nil, "is NULL, for which Debezium sends the column's default (debezium.exact)"
		}
		return nil, ""
	case decoder.Unchanged:
		return nil, "the value was not sent (unchanged TOAST)"
	case decoder.Binary:
	}
	return nil, "the value came in binary form, which was not asked for"
}

// raw returns the column's bytes in row: nil for NULL, text as Postgres prints it, bytea
// decoded into scratch. reason says why the value cannot be used, "" if it can.
func (c *field) raw(row []decoder.Value, scratch *[]byte) (data []byte, reason string) {
	text, reason := c.text(row)
	if c.oid != oidBytea || text == nil {
		return text, reason
	}
	digits, ok := cutHexPrefix(text)
	if !ok {
		return nil, `bytea is not in hex form; the session's bytea_output was changed`
	}
	start := len(*scratch)
	out, err := hex.AppendDecode(*scratch, digits)
	if err != nil {
		return nil, "bytea is not in hex form"
	}
	*scratch = out
	return out[start:len(out):len(out)], ""
}

func cutHexPrefix(b []byte) ([]byte, bool) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, false
	}
	return b[2:], true
}

// part returns the column of row as a part of the record, or nil for null. It appends encoded values to
// scratch. reason says why the value cannot be encoded; it is "" if it can.
func (c *field) part(row []decoder.Value, scratch *[]byte) (data []byte, reason string) {
	if c.codec == nil {
		return c.raw(row, scratch)
	}
	text, reason := c.text(row)
	if reason != "" {
		return nil, reason
	}
	start := len(*scratch)
	out, null, err := c.codec.Append(*scratch, text)
	switch {
	case err != nil:
		return nil, err.Error()
	case null:
		return nil, ""
	}
	*scratch = out
	return out[start:len(out):len(out)], ""
}
