package debezium

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The forms of a configuration.
const (
	formREST       = "Connect REST body"
	formConfig     = "Connect configuration (JSON)"
	formProperties = "connector properties"
	formStrimzi    = "Strimzi KafkaConnector"
	formServer     = "Debezium Server properties"
	formServerEnv  = "Debezium Server environment"
)

// An Input is the configuration of a connector, read from any form.
type Input struct {
	form string
	Name string // of the connector; empty: the form has none

	server  bool // read from Debezium Server's keys
	entries []entry
}

// An entry is one key of a configuration.
type entry struct {
	key   string // Kafka Connect's name of the key
	shown string // the key as written in the file
	value string
}

// Parse parses a configuration. It detects the form by the content. The error contains no value.
func Parse(data []byte) (*Input, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	switch {
	case len(data) == 0:
		return nil, errors.New("the configuration is empty")
	case bytes.IndexByte(data, 0) >= 0, !utf8.Valid(data):
		return nil, errNotText
	case isKind(data, "KafkaConnector"):
		return parseStrimzi(data)
	case data[0] == '{':
		return parseJSON(data)
	}
	text := string(data)
	if regexp.MustCompile(`(?m)^\s*(export\s+)?DEBEZIUM_(SOURCE|SINK)_\w+=`).MatchString(text) {
		return parseEnvironment(text)
	}
	pairs, err := parseProperties(text)
	if err != nil {
		return nil, fmt.Errorf("read the configuration as properties: %w", err)
	}
	in := &Input{form: formProperties}
	if slices.ContainsFunc(pairs, func(p pair) bool { return strings.HasPrefix(p.key, serverPrefix+"source.") }) {
		in.form = formServer
		in.fromServer(pairs)
		return in, in.check()
	}
	for _, p := range pairs {
		in.add(p.key, p.key, p.value)
	}
	return in, in.check()
}

var errNotText = errors.New(`not text in UTF-8; properties have \uXXXX for what is beyond ASCII`)

// check returns an error if the input is not the configuration of a connector.
func (in *Input) check() error {
	if in.Name == "" {
		if e, ok := in.find("name"); ok {
			in.Name = e.value
		}
	}
	if _, ok := in.find("connector.class"); !ok {
		return errors.New("not a connector's configuration: it has no connector.class; import reads Kafka Connect's JSON (with or without name and config)," +
			" properties, a Strimzi KafkaConnector, and Debezium Server's properties or environment")
	}
	return nil
}

func (in *Input) add(key, shown, value string) {
	if !takesBlanks(key) {
		value = strings.TrimSpace(value)
	}
	in.entries = append(in.entries, entry{key: key, shown: shown, value: value})
}

// takesBlanks reports whether leading and trailing spaces belong to the value of a key.
func takesBlanks(key string) bool {
	return slices.ContainsFunc([]string{"regex", "replacement", "pattern", "literal", "password"}, func(s string) bool { return strings.HasSuffix(key, s) })
}

func (in *Input) find(key string) (entry, bool) {
	i := slices.IndexFunc(in.entries, func(e entry) bool { return e.key == key })
	if i < 0 {
		return entry{}, false
	}
	return in.entries[i], true
}

// parseJSON parses the JSON of Connect's REST interface.
func parseJSON(data []byte) (*Input, error) {
	top, err := members(data)
	if err != nil {
		return nil, fmt.Errorf("read the configuration as JSON: %w", err)
	}
	in := &Input{form: formConfig}
	for _, m := range top {
		if m.key == "config" && len(m.value) > 0 && m.value[0] == '{' {
			in.form = formREST
			if top, err = members([]byte(m.value)); err != nil {
				return nil, fmt.Errorf("read the configuration as JSON: %w", err)
			}
		} else if m.key == "name" && json.Unmarshal([]byte(m.value), &in.Name) != nil {
			return nil, errors.New("name: a text is needed")
		}
	}
	for _, m := range top {
		value, ok, err := scalarText(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
		if ok {
			in.add(m.key, m.key, value)
		}
	}
	return in, in.check()
}

// members returns the members of a JSON object, in order, with the JSON of their values.
func members(data []byte) ([]pair, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil {
		return nil, err
	} else if token != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var out []pair
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		key := fmt.Sprint(name)
		if slices.ContainsFunc(out, func(p pair) bool { return p.key == key }) {
			return nil, fmt.Errorf("%q is given twice", key)
		}
		out = append(out, pair{key, string(value)})
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return out, nil
}

// scalarText returns Connect's text for a JSON value. ok is false for null, which means the same as an absent
// key.
func scalarText(raw string) (text string, ok bool, err error) {
	switch {
	case raw == "null":
		return "", false, nil
	case raw[0] == '{' || raw[0] == '[':
		return "", false, errors.New("a text is needed")
	case raw[0] == '"':
		err := json.Unmarshal([]byte(raw), &text)
		return text, err == nil, err
	}
	return raw, true, nil
}

// isKind reports whether data is a manifest with a resource of this kind.
func isKind(data []byte, kind string) bool {
	return regexp.MustCompile(`(?m)(?:^|[{,])\s*"?kind"?\s*:\s*["']?` + kind + `\b`).Match(data)
}

// Prefix returns topic.prefix of the connector.
func (in *Input) Prefix() string {
	if e, ok := in.find("topic.prefix"); ok {
		return e.value
	}
	e, _ := in.find("database.server.name")
	return e.value
}

// displayName returns the name of the connector for messages.
func (in *Input) displayName() string { return cmp.Or(in.Name, in.Prefix()) }
