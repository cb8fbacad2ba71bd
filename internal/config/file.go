package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A fileReader reads the nodes of one YAML document.
type fileReader struct {
	*reader
	name    string
	noLines bool // name is not a file, so errors have no line numbers
}

// file reads a YAML document. An empty file is an empty configuration.
func (r *reader) file(name string, data []byte) {
	f := fileReader{reader: r, name: name}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		f.syntaxError(err)
		return
	}
	if err := decoder.Decode(&second); err == nil {
		f.problem(f.at(&second), "", "the file has a second YAML document; only one is allowed")
	} else if !errors.Is(err, io.EOF) {
		f.syntaxError(err)
	}
	f.section("", doc.Content[0])
}

func (f *fileReader) at(n *yaml.Node) string {
	if f.noLines {
		return f.name
	}
	return fmt.Sprintf("%s:%d", f.name, n.Line)
}

// syntaxError reports an error of the YAML parser, without text of the document: it may contain a secret. For YAML, a
// password that begins with * is an alias.
func (f *fileReader) syntaxError(err error) {
	where, what := f.name, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (.*)`).FindStringSubmatch(what); m != nil {
		where, what = f.name+":"+m[1], m[2]
	}
	if strings.Contains(what, "anchor") {
		what = "put a value that begins with * or & in quotes"
	}
	f.problem(where, "", "not YAML: %s", what)
}

// section reads the mapping n, whose keys are below path.
func (f *fileReader) section(path string, n *yaml.Node) {
	if n = resolve(n); isNull(n) {
		return
	}
	f.mapping(path, n, childrenOf(path), func(full string, name, value *yaml.Node) {
		switch k, known := keyAt(full); {
		case !known:
			f.unknown(path, full, name)
		case k.kind == section:
			f.sections[full] = f.at(name)
			f.section(full, value)
		default:
			f.leaf(k, value)
		}
	})
}

// mapping calls entry for every key of the mapping n, with its full path. It reports duplicate keys, and a node that is
// not a mapping.
func (f *fileReader) mapping(path string, n *yaml.Node, allowed []string, entry func(full string, name, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.problem(f.at(n), path, "found %s; allowed are keys: %s", describe(n), strings.Join(allowed, ", "))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		full := strings.TrimPrefix(path+"."+name.Value, ".")
		switch first := seen[full]; {
		case name.Kind != yaml.ScalarNode:
			f.problem(f.at(name), path, "found %s as a key; allowed are: %s", describe(name), strings.Join(allowed, ", "))
			continue
		case first > 0:
			f.problem(f.at(name), full, "set twice; first in line %d", first)
		default:
			entry(full, name, value)
		}
		seen[full] = name.Line
	}
}

// unknown reports a key that does not exist. It names the key that was probably meant, or else every key of the
// section and the nearest of them.
func (f *fileReader) unknown(path, full string, name *yaml.Node) {
	meant := hint(Nearest(full, paths()))
	if meant == "" {
		known := childrenOf(path)
		distance := func(key string) int {
			if strings.HasPrefix(key, name.Value) || strings.HasPrefix(name.Value, key) {
				return 0 // redis for redis_streams
			}
			return editDistance(name.Value, key)
		}
		near := slices.MinFunc(known, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
		meant = "; the nearest key here is " + near + "; known keys: " + strings.Join(known, ", ")
	}
	f.problem(f.at(name), full, "unknown key%s", meant)
}

func (f *fileReader) leaf(k key, n *yaml.Node) {
	var value any
	var err error
	switch k.kind {
	case placements, rules:
		value, err = f.items(k, n)
	case list:
		value, err = f.list(k, n)
	case columns:
		value, err = f.columns(k, n)
	case section, text, choice, secret, conninfo, boolean, integer, duration:
		value, err = f.scalarNode(k, n)
	}
	if err != nil {
		f.problem(f.at(n), k.path, "%v", err)
		return
	}
	f.settings[k.path] = setting{value, fromFile, f.at(n)}
}

// scalarNode reads a scalar. It must have the YAML type of k's kind, so that this program and an editor that validates
// the file against the schema agree.
func (f *fileReader) scalarNode(k key, n *yaml.Node) (any, error) {
	tag := "!!str"
	switch k.kind {
	case boolean:
		tag = "!!bool"
	case integer:
		tag = "!!int"
	case section, text, choice, secret, conninfo, duration, list, columns, placements, rules:
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != tag {
		err := fmt.Errorf("found %s; allowed is %s", describe(n), k.want())
		if tag == "!!str" && n.Kind == yaml.ScalarNode && !isNull(n) && k.kind != duration {
			err = fmt.Errorf("%w: put it in quotes", err)
		}
		return nil, err
	}
	value, err := f.fill(k, n.Value)
	switch {
	case err != nil:
		return nil, err
	case k.kind == columns: // a single name may have a comma
		return k.columns(encode.ColumnNames{value})
	}
	return k.parse(value)
}

func (f *fileReader) columns(k key, n *yaml.Node) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return f.scalarNode(k, n)
	}
	names, err := f.list(k, n)
	if err != nil {
		return nil, err
	}
	return k.columnList(names)
}

func (f *fileReader) list(k key, n *yaml.Node) ([]string, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("found %s; allowed is %s", describe(n), k.want())
	}
	items := make([]string, len(n.Content))
	for i, item := range n.Content {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" {
			return nil, fmt.Errorf("found %s as item %d; allowed is %s", describe(item), i+1, k.rule)
		}
		items[i] = item.Value
	}
	return items, k.matchAll(items)
}

// items reads a list of mappings. It reports problems of items itself.
func (f *fileReader) items(k key, n *yaml.Node) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("found %s; allowed is %s", describe(n), k.want())
	}
	for i, item := range n.Content {
		f.item(fmt.Sprintf("%s[%d]", k.path, i), k.fields(), resolve(item))
	}
	if k.kind == rules {
		var out []encode.TopicRule
		_ = n.Decode(&out) // item has reported what it rejects
		return out, nil
	}
	var out []encode.Placement
	_ = n.Decode(&out) // as above
	return out, nil
}

// item reports problems of the mapping n, whose keys are fields.
func (f *fileReader) item(path string, fields []string, n *yaml.Node) {
	f.mapping(path, n, fields, func(full string, name, value *yaml.Node) {
		switch {
		case !slices.Contains(fields, name.Value):
			f.problem(f.at(name), full, "unknown key; known keys: %s", strings.Join(fields, ", "))
		case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str":
			f.problem(f.at(value), full, "found %s; allowed is text", describe(value))
		}
	})
}

// resolve returns the node that an alias refers to.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe returns the type of n, never its content.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.DocumentNode, yaml.AliasNode, yaml.ScalarNode:
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!timestamp":
		return "a date"
	case "!!str":
		return "text"
	}
	return "a tagged value"
}
