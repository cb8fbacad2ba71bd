package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

var errNotGeometry = errors.New("not what a geometric type prints")

// Well-known binary (OGC 06-103r4, 8.2): the types that occur.
const (
	wkbPoint      = 1
	wkbLineString = 2
	wkbPolygon    = 3
)

// A geometry describes the conversion of a geometric type.
type geometry struct {
	schema schema
	count  int // how many numbers there are, 0 for any even number of them
	append func(dst []byte, s style, text []byte, v []float64) []byte
}

// codec returns the codec of g: a struct. StringConverter would print a memory address for it.
func (g geometry) codec(m modes) codec {
	return codec{schema: g.schema, append: func(dst []byte, s style, text []byte) ([]byte, error) {
		if s == java && m.Exact {
			return nil, errAddress
		}
		var buf [16]float64
		v, err := coordinates(buf[:0], text)
		switch {
		case err != nil:
			return nil, err
		case g.count > 0 && len(v) != g.count, g.count == 0 && (len(v) == 0 || len(v)%2 != 0):
			return nil, errNotGeometry
		}
		return g.append(dst, s, text, v), nil
	}}
}

// coordinates appends all numbers in text to v; brackets and commas are ignored.
func coordinates(v []float64, text []byte) ([]float64, error) {
	for word := range bytes.FieldsFuncSeq(text, func(r rune) bool { return bytes.ContainsRune([]byte("()[]<>{},"), r) }) {
		n, err := strconv.ParseFloat(string(word), 64)
		if err != nil {
			return nil, errNotGeometry
		}
		if math.IsNaN(n) {
			n = math.Float64frombits(0x7ff8 << 48) // Java's
		}
		v = append(v, n)
	}
	return v, nil
}

// geometryCodec is codecOf for the geometric types.
func geometryCodec(t format.Type, m modes) (codec, bool) {
	switch t.OID {
	case oidPoint:
		return geometry{schema: pointSchema(), count: 2, append: func(dst []byte, s style, _ []byte, v []float64) []byte {
			return appendPoint(dst, s, v)
		}}.codec(m), true
	case oidCircle:
		return geometry{schema: circleSchema(), count: 3, append: func(dst []byte, s style, _ []byte, v []float64) []byte {
			dst = appendPoint(append(dst, `{"center":`...), s, v[:2])
			return append(appendFloat(append(dst, `,"radius":`...), s, v[2], 64), '}')
		}}.codec(m), true
	case oidLine:
		return geometry{schema: doublesSchema("Line", "Geometry (LINE)", "a", "b", "c"), count: 3, append: func(dst []byte, s style, _ []byte, v []float64) []byte {
			dst = appendFloat(append(dst, `{"a":`...), s, v[0], 64)
			dst = appendFloat(append(dst, `,"b":`...), s, v[1], 64)
			return append(appendFloat(append(dst, `,"c":`...), s, v[2], 64), '}')
		}}.codec(m), true
	case oidBox:
		return geometry{schema: shapeSchema(), count: 4, append: func(dst []byte, _ style, _ []byte, v []float64) []byte {
			ring := []float64{v[0], v[1], v[0], v[3], v[2], v[3], v[2], v[1], v[0], v[1]}
			return appendShape(dst, wkbPolygon, ring, `"type":"box"`)
		}}.codec(m), true
	case oidLseg:
		return geometry{schema: shapeSchema(), count: 4, append: func(dst []byte, _ style, _ []byte, v []float64) []byte {
			return appendShape(dst, wkbLineString, v, `"type":"lseg"`)
		}}.codec(m), true
	case oidPath:
		return geometry{schema: shapeSchema(), append: func(dst []byte, _ style, text []byte, v []float64) []byte {
			return appendShape(dst, wkbLineString, v, `"type":"path","closed":"`+strconv.FormatBool(text[0] == '(')+`"`)
		}}.codec(m), true
	case oidPolygon:
		return geometry{schema: shapeSchema(), append: func(dst []byte, _ style, _ []byte, v []float64) []byte {
			if n := len(v); n > 2 && (v[0] != v[n-2] || v[1] != v[n-1]) {
				v = append(v, v[0], v[1])
			}
			return appendShape(dst, wkbPolygon, v, `"type":"polygon"`)
		}}.codec(m), true
	}
	return codec{}, false
}

// doublesSchema returns the schema of a struct of doubles.
func doublesSchema(name, doc string, fields ...string) schema {
	s := schema{kind: "struct", name: "io.debezium.data.geometry." + name, version: 1, doc: doc}
	for _, f := range fields {
		s.fields = append(s.fields, field{f, schema{kind: "double"}})
	}
	return s
}

func pointSchema() schema {
	s := doublesSchema("Point", "Geometry (POINT)", "x", "y")
	s.fields = append(s.fields, field{"wkb", schema{kind: "bytes", optional: true}}, field{"srid", schema{kind: "int32", optional: true}})
	return s
}

func circleSchema() schema {
	s := doublesSchema("Circle", "Geometry (CIRCLE)", "radius")
	s.fields = slices.Insert(s.fields, 0, field{"center", pointSchema()})
	return s
}

func shapeSchema() schema {
	return schema{kind: "struct", name: "io.debezium.data.geometry.Geometry", version: 2, doc: "Geometry", fields: []field{
		{"wkb", schema{kind: "bytes"}},
		{"srid", schema{kind: "int32", optional: true}},
		{"extensions", schema{kind: "map", optional: true, items: &schema{kind: "string"}}},
	}}
}

func appendPoint(dst []byte, s style, v []float64) []byte {
	dst = appendFloat(append(dst, `{"x":`...), s, v[0], 64)
	dst = appendFloat(append(dst, `,"y":`...), s, v[1], 64)
	return append(appendWKB(append(dst, `,"wkb":`...), wkbPoint, v), `,"srid":null}`...)
}

func appendShape(dst []byte, kind uint32, v []float64, extensions string) []byte {
	dst = appendWKB(append(dst, `{"wkb":`...), kind, v)
	dst = append(append(dst, `,"srid":null,"extensions":{`...), extensions...)
	return append(dst, "}}"...)
}

// appendWKB appends the base64 of the points, little-endian, with quotes.
func appendWKB(dst []byte, kind uint32, v []float64) []byte {
	var buf [128]byte
	wkb := binary.LittleEndian.AppendUint32(append(buf[:0], 1), kind)
	if kind == wkbPolygon {
		wkb = binary.LittleEndian.AppendUint32(wkb, 1) // ring
	}
	if kind != wkbPoint {
		wkb = binary.LittleEndian.AppendUint32(wkb, uint32(len(v)/2))
	}
	for _, n := range v {
		wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(n))
	}
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), wkb), '"')
}
