package encode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// A finder looks up columns of a relation and collects problems.
type finder struct {
	rel      *decoder.Relation
	types    typing
	debezium *Debezium
	message  bool // rel is that of a message, whose json columns are expanded
	problems []string
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
func (f *finder) encoded(names ColumnNames, key string, enc format.Encoding, setting string) field {
	c := f.need(names, key)
	if err := f.encode(&c, enc, false); err != nil {
		f.problem("column %q %v (outbox.%s)", c.name, err, setting)
	}
	return c
}

// delegated returns enc or, if enc is bytes and the column is not sent as bytea, delegate.
func (f *finder) delegated(names ColumnNames, enc, delegate format.Encoding) format.Encoding {
	c, ok := f.find(names)
	if !ok || enc != format.Bytes || delegate == "" {
		return enc
	}
	if f.types.column(c, false).Type.OID == oidBytea && !f.debezium.Modes.BinaryIsText() {
		return enc
	}
	return delegate
}

// placed prepares the encoding of a placed column and reports whether the record has it. A column whose
// type Debezium does not support counts as missing.
func (f *finder) placed(c *field, key string, enc format.Encoding, missing Missing) bool {
	err := f.encode(c, enc, false)
	if isUnsupported(err) && missing == MissingIgnore {
		return false
	}
	if err != nil {
		f.problem("column %q %v (outbox.%s)", c.name, err, key)
	}
	return true
}

// encode sets the encoding of c, with documents expanded if expand is set. The text of its error completes a
// sentence that starts with the column.
func (f *finder) encode(c *field, enc format.Encoding, expand bool) error {
	if c.name == "" {
		return nil
	}
	if f.debezium.Exact {
		column := f.types.column(*c, true)
		c.hasDefault = column.Nullable && column.Default != nil
	}
	switch enc {
	case "", format.Raw:
		return nil
	case format.Bytes:
		c.verbatim = 0
		if c.oid = f.types.column(*c, false).Type.OID; c.oid != oidBytea {
			return errors.New("is not bytea, which the encoding bytes requires")
		}
		return nil
	case format.String, format.Simple, format.JSON, format.JSONSchema:
	}
	return f.convert(c, enc, expand)
}

func (f *finder) err(table string) error {
	if f.types.err != nil {
		return fmt.Errorf("describe %s: %w", table, f.types.err)
	}
	if len(f.problems) == 0 {
		return nil
	}
	e := &ColumnError{Table: table, Problems: f.problems}
	for _, c := range f.rel.Columns {
		e.Have = append(e.Have, c.Name)
	}
	return e
}
