package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "write the tables of keys into docs/configuration.md")

// TestSchemaAgreesWithLoad checks documents against the schema and with Load. Both accept a document, or neither
// does.
func TestSchemaAgreesWithLoad(t *testing.T) {
	cleanEnviron(t)
	var out bytes.Buffer
	if err := WriteSchema(&out); err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(out.Bytes(), &schema); err != nil {
		t.Fatal(err)
	}
	var effective strings.Builder
	cfg, err := Load(Sources{Flags: settings("outbox.place", `[{"column": "a", "to": "header"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.WriteYAML(&effective); err != nil {
		t.Fatal(err)
	}
	for doc, ok := range map[string]bool{
		effective.String(): true,
		"source:\n  dsn: postgres://cdc@db/app\n  publication: outbox_cdc\n  slot: outbox_cdc\nsink:\n  kafka:\n    brokers: [a:9092, b:9092]\n": true,
		"log: {level: info, format: auto}\nsink:\n": true,
		"startup_timeout: 1m30s":                    true,
		"outbox: {tables: [a.b], topic: 'x'}":       true,
		"source: {slto: a}":                         false,
		"sorce: {slot: a}":                          false,
		"source: {slot: A}":                         false,
		"source: {create: 1}":                       false,
		"log: {level: loud}":                        false,
		"startup_timeout: 30":                       false,
		"startup_timeout: soon":                     false,
		"sink: {kafka: {brokers: []}}":              false,
		"sink: {kafka: {brokers: [localhost]}}":     false,
		"sink: {kafka: {window: {bytes: 0}}}":       false,
		"sink: {kafka: {create_topics: {partitions: 2147483647, replication_factor: 32767}}}":                    true,
		"sink: {kafka: {create_topics: {partitions: 2147483648}}}":                                               false,
		"sink: {kafka: {create_topics: {partitions: 1, replication_factor: 65537}}}":                             false,
		"outbox: {place: [{column: a}]}":                                                                         false,
		"outbox: {topic_rules: [{match: 'a(.)', replace: $1}], messages: [m]}":                                   true,
		"outbox: {place: [{column: a, to: envelope}], encoding: {value: json, key: bytes, headers: simple}}":     true,
		"headers: {static: [a=b=c, 'd=']}\ndebezium: {money_digits: 0, context_headers: true, binary: base64}\n": true,
		"outbox: {topic_rules: [{replace: x}]}":                                                                  false,
		"outbox: {encoding: {value: simple}}":                                                                    false,
		"headers: {static: [a]}":                                                                                 false,
		"debezium: {times: connected}":                                                                           false,
		"outbox: {place: [{column: a, to: x}]}":                                                                  false,
		"name: 12":                                                                                               false,
	} {
		var value any
		if err := yaml.Unmarshal([]byte(doc), &value); err != nil {
			t.Fatal(err)
		}
		if err := conforms(schema, value); (err == nil) != ok {
			t.Errorf("schema: %s: %v", doc, err)
		}
		if _, err := load(t, doc, nil); (err == nil) != ok {
			t.Errorf("Load: %s: %v", doc, err)
		}
	}
}

// conforms checks value against schema. It knows the keywords that our schema uses.
func conforms(schema, value any) error {
	s, _ := schema.(map[string]any)
	types, ok := s["type"].([]any)
	if !ok {
		types = []any{s["type"]}
	}
	switch value := value.(type) {
	case map[string]any:
		props, _ := s["properties"].(map[string]any)
		for name, v := range value {
			if props[name] == nil {
				return fmt.Errorf("%s is not allowed", name)
			}
			if err := conforms(props[name], v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := value[name.(string)]; !ok {
				return fmt.Errorf("%s is missing", name)
			}
		}
		return oneOf(types, "object")
	case []any:
		for _, v := range value {
			if err := conforms(s["items"], v); err != nil {
				return err
			}
		}
		if least, ok := s["minItems"].(float64); ok && len(value) < int(least) {
			return fmt.Errorf("%d items", len(value))
		}
		return oneOf(types, "array")
	case string:
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(value) {
			return fmt.Errorf("%q does not match %s", value, p)
		}
		if enum, ok := s["enum"].([]any); ok {
			return oneOf(enum, value)
		}
		return oneOf(types, "string")
	case int:
		if least, ok := s["minimum"].(float64); ok && value < int(least) {
			return fmt.Errorf("%d is too small", value)
		}
		if most, ok := s["maximum"].(float64); ok && value > int(most) {
			return fmt.Errorf("%d is too large", value)
		}
		return oneOf(types, "integer")
	case bool:
		return oneOf(types, "boolean")
	case nil:
		return oneOf(types, "null")
	}
	return fmt.Errorf("%T", value)
}

func oneOf(allowed []any, got string) error {
	for _, a := range allowed {
		if a == got {
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %v", got, allowed)
}

// TestSchemaIsComplete: every key has a description. Its default and its examples are valid values.
func TestSchemaIsComplete(t *testing.T) {
	for _, k := range keys {
		data, err := json.Marshal(k.schema())
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		if s["description"] == "" || s["type"] == nil {
			t.Errorf("%s: schema = %v", k.path, s)
		}
		if k.def != nil {
			if err := conforms(s, plain(k.encode(k.def))); err != nil {
				t.Errorf("%s: default: %v", k.path, err)
			}
		}
		for _, example := range k.schema().Examples {
			if err := conforms(s, example); err != nil {
				t.Errorf("%s: example: %v", k.path, err)
			}
		}
	}
}

// TestReference checks the documented tables of keys against the declarations. -update writes them.
func TestReference(t *testing.T) {
	doctest.CheckPart(t, "../../docs/configuration.md", "config", markdown(), *update)
}

// A referenceRow is a row of the reference: keys of a table that have the same default and meaning.
type referenceRow struct{ keys, text string }

// markdown returns the reference tables of all keys, as docs/configuration.md shows them.
func markdown() string {
	var titles []string
	tables := make(map[string][]referenceRow)
	for _, k := range keys {
		if k.kind == section {
			continue
		}
		row := referenceRow{"`" + k.path + "`", k.referenceText()}
		title := k.referenceTitle()
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		if i := slices.IndexFunc(tables[title], func(r referenceRow) bool { return r.text == row.text }); i >= 0 {
			tables[title][i].keys += ", " + row.keys
			continue
		}
		tables[title] = append(tables[title], row)
	}
	var b strings.Builder
	for _, title := range titles {
		fmt.Fprintf(&b, "\n## %s\n\n| key | default | meaning |\n|---|---|---|\n", title)
		for _, r := range tables[title] {
			fmt.Fprintf(&b, "| %s | %s |\n", r.keys, r.text)
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// referenceTitle returns the heading of the table with the key.
func (k key) referenceTitle() string {
	switch parts := strings.Split(k.path, "."); parts[0] {
	case "source", "debezium", "tracing":
		return "`" + parts[0] + "`"
	case "outbox", "headers":
		return "`outbox` and `headers`"
	case "sink":
		if parts[2] == "tls" {
			return "TLS of the brokers"
		}
		return "`sink." + parts[1] + "`"
	default:
		return "Relay"
	}
}

// referenceText returns default and meaning, as cells.
func (k key) referenceText() string {
	return k.markdownDefault() + " | " + strings.ReplaceAll(k.meaning(), "|", `\|`)
}

func (k key) markdownDefault() string {
	if k.needed {
		return "*required*"
	}
	if k.def == nil {
		return ""
	}
	out, _ := yaml.Marshal(k.encode(k.def)) // a literal of a declaration
	return "`" + strings.TrimSpace(string(out)) + "`"
}

// meaning returns the description with the allowed values.
func (k key) meaning() string {
	if k.kind == choice {
		return k.doc + " One of `" + strings.Join(k.allowed, "`, `") + "`."
	}
	return k.doc
}
