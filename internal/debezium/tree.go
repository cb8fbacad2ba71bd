package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readJSON returns the JSON values of a text as YAML nodes, so that one reader serves both languages. An error names
// line and column, and contains no value.
func readJSON(text string) ([]*yaml.Node, error) {
	r := newJSONReader(text)
	var out []*yaml.Node
	for {
		from := r.decoder.InputOffset()
		switch node, err := r.value(); {
		case errors.Is(err, io.EOF) && strings.TrimSpace(text[from:]) == "":
			return out, nil
		case errors.Is(err, errTooDeep):
			return nil, err
		case err != nil:
			return nil, r.where(from)
		default:
			out = append(out, node)
		}
	}
}

// maxDepth limits how deep a file is read. No configuration is nested so deep.
const maxDepth = 50

type jsonReader struct {
	text    string
	decoder *json.Decoder
	read    int64 // the offset up to which lines are counted
	line    int   // line breaks before it
	depth   int   // open brackets
}

func newJSONReader(text string) *jsonReader {
	r := &jsonReader{text: text, decoder: json.NewDecoder(strings.NewReader(text))}
	r.decoder.UseNumber()
	return r
}

// value reads the next value.
func (r *jsonReader) value() (*yaml.Node, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	at := r.decoder.InputOffset()
	r.line += strings.Count(r.text[r.read:at], "\n")
	r.read = at
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line + 1}
	switch token := token.(type) {
	case json.Delim:
		return node, r.members(node, token)
	case nil:
		node.Tag = "!!null"
	case string:
		node.Tag, node.Value = "!!str", token
	default: // true, false, and numbers as they are written
		node.Value = fmt.Sprint(token)
	}
	return node, nil
}

// members reads what is between brackets.
func (r *jsonReader) members(node *yaml.Node, open json.Delim) error {
	if r.depth++; r.depth > maxDepth {
		return errTooDeep
	}
	node.Kind = yaml.SequenceNode
	if open == '{' {
		node.Kind = yaml.MappingNode
	}
	for r.decoder.More() {
		child, err := r.value() // of an object: first the name, then the value
		if err != nil {
			return err
		}
		node.Content = append(node.Content, child)
	}
	r.depth--
	_, err := r.decoder.Token()
	return err
}

var errTooDeep = errors.New("not a configuration: its JSON is nested too deep")

// where returns the error about the first value after an offset, with its line and column.
func (r *jsonReader) where(from int64) error {
	at, problem := r.problem(from)
	before := r.text[:at]
	return fmt.Errorf("not JSON: line %d, column %d: %s", strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n"), problem)
}

// problem returns the place of the error in the first value after an offset, and what it is.
func (r *jsonReader) problem(from int64) (at int, problem string) {
	at = len(strings.TrimRight(r.text, " \t\r\n"))
	var syntax *json.SyntaxError
	var v any
	err := json.Unmarshal([]byte(r.text[from:]), &v)
	if end := int(from); errors.As(err, &syntax) && end+int(syntax.Offset) <= at && !strings.Contains(syntax.Error(), "unexpected end") {
		return end + int(syntax.Offset) - 1, syntax.Error() // the offset is behind the character
	}
	return at, "the end is missing"
}

// readYAML returns the documents of a YAML text. An error names the line, and contains no value.
func readYAML(text string) ([]*yaml.Node, error) {
	var out []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader([]byte(text))); ; {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, errors.New("not YAML: " + withoutValues(err))
		}
		var v any
		if err := doc.Decode(&v); err != nil && compileOnce(`contains itself|excessive aliasing`).MatchString(err.Error()) {
			return nil, errors.New("not a configuration: its YAML aliases have no end")
		}
		out = append(out, &doc)
	}
}

// withoutValues returns the error of the YAML parser without text of the document.
func withoutValues(err error) string {
	if line := compileOnce(`line \d+`).FindString(err.Error()); line != "" {
		return "broken at " + line
	}
	return "broken"
}

// plain returns the node that n stands for: the content of a document, the target of an alias.
func plain(n *yaml.Node) *yaml.Node {
	for {
		switch {
		case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
			n = n.Content[0]
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		default:
			return n
		}
	}
}

// A member is a key of a map with its value.
type member struct {
	key   string
	line  int
	value *yaml.Node
}

// membersOf returns the members of a map. If a key is repeated, the last value counts. YAML's merge keys are expanded.
func membersOf(n *yaml.Node) []member {
	if n = plain(n); n.Kind != yaml.MappingNode {
		return nil
	}
	var out []member
	at := make(map[string]int)
	put := func(m member, again bool) {
		if i, ok := at[m.key]; !ok {
			at[m.key] = len(out)
			out = append(out, m)
		} else if again {
			out[i] = m
		}
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], plain(n.Content[i+1])
		switch {
		case key.ShortTag() != "!!merge":
			put(member{key.Value, key.Line, value}, true)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, from := range merged {
		for _, m := range membersOf(from) {
			put(m, false) // what the map itself has counts
		}
	}
	return out
}

// repeated returns the keys that a map has several times.
func repeated(n *yaml.Node) []string {
	n = plain(n)
	seen := make(map[string]int)
	var out []string
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if seen[key]++; seen[key] == 2 {
			out = append(out, key)
		}
	}
	return out
}

// child returns the value of a key of a map, or an empty node.
func child(n *yaml.Node, key string) *yaml.Node {
	for _, m := range membersOf(n) {
		if m.key == key {
			return m.value
		}
	}
	return &yaml.Node{}
}

// scalar returns the text of a scalar. ok is false for null, which means the same as an absent key, and for anything
// else.
func scalar(n *yaml.Node) (text string, ok bool) {
	return n.Value, n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null"
}

// textOf returns the text of a key of a map, or "".
func textOf(n *yaml.Node, key string) string {
	text, _ := scalar(child(n, key))
	return text
}
