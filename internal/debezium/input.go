package debezium

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
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
	formYAML       = "connector in YAML"
	formServer     = "Debezium Server properties"
	formServerYAML = "Debezium Server YAML"
	formServerEnv  = "Debezium Server environment"
	formOperator   = "DebeziumServer resource"
)

// An Input is the configuration of a connector, read from any form.
type Input struct {
	form string
	Name string // of the connector; empty: the form has none

	server  bool // read from Debezium Server's keys
	entries []entry
	worker  *worker // of the same file; nil: none
	broken  error   // the connector is there, and cannot be read

	repeated []string // keys that the file has several times
	defaults []pair   // variables of the file that were replaced by their defaults
}

// An entry is one key of a configuration.
type entry struct {
	key   string // Kafka Connect's name of the key
	shown string // the key as written in the file
	value string
	line  int    // in the file; 0: not known
	lost  string // what the finding says about a part of the value that is not imported
}

// where returns the beginning of a sentence about the entry.
func (e entry) where() string {
	if e.line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", e.line)
}

// Parse parses a file with one connector. It detects the form by the content. The error contains no value.
func Parse(data []byte) (*Input, error) { return ParseNamed(data, "") }

// ParseNamed parses a file that may have several connectors, and returns the one of this name. Without a name, it returns
// the only connector, or the only one that import can convert.
func ParseNamed(data []byte, name string) (*Input, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("the configuration is empty")
	case bytes.IndexByte(data, 0) >= 0, !utf8.Valid(data):
		return nil, errNotText
	}
	var f finder
	err := f.text(string(data), "")
	var in *Input
	if err == nil {
		in, err = f.choose(name)
	}
	if at := bytes.Index(data, []byte("connector.class")); errors.Is(err, errNothing) && at >= 0 {
		err = fmt.Errorf("connector.class is in line %d, but not as part of a configuration that can be read; %s", bytes.Count(data[:at], []byte("\n"))+1, whatImportReads)
	}
	if problem := templated(string(data)); problem != nil && (err != nil || in.hasTemplate()) {
		return nil, problem
	}
	if err != nil {
		return nil, err
	}
	in.defaults = f.defaults
	if len(f.workers) == 1 {
		in.worker = f.workers[0]
		in.worker.check(string(data))
	}
	return in, nil
}

// choose returns the connector that is meant.
func (f *finder) choose(name string) (*Input, error) {
	found := f.found
	if name != "" {
		found = slices.DeleteFunc(slices.Clone(found), func(in *Input) bool { return in.Name != name })
	}
	for _, preferred := range []func(*Input) bool{(*Input).postgres, (*Input).outbox} {
		if some := slices.DeleteFunc(slices.Clone(found), func(in *Input) bool { return !preferred(in) }); len(some) > 0 {
			found = some
		}
	}
	switch {
	case len(f.found) == 0:
		return nil, errNothing
	case len(found) == 1 && found[0].broken == nil && !found[0].has("connector.class"):
		return nil, errors.New("the connector has no class, which says which connector it is")
	case len(found) == 1:
		return found[0], found[0].broken
	}
	var names strings.Builder
	for _, in := range f.found {
		fmt.Fprintf(&names, "\n  %s (%s)", cmp.Or(in.displayName(), "without a name"), cmp.Or(in.className(), "without a class"))
		if in.broken != nil {
			fmt.Fprintf(&names, ": %v", in.broken)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no connector is called %q; these are in the file:%s", name, names.String())
	}
	return nil, fmt.Errorf("several connectors: choose one with --name, or give each its own file:%s", names.String())
}

// className returns the last part of the connector's class.
func (in *Input) className() string {
	e, _ := in.find("connector.class")
	return e.value[strings.LastIndexByte(e.value, '.')+1:]
}

// postgres reports whether the connector is Debezium's for PostgreSQL.
func (in *Input) postgres() bool {
	e, _ := in.find("connector.class")
	return e.value == connectorClass || e.value == connectorAlias || in.broken != nil && e.value == ""
}

// outbox reports whether one of the connector's transforms is the event router, or may be.
func (in *Input) outbox() bool {
	return in.broken != nil && !in.has("transforms") || slices.ContainsFunc(in.entries, func(e entry) bool { return e.value == eventRouter })
}

// hasTemplate reports whether a value may be an action of a template.
func (in *Input) hasTemplate() bool {
	return slices.ContainsFunc(in.entries, func(e entry) bool { return strings.Contains(e.value, "{{") })
}

var errNotText = errors.New(`not text in UTF-8; properties have \uXXXX for what is beyond ASCII`)

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

func (in *Input) has(key string) bool {
	_, ok := in.find(key)
	return ok
}

func (in *Input) find(key string) (entry, bool) {
	i := slices.IndexFunc(in.entries, func(e entry) bool { return e.key == key })
	if i < 0 {
		return entry{}, false
	}
	return in.entries[i], true
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
