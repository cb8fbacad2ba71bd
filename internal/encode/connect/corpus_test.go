package connect

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// A recorded is one part of a record that the real connector wrote, with the text of its column. See
// testdata/README.md.
type recorded struct {
	recordedColumn
	Case     string
	Encoding format.Encoding
	Want     *string // base64; nil: null
	Modes    map[string]string
	Expand   map[string]string
	Members  []struct { // of the envelope, after the payload
		recordedColumn
		Name string
	}
}

type recordedColumn struct {
	Column   string
	Type     format.Type
	Nullable bool
	Default  *string
	Text     *string
}

func (c recordedColumn) field(t *testing.T, modes map[string]string, exact bool) *Field {
	t.Helper()
	f, err := NewField(format.Column{Name: c.Column, Type: c.Type, Nullable: c.Nullable, Default: c.Default}, modesOf(t, modes, exact))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (c recordedColumn) bytes() []byte {
	if c.Text == nil {
		return nil
	}
	return append([]byte{}, *c.Text...)
}

// write returns the encoded value, or the envelope with it. nil is a null.
func (r *recorded) write(t *testing.T, exact bool) ([]byte, error) {
	t.Helper()
	f := r.field(t, r.Modes, exact)
	var expand *Expansion
	if r.Expand != nil {
		expand = new(Expansion)
		const option = "transforms.outbox."
		*expand = expansionOf(r.Expand, option)
	}
	var out []byte
	var null bool
	var err error
	switch {
	case r.Members != nil:
		fields, values := []NamedField{{"payload", f}}, [][]byte{r.bytes()}
		for _, m := range r.Members {
			fields, values = append(fields, NamedField{m.Name, m.field(t, r.Modes, exact)}), append(values, m.bytes())
		}
		name, version := schemaOf(t, r.Want)
		out, err = NewStruct(fields, expand).Append([]byte{}, r.Encoding, name, version, values)
	case expand != nil:
		out, null, err = f.AppendExpanded([]byte{}, r.Encoding, *expand, r.bytes())
	default:
		out, null, err = f.Append([]byte{}, r.Encoding, r.bytes())
	}
	if null {
		return nil, err
	}
	return out, err
}

// schemaOf returns the name and the version of a recorded schema. The router sets them, not this package.
func schemaOf(t *testing.T, want *string) (name string, version *int32) {
	t.Helper()
	var doc struct {
		Schema struct {
			Name    string
			Version *int32
		}
	}
	data, err := base64.StdEncoding.DecodeString(*want)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(data, &doc) // Java's text for a struct has none
	return doc.Schema.Name, doc.Schema.Version
}

// damage returns how the connector damaged the value, or "" if it did not.
func (r *recorded) damage(want []byte) string {
	switch {
	case bytes.HasPrefix(want, []byte("java.nio.HeapByteBuffer[")):
		return "an address for bytes"
	case bytes.HasPrefix(want, []byte("Struct{")):
		return "Java's description of a struct"
	case r.Text == nil && r.Default != nil:
		return "the default for a NULL"
	case want == nil && r.Text != nil:
		return "a null for NaN"
	case strings.HasPrefix(r.Case, "029") && bytes.Contains(want, []byte("a_b")), strings.HasPrefix(r.Case, "057") && bytes.Contains(want, []byte(`{"p":[{"o":{"a":1}},{"o":{"a":null}}]}`)):
		return "lost members"
	}
	return ""
}

// The package writes every part of the recorded records byte for byte, except damaged ones. It rejects those if
// exact is set, and otherwise writes a better value.
func TestRecorded(t *testing.T) {
	file, err := os.Open("testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	count, damaged := 0, 0
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		count++
		var want []byte
		if r.Want != nil {
			if want, err = base64.StdEncoding.DecodeString(*r.Want); err != nil {
				t.Fatal(err)
			}
		}
		same := func(got []byte) bool { return bytes.Equal(got, want) && (got == nil) == (want == nil) }
		damage := r.damage(want)
		got, err := r.write(t, false)
		if damage == "" && (err != nil || !same(got)) || damage != "" && same(got) {
			t.Errorf("%s %s %s: wrote %q, %v; recorded %q (%s)", r.Case, r.Column, r.Encoding, got, err, want, damage)
		}
		got, err = r.write(t, true)
		if damage == "" && (err != nil || !same(got)) || damage != "" && err == nil {
			t.Errorf("%s %s %s exact: wrote %q, %v; recorded %q (%s)", r.Case, r.Column, r.Encoding, got, err, want, damage)
		}
		if damage != "" {
			damaged++
		}
	}
	if lines.Err() != nil || count < 500 || damaged == 0 {
		t.Errorf("%d recorded parts, %d of them damaged, %v", count, damaged, lines.Err())
	}
}
