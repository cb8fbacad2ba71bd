package connect

import (
	"math"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// An Expansion holds the options for expanding JSON documents, that is, for writing a document in a
// column as a JSON value rather than as a string (table.expand.json.payload). The zero value holds
// the event router's defaults.
type Expansion struct {
	Nulls       bool   // table.json.payload.null.behavior=optional_bytes: null members are kept
	EmptyArrays bool   // table.json.payload.empty.array.behavior=optional_string: members that are empty arrays are kept
	FieldNames  string // field.name.adjustment.mode: none (default), avro, avro_unicode
}

// A document is the parsed JSON that AppendExpanded writes in place of a column's text.
type document struct {
	root  node
	shape *shape
}

// AppendExpanded is like [Field.Append] but, with the encodings JSON and JSONSchema, writes a JSON
// object or array in the column as such, with a schema inferred as the event router infers it. These
// remain text: values that are not an object or array, arrays with elements of several types and,
// with JSONSchema, documents that no schema describes. With other encodings, AppendExpanded is Append.
func (f *Field) AppendExpanded(dst []byte, enc format.Encoding, x Expansion, text []byte) (out []byte, null bool, err error) {
	d, err := f.expand(enc, x, text)
	switch {
	case err != nil:
		return dst, false, err
	case d == nil:
		return f.Append(dst, enc, text)
	case enc == format.JSON:
		out, err = d.append(dst)
		return out, false, err
	}
	s := d.shape.schema()
	out = append(s.appendJSON(append(dst, `{"schema":`...)), `,"payload":`...)
	if out, err = d.append(out); err != nil {
		return dst, false, err
	}
	return append(out, '}'), false, nil
}

// expand parses the document in text. It returns nil if the value remains text.
func (f *Field) expand(enc format.Encoding, x Expansion, text []byte) (*document, error) {
	if !f.codec.text || text == nil || enc == format.Raw || enc == format.Bytes {
		return nil, nil //nolint:nilnil // a text is no document
	}
	if !f.codec.same { // hstore, for one, is a document only now
		var err error
		if text, err = f.codec.append(nil, plain, text); err != nil {
			return nil, err
		}
	}
	root, ok, err := parseDocument(text)
	if !ok {
		return nil, err // without one: a text is no document
	}
	inf := inference{nulls: x.Nulls, emptyArrays: x.EmptyArrays}
	if x.FieldNames == "avro" || x.FieldNames == "avro_unicode" {
		lost, clash := root.rename(x.FieldNames)
		if lost {
			inf.found(errRenamed)
		}
		if clash {
			return nil, errClash
		}
	}
	s, err := inf.infer(&root, f.name)
	switch {
	case inf.exhausted():
		return nil, errWide
	case err != nil:
		return nil, nil //nolint:nilnil,nilerr // errText
	case s == nil && f.exact && enc == format.JSONSchema:
		return nil, errNoSchema
	case s == nil:
		return nil, nil //nolint:nilnil // an empty array
	}
	if root.kind == arrayNode {
		inf.found(errTopArray)
	}
	if f.exact {
		if enc != format.JSON && enc != format.JSONSchema {
			inf.found(errStruct)
		}
		if inf.flaw != nil {
			return nil, inf.flaw
		}
	}
	if enc != format.JSON && (enc != format.JSONSchema || inf.unfit) {
		return nil, nil //nolint:nilnil // no form but text
	}
	return &document{root: root, shape: s}, nil
}

// maxFilled is the limit, in bytes, for the missing members that are added to a document.
const maxFilled = 8 << 20

// append appends the document as JSON.
func (d *document) append(dst []byte) ([]byte, error) {
	p := printer{dst: dst}
	p.value(&d.root, d.shape)
	if p.filled > maxFilled {
		return dst, errWide
	}
	return p.dst, nil
}

// A printer writes JSON.
type printer struct {
	dst    []byte
	filled int // bytes of missing members so far
}

// value writes n. With a shape, an object gets all fields of the shape, null where it has none;
// without one it is written as it is.
func (p *printer) value(n *node, s *shape) {
	switch n.kind {
	case nullNode:
		p.dst = append(p.dst, "null"...)
	case boolNode:
		p.dst = append(p.dst, n.text...)
	case stringNode:
		p.dst = appendJSONString(p.dst, []byte(n.text))
	case numberNode:
		p.dst = n.appendNumber(p.dst)
	case arrayNode:
		p.elems(n, s)
	case objectNode:
		if s != nil && s.kind == objectShape {
			p.fields(n, s.fields)
		} else {
			p.members(n)
		}
	}
}

func (p *printer) elems(n *node, s *shape) {
	var items *shape
	if s != nil {
		items = s.items
	}
	p.dst = append(p.dst, '[')
	for i := range n.elems {
		p.comma(i)
		p.value(&n.elems[i], items)
	}
	p.dst = append(p.dst, ']')
}

func (p *printer) fields(n *node, fields []shapeField) {
	p.dst = append(p.dst, '{')
	at := -1
	for i, f := range fields {
		p.comma(i)
		p.name(f.name)
		if found := n.find(f.name, at+1); found >= 0 {
			at = found
			p.value(&n.members[at].value, f.shape)
			continue
		}
		p.dst = append(p.dst, "null"...)
		if p.filled += len(f.name) + len(`"":null,`); p.filled > maxFilled {
			return
		}
	}
	p.dst = append(p.dst, '}')
}

func (p *printer) members(n *node) {
	p.dst = append(p.dst, '{')
	for i := range n.members {
		p.comma(i)
		p.name(n.members[i].name)
		p.value(&n.members[i].value, nil)
	}
	p.dst = append(p.dst, '}')
}

func (p *printer) comma(i int) {
	if i > 0 {
		p.dst = append(p.dst, ',')
	}
}

func (p *printer) name(name string) {
	p.dst = append(appendJSONString(p.dst, []byte(name)), ':')
}

// appendNumber appends an integer as it is and any other number as Java prints a double. Integers
// beyond int64 and numbers beyond double keep their spelling.
func (n *node) appendNumber(dst []byte) []byte {
	v, whole, ok := n.integer()
	if ok {
		return strconv.AppendInt(dst, v, 10)
	}
	if f := n.float(); !whole && !math.IsInf(f, 0) {
		return appendJavaFloat(dst, f, 64)
	}
	return append(dst, n.text...)
}

// float returns the number as a double, an infinity if it is out of range.
func (n *node) float() float64 {
	v, _ := strconv.ParseFloat(n.text, 64) // a JSON number; an error is a range, and the value is right
	return v
}
