package connect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// everyType returns a field for each type and mode of the golden values.
func everyType(tb testing.TB) (fields []*Field) {
	tb.Helper()
	seen := map[string]bool{}
	for _, g := range goldens(tb) {
		for _, exact := range []bool{false, true} {
			f, err := g.field(tb, exact)
			if err != nil {
				continue
			}
			if key := fmt.Sprint(f.prefix, exact); !seen[key] {
				seen[key] = true
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// For any text, a Field does not panic, does not change dst, and writes valid JSON. If Verbatim is true, it writes
// the text unchanged.
func FuzzAppend(f *testing.F) {
	for _, g := range goldens(f) {
		if g.Text != nil {
			f.Add([]byte(*g.Text))
		}
	}
	fields := everyType(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if text == nil {
			text = []byte{}
		}
		for _, field := range fields {
			for _, enc := range []format.Encoding{format.Raw, format.String, format.Simple, format.JSON, format.JSONSchema, format.Bytes} {
				out, null, err := field.Append([]byte("before"), enc, text)
				rest, ok := bytes.CutPrefix(out, []byte("before"))
				if !ok || null || err != nil && len(rest) > 0 {
					t.Fatalf("%s %s of %q: %q, null %t, %v", field.prefix, enc, text, out, null, err)
				}
				if err == nil && utf8.Valid(text) && (enc == format.JSON || enc == format.JSONSchema) && !json.Valid(rest) {
					t.Errorf("%s of %q is no JSON: %s", enc, text, rest)
				}
				if err == nil && field.Verbatim(enc) && !bytes.Equal(rest, text) {
					t.Errorf("%s %s of %q is %q, not verbatim", field.prefix, enc, text, rest)
				}
			}
		}
	})
}

// For any document, an expansion does not panic, writes valid JSON, and loses no value.
func FuzzExpand(f *testing.F) {
	for _, g := range goldenDocuments(f) {
		f.Add([]byte(g.Text), g.Options["table.json.payload.null.behavior"] != "", g.Options["table.json.payload.empty.array.behavior"] != "")
	}
	field := documentField(f, false)
	f.Fuzz(func(t *testing.T, text []byte, nulls, emptyArrays bool) {
		if utf8.Valid(text) && text != nil {
			checkExpansion(t, field, text, Expansion{Nulls: nulls, EmptyArrays: emptyArrays})
		}
	})
}

// A number of 700 digits next to a smaller object in the same array keeps all its digits.
func TestExpandLongNumber(t *testing.T) {
	text := `{"p":[{"o":{"a":` + strings.Repeat("6", 700) + `,"b":2}},{"o":{"a":1}}]}`
	checkExpansion(t, documentField(t, false), []byte(text), Expansion{EmptyArrays: true})
}

// checkExpansion expands text, which must be UTF-8, and checks the result.
func checkExpansion(t *testing.T, field *Field, text []byte, x Expansion) {
	t.Helper()
	for _, enc := range []format.Encoding{format.JSON, format.JSONSchema} {
		out, _, err := field.AppendExpanded(nil, enc, x, text)
		if err != nil || !json.Valid(out) {
			t.Fatalf("%s of %q: %s, %v", enc, text, out, err)
		}
		if enc == format.JSON && json.Valid(text) && bytes.IndexAny(text, "{[") == 0 && out[0] != '"' && !bytes.ContainsAny(text, "eE\\") {
			keepsAll(t, x, string(text), out)
		}
	}
}
