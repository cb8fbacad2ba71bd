package connect

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// A goldenDocument is a payload that Debezium's event router expanded and JsonConverter wrote.
type goldenDocument struct {
	Options map[string]string
	Text    string
	JSON    string
	Schema  string `json:"json-schema"`
	Error   string // the task failed
}

// expansionOf reads the router's options. Their names have the given prefix.
func expansionOf(options map[string]string, prefix string) Expansion {
	return Expansion{
		Nulls:       options[prefix+"table.json.payload.null.behavior"] == "optional_bytes",
		EmptyArrays: options[prefix+"table.json.payload.empty.array.behavior"] == "optional_string",
		FieldNames:  options[prefix+"field.name.adjustment.mode"],
	}
}

func goldenDocuments(tb testing.TB) []goldenDocument {
	tb.Helper()
	file, err := os.Open("testdata/expand.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var all []goldenDocument
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var g goldenDocument
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			tb.Fatal(err)
		}
		all = append(all, g)
	}
	if lines.Err() != nil || len(all) == 0 {
		tb.Fatalf("%d documents, %v", len(all), lines.Err())
	}
	return all
}

// damage returns how Debezium damaged the document, or "" if it did not.
func (g *goldenDocument) damage(enc format.Encoding) string {
	var schema struct{ Schema json.RawMessage }
	_ = json.Unmarshal([]byte(g.Schema), &schema)
	switch {
	case g.Error != "":
		return g.Error
	case strings.Contains(g.JSON, `Infinity"`):
		return "an infinity for a number"
	case g.Text == `{"a":[[{"x":1}],[{"y":2}]]}`, g.Text == `{"p":[{"o":{"a":1}},{"o":{"b":2}}]}`, g.Text == `{"p":[{"l":[{"a":1}]},{"l":[{"b":2}]}]}`:
		return "lost members"
	case g.Options["field.name.adjustment.mode"] != "" && strings.Contains(g.JSON, ":null") || g.Text == `{"a-b":1,"a_b":2}` || g.Text == `{"a_b":2,"a-b":1}`:
		return "lost values"
	case enc == format.JSONSchema && string(schema.Schema) == "null":
		return "no schema"
	}
	return ""
}

// lucky reports whether Debezium's result depends on the order of a Java hash set, which differs in every process.
// Members may have another order, or the task may fail.
func (g *goldenDocument) lucky() bool {
	switch g.Text {
	case `{"p":[{"o":{"a":1,"b":2}},{"o":{"a":1}}]}`:
		return true
	case `{"p":[{"sku":"A"},{"qty":2},{"sku":"C","note":"x"}]}`:
		return true
	case `{"a":[{"x":[1]},{"x":[]}]}`, `{"a":[{"x":[]},{"x":[1]}]}`:
		return g.Options["table.json.payload.empty.array.behavior"] != ""
	}
	return false
}

func documentField(tb testing.TB, exact bool) *Field {
	tb.Helper()
	f, err := NewField(format.Column{Name: "payload", Type: format.Type{OID: oidJSON, Name: "json", Kind: 'b', Modifier: -1}, Nullable: true}, Modes{Exact: exact})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// AppendExpanded writes the same as the router and JsonConverter, except for damaged documents. It rejects those if
// exact is set, and otherwise keeps every value.
func TestExpandGolden(t *testing.T) {
	loose, exact := documentField(t, false), documentField(t, true)
	for _, g := range goldenDocuments(t) {
		x := expansionOf(g.Options, "")
		for enc, want := range map[format.Encoding]string{format.JSON: g.JSON, format.JSONSchema: g.Schema} {
			damage := g.damage(enc)
			got, _, err := loose.AppendExpanded(nil, enc, x, []byte(g.Text))
			switch {
			case err != nil && !errors.Is(err, errClash):
				t.Errorf("%s %q %v: %v", enc, g.Text, g.Options, err)
			case g.lucky() && damage == "" && enc == format.JSON:
				keepsAll(t, x, g.Text, got)
			case g.lucky():
			case damage == "" && string(got) != want:
				t.Errorf("%s %q %v:\n wrote %s\nwanted %s", enc, g.Text, g.Options, got, want)
			case damage != "" && string(got) == want:
				t.Errorf("%s %q %v: wrote %s (%s)", enc, g.Text, g.Options, got, damage)
			case damage != "" && enc == format.JSON && err == nil:
				keepsAll(t, x, g.Text, got)
			}
			got, _, err = exact.AppendExpanded(nil, enc, x, []byte(g.Text))
			switch {
			case g.lucky():
			case damage == "" && (err != nil || string(got) != want), damage != "" && err == nil:
				t.Errorf("%s %q %v, exact: wrote %s, %v, wanted %s (%s)", enc, g.Text, g.Options, got, err, want, damage)
			}
		}
	}
}

// keepsAll fails unless the output contains everything of the document except nulls and empty arrays.
func keepsAll(t *testing.T, x Expansion, text string, out []byte) {
	t.Helper()
	var in, is any
	err := json.NewDecoder(strings.NewReader(text)).Decode(&in)
	if _, beyond := errors.AsType[*json.UnmarshalTypeError](err); beyond {
		return // a number beyond float64, which Decode cannot read
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &is); err != nil {
		t.Errorf("%q became %s: %v", text, out, err)
	} else if !within(in, is, x) {
		t.Errorf("%q became %s", text, out)
	}
}

func within(in, out any, x Expansion) bool {
	switch in := in.(type) {
	case map[string]any:
		o, ok := out.(map[string]any)
		for name, v := range in {
			if x.FieldNames != "" {
				name = adjustName(name, x.FieldNames)
			}
			if list, isList := v.([]any); v == nil || isList && len(list) == 0 {
				continue
			}
			ok = ok && within(v, o[name], x)
		}
		return ok
	case []any:
		o, ok := out.([]any)
		if !ok || len(o) != len(in) {
			return false
		}
		for i := range in {
			if !within(in[i], o[i], x) {
				return false
			}
		}
		return true
	}
	return cmp.Equal(in, out)
}
