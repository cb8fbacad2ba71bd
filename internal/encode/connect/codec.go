package connect

import (
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// A style is how a converter writes a value.
type style uint8

const (
	plain     style = iota // SimpleHeaderConverter
	nested                 // the same inside a list, a map or a struct
	java                   // StringConverter: the value's toString
	jsonValue              // JsonConverter
	jsonTyped              // the same beside a schema
	jsonText               // JSON that Jackson writes to text, not bytes
)

func (s style) json() bool { return s == jsonValue || s == jsonTyped }

// A codec is a Connect type and the conversion of a column's text to a value of that type.
type codec struct {
	schema   schema
	append   func(dst []byte, s style, text []byte) ([]byte, error)
	same     bool // plain and java leave the text as it is
	number   bool // JSON does, too
	text     bool // the value is a java.lang.String, which may hold a document
	required bool // as the element of an array it is not optional
}

// Object identifiers of built-in types (src/include/catalog/pg_type.dat).
const (
	oidBool        = 16
	oidBytea       = 17
	oidChar        = 18
	oidName        = 19
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidOID         = 26
	oidJSON        = 114
	oidXML         = 142
	oidPoint       = 600
	oidLseg        = 601
	oidPath        = 602
	oidBox         = 603
	oidPolygon     = 604
	oidLine        = 628
	oidCIDR        = 650
	oidFloat4      = 700
	oidFloat8      = 701
	oidCircle      = 718
	oidMacaddr8    = 774
	oidMoney       = 790
	oidMacaddr     = 829
	oidInet        = 869
	oidBpchar      = 1042
	oidVarchar     = 1043
	oidDate        = 1082
	oidTime        = 1083
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidInterval    = 1186
	oidTimetz      = 1266
	oidBit         = 1560
	oidVarbit      = 1562
	oidNumeric     = 1700
	oidUUID        = 2950
	oidTsvector    = 3614
	oidJSONB       = 3802
	oidInt4Range   = 3904
	oidNumRange    = 3906
	oidTSRange     = 3908
	oidTSTZRange   = 3910
	oidDateRange   = 3912
	oidInt8Range   = 3926
)

// codecOf returns the codec of a Postgres type; ok is false if Debezium does not convert it.
func codecOf(t format.Type, m modes) (c codec, ok bool) {
	if elem := builtInElem(t.OID); elem != 0 && t.Elem == nil {
		t.Elem = &format.Type{OID: elem, Kind: 'b'}
	}
	if t.Elem != nil {
		if !hasArrays(*t.Elem) {
			return codec{}, false
		}
		elem := *t.Elem
		elem.Modifier = t.Modifier
		if c, ok = codecOf(elem, m); m.Exact {
			c = exactElement(elem.OID, c)
		}
		return arrayCodec(c, m), ok
	}
	switch t.Kind {
	case 'e':
		c = stringCodec("io.debezium.data.Enum")
		c.schema.parameters = []parameter{{"allowed", strings.Join(t.Labels, ",")}}
		c.required = true
		return c, true
	case 'r':
		return stringCodec(""), true
	case 'c', 'm':
		return codec{}, false
	}
	if c, ok = scalarCodec(t); ok {
		return c, true
	}
	if c, ok = modalCodec(t, m); ok {
		return c, true
	}
	if c, ok = geometryCodec(t, m); ok {
		return c, true
	}
	switch t.Name {
	case "citext", "isbn":
		return stringCodec(""), true
	case "ltree":
		return stringCodec("io.debezium.data.Ltree"), true
	case "hstore":
		return hstoreCodec(m), true
	}
	return codec{}, false
}

// scalarCodec is codecOf for built-in types that do not depend on the modes.
func scalarCodec(t format.Type) (codec, bool) {
	switch t.OID {
	case oidBool:
		return boolCodec('t', 'f'), true
	case oidInt2:
		return integerCodec("int16"), true
	case oidInt4:
		return integerCodec("int32"), true
	case oidInt8, oidOID:
		return integerCodec("int64"), true
	case oidFloat4:
		return floatCodec(32), true
	case oidFloat8:
		return floatCodec(64), true
	case oidText, oidVarchar, oidBpchar, oidChar, oidInet, oidCIDR, oidMacaddr, oidMacaddr8,
		oidInt4Range, oidNumRange, oidTSRange, oidTSTZRange, oidDateRange, oidInt8Range:
		return stringCodec(""), true
	case oidUUID:
		return stringCodec("io.debezium.data.Uuid"), true
	case oidJSON, oidJSONB:
		return stringCodec("io.debezium.data.Json"), true
	case oidXML:
		return stringCodec("io.debezium.data.Xml"), true
	case oidTsvector:
		c := stringCodec("io.debezium.data.Tsvector")
		c.required = true
		return c, true
	}
	return codec{}, false
}

// modalCodec is codecOf for built-in types that depend on the modes.
func modalCodec(t format.Type, m modes) (codec, bool) {
	switch t.OID {
	case oidNumeric:
		return numericCodec(t.Modifier, m), true
	case oidMoney:
		return moneyCodec(t.MoneyPlaces, m), true
	case oidBytea:
		return byteaCodec(m), true
	case oidBit, oidVarbit:
		return bitsCodec(t.Modifier, t.OID == oidVarbit, m), true
	case oidDate:
		return dateCodec(m), true
	case oidTime:
		return timeCodec(t.Modifier, m), true
	case oidTimetz:
		return timetzCodec(m), true
	case oidTimestamp:
		return timestampCodec(t.Modifier, m), true
	case oidTimestamptz:
		return timestamptzCodec(t.Modifier), true
	case oidInterval:
		return intervalCodec(m), true
	case oidName:
		return nameCodec(m), true
	}
	return codec{}, false
}

// builtInElem returns the element type of a built-in array type, 0 for types that are not arrays
// or that Debezium does not convert.
func builtInElem(oid uint32) uint32 {
	for _, t := range [...]struct{ array, elem uint32 }{
		{199, oidJSON},
		{651, oidCIDR},
		{775, oidMacaddr8},
		{1000, oidBool},
		{1001, oidBytea},
		{1002, oidChar},
		{1005, oidInt2},
		{1007, oidInt4},
		{1009, oidText},
		{1014, oidBpchar},
		{1015, oidVarchar},
		{1016, oidInt8},
		{1021, oidFloat4},
		{1022, oidFloat8},
		{1028, oidOID},
		{1040, oidMacaddr},
		{1041, oidInet},
		{1115, oidTimestamp},
		{1182, oidDate},
		{1183, oidTime},
		{1185, oidTimestamptz},
		{1231, oidNumeric},
		{1270, oidTimetz},
		{1561, oidBit},
		{2951, oidUUID},
		{3643, oidTsvector},
		{3807, oidJSONB},
		{3905, oidInt4Range},
		{3907, oidNumRange},
		{3909, oidTSRange},
		{3911, oidTSTZRange},
		{3913, oidDateRange},
		{3927, oidInt8Range},
	} {
		if t.array == oid {
			return t.elem
		}
	}
	return 0
}

// hasArrays reports whether Debezium converts arrays of elem, a type that it converts by itself.
func hasArrays(elem format.Type) bool {
	switch elem.OID {
	case oidMoney, oidName, oidInterval, oidVarbit, oidXML, oidPoint, oidBox, oidLseg, oidPath, oidPolygon, oidCircle, oidLine:
		return false
	}
	return true
}

// stringCodec returns the codec of types whose value is the column's text, a java.lang.String.
func stringCodec(name string) codec {
	c := codec{schema: schema{kind: "string", name: name}, append: appendText, same: true, text: true}
	if name != "" {
		c.schema.version = 1
	}
	return c
}

func appendText(dst []byte, s style, text []byte) ([]byte, error) {
	return appendString(dst, s, text), nil
}
