package connect

import "testing"

// BenchmarkAppend measures common columns in the encodings that change their bytes.
func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct {
		name string
		typ  Type
		enc  Encoding
		text string
	}{
		{"text/json", Type{OID: oidText}, JSON, `{"sku": "A-1", "note": "say \"hi\"", "qty": 3}`},
		{"uuid/json-schema", Type{OID: oidUUID}, JSONSchema, "6f9619ff-8b86-d011-b42d-00cf4fc964ff"},
		{"timestamptz/simple", Type{OID: oidTimestamptz}, Simple, "2024-02-29 18:00:00.123456+00"},
		{"timestamp/simple", Type{OID: oidTimestamp}, Simple, "2024-02-29 18:00:00.123456"},
		{"numeric/simple", Type{OID: oidNumeric, Modifier: 10<<16 + 2 + 4}, Simple, "12345.67"},
		{"numeric/json", Type{OID: oidNumeric, Modifier: 10<<16 + 2 + 4}, JSON, "12345.67"},
		{"numeric-free/json", Type{OID: oidNumeric, Modifier: -1}, JSON, "12345.67"},
		{"float8/simple", Type{OID: oidFloat8}, Simple, "123456.789"},
		{"float8-large/simple", Type{OID: oidFloat8}, Simple, "1.2345678901234567e+200"},
		{"bytea/json", Type{OID: oidBytea}, JSON, `\x000102030405060708090a0b0c0d0e0f`},
		{"bool/simple", Type{OID: oidBool}, Simple, "t"},
		{"text[]/json", Type{OID: 1009, Elem: &Type{OID: oidText}}, JSON, `{a,"b c",NULL,d}`},
		{"hstore/simple", Type{OID: 99999, Name: "hstore"}, Simple, `"k"=>"v", "long"=>"value"`},
		{"interval/simple", Type{OID: oidInterval}, Simple, "3 days 04:05:06.789"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f, err := NewField(Column{Name: "c", Type: bc.typ}, Modes{})
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
	for _, enc := range []Encoding{JSON, JSONSchema} {
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
