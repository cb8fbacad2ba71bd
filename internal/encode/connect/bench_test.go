package connect

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// BenchmarkAppend measures common columns in the encodings that change their bytes.
func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct {
		name string
		typ  format.Type
		enc  format.Encoding
		text string
	}{
		{"text/json", format.Type{OID: oidText}, format.JSON, `{"sku": "A-1", "note": "say \"hi\"", "qty": 3}`},
		{"uuid/json-schema", format.Type{OID: oidUUID}, format.JSONSchema, "6f9619ff-8b86-d011-b42d-00cf4fc964ff"},
		{"timestamptz/simple", format.Type{OID: oidTimestamptz}, format.Simple, "2024-02-29 18:00:00.123456+00"},
		{"timestamp/simple", format.Type{OID: oidTimestamp}, format.Simple, "2024-02-29 18:00:00.123456"},
		{"numeric/simple", format.Type{OID: oidNumeric, Modifier: 10<<16 + 2 + 4}, format.Simple, "12345.67"},
		{"numeric/json", format.Type{OID: oidNumeric, Modifier: 10<<16 + 2 + 4}, format.JSON, "12345.67"},
		{"numeric-free/json", format.Type{OID: oidNumeric, Modifier: -1}, format.JSON, "12345.67"},
		{"float8/simple", format.Type{OID: oidFloat8}, format.Simple, "123456.789"},
		{"float8-large/simple", format.Type{OID: oidFloat8}, format.Simple, "1.2345678901234567e+200"},
		{"bytea/json", format.Type{OID: oidBytea}, format.JSON, `\x000102030405060708090a0b0c0d0e0f`},
		{"bool/simple", format.Type{OID: oidBool}, format.Simple, "t"},
		{"text[]/json", format.Type{OID: 1009, Elem: &format.Type{OID: oidText}}, format.JSON, `{a,"b c",NULL,d}`},
		{"hstore/simple", format.Type{OID: 99999, Name: "hstore"}, format.Simple, `"k"=>"v", "long"=>"value"`},
		{"interval/simple", format.Type{OID: oidInterval}, format.Simple, "3 days 04:05:06.789"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f, err := NewField(format.Column{Name: "c", Type: bc.typ}, Modes{})
			if err != nil {
				b.Fatal(err)
			}
			text, dst := []byte(bc.text), make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := f.Append(dst, bc.enc, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExpand(b *testing.B) {
	const order = `{"id": 4711, "lines": [{"qty": 1, "sku": "A-1", "price": 9.99}, {"qty": 2, "sku": "B-2", "price": 19.5}], "total": 48.99, "customer": {"name": "Zoë", "email": "zoe@example.com"}}`
	f := documentField(b, false)
	text, dst := []byte(order), make([]byte, 0, 4096)
	for _, enc := range []format.Encoding{format.JSON, format.JSONSchema} {
		b.Run(string(enc), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := f.AppendExpanded(dst, enc, Expansion{}, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
