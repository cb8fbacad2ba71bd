package debezium

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestForms(t *testing.T) {
	for _, tt := range []struct{ text, form, name string }{
		{`{"name":"a","config":{"connector.class":"x"}}`, formREST, "a"},
		{`{"name":"a","config":{"connector.class":"x"},"tasks":[{"connector":"a","task":0}],"type":"source"}`, formREST, "a"},
		{"\ufeff\n {\"connector.class\":\"x\",\"name\":\"a\",\"tasks.max\":1,\"b\":true,\"n\":null}", formConfig, "a"},
		{"name=a\nconnector.class=x", formProperties, "a"},
		{"debezium.source.connector.class=x", formServer, ""},
		{"FOO=1\nDEBEZIUM_SOURCE_CONNECTOR_CLASS=x", formServerEnv, ""},
		{"kind: KafkaConnector\nmetadata: {name: a}\nspec: {class: x, config: {n: 1, o: null}}", formStrimzi, "a"},
		{`{"kind": "KafkaConnector", "metadata": {"name": "a"}, "spec": {"class": "x", "config": {"n": 1}}}`, formStrimzi, "a"},
	} {
		in, err := Parse([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if e, _ := in.find("connector.class"); in.form != tt.form || in.Name != tt.name || e.value != "x" {
			t.Errorf("%s: form %s, name %s, class %s", tt.text, in.form, in.Name, e.value)
		}
	}
}

func TestNoForm(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "is empty"},
		{"a\x00b", "not text"},
		{"a=\xff", "not text"},
		{"name=hunter2", "no connector.class"},
		{"just some hunter2 words", "no connector.class"},
		{`{"config":{"connector.class":`, "JSON"},
		{`{"connector.class":"x"} hunter2`, "line 1, column 25"},
		{"{\n \"connector.class\": \"x\",\n \"a\": hunter2\n}", "not JSON: line 3, column 7"},
		{"{\n \"connector.class\": \"x\",\n}", "line 3, column 1"},
		{`{"connector.class": "x"`, "line 1, column 24: the end is missing"},
		{`{"connector.class":"x","b":["hunter2"]}`, "line 1: b: a text is required"},
		{"connector.class=x\nb=\\u12", "value of b: a \\u is not followed"},
		{"kind: KafkaConnector\nspec: [hunter2]", "has no class"},
		{strings.Repeat("[", 1<<20), "too deep"},
		{strings.Repeat(`{"a":`, 100), "too deep"},
		{"x:\n  a: &a {b: *a, connector.class: x}", "aliases"},
		{"services: {db: {image: postgres, environment: {POSTGRES_PASSWORD: hunter2}}}", "no connector.class"},
		{"a:\n  connector.class: x\n  slot.name: {{ .Values.slot }}\n\n  b: {{ .c }}-{{ .d }}\n", "a template: render it first (for example with helm template), or write the values in place of\n  line 3: {{ .Values.slot }}\n  line 5: {{ .c }}\n  line 5: {{ .d }}"},
		{"{{- if .Values.on }}\nkind: KafkaConnector\n{{- end }}", "line 1: {{- if .Values.on }}\n  line 3: {{- end }}"},
		{`{"connector.class": "x", "database.user": "{{ user }}"}`, "line 1: {{ user }}"},
		{"kind: KafkaConnector\nspec: {class: x, config: {a: [hunter2]}}", "line 2: spec.config.a: a text is required"},
		{"kind: KafkaConnector\nspec: {class: x\n  hunter2", "not YAML: broken at line"},
		{"kind: KafkaConnector\nspec: {class: x}\n---\nkind: KafkaConnector\nmetadata: {name: b}\nspec: {class: a.b.y}", "several connectors: choose one with --name, or give each its own file:\n  without a name (x)\n  b (y)"},
	} {
		_, err := Parse([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error = %v, want %q", tt.text, err, tt.want)
		}
	}
}

// The rules are those of java.util.Properties.load.
func TestProperties(t *testing.T) {
	got, err := parseProperties("# c\n! c\r\n\n  a=1\nb : 2\nc  3\nd\ne=\nf\\ g=h\\:\\=\\n\\t\ni=j\\\n   k\\\\\nl=\\u00e9\\uD83D\\uDE00é\\é\na=last\n\\#m=n # no comment\no=\\")
	if err != nil {
		t.Fatal(err)
	}
	want := []pair{
		{"a", "last", 13}, {"b", "2", 5}, {"c", "3", 6}, {"d", "", 7}, {"e", "", 8}, {"f g", "h:=\n\t", 9}, {"i", `jk\`, 10}, {"l", "é😀éé", 12}, {"#m", "n # no comment", 14}, {"o", "", 15},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pair{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// For any input, the import returns either rejected keys or a configuration that loads.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.in")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(base), []byte(""))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte("bootstrap.servers=a:1\nkey.converter=x"))
	}
	f.Fuzz(func(t *testing.T, data, worker []byte) {
		in, err := Parse(data)
		if err != nil {
			return
		}
		result, err := Import(in, Options{Worker: worker})
		if err != nil {
			return
		}
		if refused := len(result.Report.Refused()) > 0; refused == (result.YAML != nil) {
			t.Errorf("refused %t, and a configuration of %d bytes", refused, len(result.YAML))
		}
		if result.YAML != nil {
			loads(t, "", result)
		}
		Source(in)
		result.RollbackPlan()
	})
}
