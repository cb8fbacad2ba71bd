package encode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// A finder looks up columns of a relation and collects problems.
type finder struct {
	rel      *decoder.Relation
	types    typing
	problems []string

	documents *connect.Expansion // for json columns of messages; nil: a table, whose columns are not expanded
}

func (f *finder) find(names ColumnNames) (field, bool) {
	name := names.in(f.rel)
	i := slices.IndexFunc(f.rel.Columns, func(c decoder.Column) bool { return c.Name == name })
	if i < 0 {
		return field{}, false
	}
	found := field{name: name, index: i}
	found.oid = f.types.oid(found) // a domain over bytea has bytes, not text
	if found.oid != oidBytea {
		found.verbatim = decoder.Text
	}
	return found, true
}

func (f *finder) need(names ColumnNames, key string) field {
	c, ok := f.find(names)
	if !ok {
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = strconv.Quote(name)
		}
		f.problem("no column %s (outbox.%s)", strings.Join(quoted, " or "), key)
	}
	return c
}

func (f *finder) problem(format string, args ...any) {
	if problem := fmt.Sprintf(format, args...); !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
	}
}

func (f *finder) integer(c field, key string) {
	if c.name != "" && !slices.Contains([]uint32{oidInt2, oidInt4, oidInt8}, f.types.column(c, false).Type.OID) {
		f.problem("column %q is not an integer (outbox.%s)", c.name, key)
	}
}

// encoded is need for a column that is encoded with enc. setting is the name of the encoding's key.
func (f *finder) encoded(names ColumnNames, key string, enc connect.Encoding, setting string) field {
	c := f.need(names, key)
	if err := f.encode(&c, enc, nil); err != nil {
		f.problem("column %q %v (outbox.%s)", c.name, err, setting)
	}
	return c
}

// delegated returns enc or, if enc is bytes and the column is not sent as bytea, delegate.
func (f *finder) delegated(names ColumnNames, enc, delegate connect.Encoding) connect.Encoding {
	c, ok := f.find(names)
	if !ok || enc != connect.Bytes || delegate == "" {
		return enc
	}
	if f.types.column(c, false).Type.OID == oidBytea && !f.types.modes.BinaryIsText() {
		return enc
	}
	return delegate
}

// placed prepares the encoding of a placed column and reports whether the record has it. A column whose
// type Debezium does not support counts as missing.
func (f *finder) placed(c *field, key string, enc connect.Encoding, missing Missing) bool {
	err := f.encode(c, enc, nil)
	if _, unsupported := errors.AsType[*connect.UnsupportedError](err); unsupported && missing == MissingIgnore {
		return false
	}
	if err != nil {
		f.problem("column %q %v (outbox.%s)", c.name, err, key)
	}
	return true
}

// encode sets the encoding of c, with documents expanded as expand says. The text of its error completes a
// sentence that starts with the column.
func (f *finder) encode(c *field, enc connect.Encoding, expand *connect.Expansion) error {
	if c.name == "" {
		return nil
	}
	if f.types.modes.Exact {
		column := f.types.column(*c, true)
		c.hasDefault = column.Nullable && column.Default != nil
	}
	switch enc {
	case "", connect.Raw:
		return nil
	case connect.Bytes:
		c.verbatim = 0
		if c.oid = f.types.column(*c, false).Type.OID; c.oid != oidBytea {
			return errors.New("is not bytea, which the encoding bytes requires")
		}
		return nil
	case connect.String, connect.Simple, connect.JSON, connect.JSONSchema:
	}
	column := f.types.column(*c, enc == connect.JSONSchema)
	if expand == nil && column.Type.OID == oidJSON && isJSON(enc) {
		expand = f.documents
	}
	converter, err := connect.NewField(column, f.types.modes)
	if err != nil {
		return unwritable{err}
	}
	nullIsNull := enc == connect.String || enc == connect.Simple
	if expand == nil && nullIsNull && column.Type.OID != oidBytea && converter.Verbatim(enc) {
		return nil
	}
	c.verbatim = 0
	c.convert = &conversion{field: converter, encoding: enc, expand: expand}
	return nil
}

// unwritable is an error of package connect, as the end of a sentence.
type unwritable struct{ error }

func (u unwritable) Error() string {
	if e, ok := errors.AsType[*connect.UnsupportedError](u.error); ok {
		return "is of type " + e.Type + ", which Debezium leaves out of its rows"
	}
	if e, ok := errors.AsType[*connect.DroppedError](u.error); ok {
		return "was of type " + e.Type + ", or of a domain over it, which was dropped after this row was written: its values can be sent as they are, with the encoding raw, but not be encoded"
	}
	return "cannot be written: " + u.error.Error()
}

func (u unwritable) Unwrap() error { return u.error }

func (f *finder) err(table string) error {
	if f.types.err != nil {
		return fmt.Errorf("describe %s: %w", table, f.types.err)
	}
	if len(f.problems) == 0 {
		return nil
	}
	e := &ColumnError{Table: table, Problems: f.problems}
	for _, c := range f.rel.Columns {
		e.have = append(e.have, c.Name)
	}
	return e
}
