package config

import (
	"encoding/json"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A schema is the subset of JSON Schema that the configuration needs:
// https://json-schema.org/draft/2020-12.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description"`
	Type        any                `json:"type"` // a name or several
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     *int               `json:"minimum,omitempty"`
	Maximum     int                `json:"maximum,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
	Default     any                `json:"default,omitempty"`
	Examples    []any              `json:"examples,omitempty"`
}

// durationPattern matches the durations of [time.ParseDuration] without sign.
const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

// WriteSchema writes the JSON Schema of the file, for editors and deployment checks.
func WriteSchema(w io.Writer) error {
	root := object("Configuration of outbox-cdc.")
	root.Dialect, root.Title = "https://json-schema.org/draft/2020-12/schema", "outbox-cdc"
	for _, k := range keys { // a section comes before its keys
		parent, path := root, strings.Split(k.path, ".")
		for _, name := range path[:len(path)-1] {
			parent = parent.Properties[name]
		}
		parent.Properties[path[len(path)-1]] = k.schema()
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(root)
}

func object(doc string) *schema {
	return &schema{Type: "object", Description: doc, Properties: make(map[string]*schema), Additional: new(bool)}
}

func (k key) schema() *schema {
	s := &schema{Type: "string", Description: k.doc}
	switch k.kind {
	case section:
		s = object(k.doc)
		s.Type = []string{"object", "null"} // a section may be left empty
	case text:
		s.Pattern = k.pattern
	case secret, conninfo:
	case choice:
		s.Enum = k.allowed
	case boolean:
		s.Type = "boolean"
	case integer:
		s.Type, s.Minimum, s.Maximum = "integer", &k.min, k.max
	case duration:
		s.Pattern = durationPattern
	case list:
		s.Type, s.MinItems, s.Items = "array", 1, &schema{Type: "string", Pattern: k.pattern, Description: k.rule}
	case columns:
		s.Type, s.Pattern = []string{"string", "array"}, k.pattern
		s.MinItems, s.Items = 1, &schema{Type: "string", Pattern: ".", Description: "a column name"}
	case placements, rules:
		s.Type, s.Items = "array", k.itemSchema()
	}
	if k.def != nil {
		s.Default = plain(k.encode(k.def))
	}
	if k.example != "" {
		var n yaml.Node
		_ = yaml.Unmarshal([]byte(k.example), &n) // a literal of a declaration
		s.Examples = []any{plain(&n)}
	}
	return s
}

// plain returns the value of n as encoding/json wants it.
func plain(n *yaml.Node) any {
	var v any
	_ = n.Decode(&v) // what we encoded, or a literal of a declaration
	return v
}

// itemSchema describes an item.
func (k key) itemSchema() *schema {
	text := func(doc string) *schema { return &schema{Type: "string", Description: doc} }
	if k.kind == rules {
		s := object("A rule that rewrites the topic name.")
		s.Required = []string{"match"}
		s.Properties["match"] = text("A Java regular expression for the whole name.")
		s.Properties["match"].MinLength = 1
		s.Properties["replace"] = text("A Java replacement string.")
		return s
	}
	s := object("A column to add to the record.")
	s.Required = []string{"column", "to"}
	s.Properties["column"] = text("The column's name.")
	s.Properties["column"].MinLength = 1
	s.Properties["to"] = text("The part of the record that gets it.")
	s.Properties["to"].Enum = names(encode.Targets())
	s.Properties["as"] = text("Name of the header or member. Default: the column's name.")
	return s
}
