package config

import (
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// WriteYAML writes every key that has a value, with its source as a comment. It leaves out what has no effect: the keys
// of other brokers, and the debezium keys unless one is set or an encoding depends on them. It masks secrets and whatever may be one:
// parameters of the connection string that are not known to be harmless, the query of a URL, and a path that does not
// look like one. It does not write the contents of secret files.
func (c *Config) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range keys {
		s, ok := c.settings[k.path]
		if !ok || !c.hasEffect(k.path) {
			continue
		}
		n := k.encode(s.value)
		n.LineComment = s.where
		insert(root, strings.Split(k.path, "."), n)
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return encoder.Close()
}

// hasEffect reports whether the broker and the records depend on the key.
func (c *Config) hasEffect(path string) bool {
	section, _, _ := strings.Cut(path, ".")
	switch section {
	case "sink":
		return strings.HasPrefix(path, c.broker().at())
	case "position_topic":
		return c.broker().stores
	case "debezium":
		return c.Outbox.Encoding != Encoding{raw, raw, raw} || slices.ContainsFunc(c.debeziumKeys(), func(k key) bool { return c.isSet(k.path) })
	}
	return true
}

// insert puts n into the mapping m under path.
func insert(m *yaml.Node, path []string, n *yaml.Node) {
	if len(path) == 1 {
		m.Content = append(m.Content, name(path[0]), n)
		return
	}
	// Keys are sorted by section, so an existing section is the last entry.
	last := len(m.Content) - 1
	if last < 0 || m.Content[last-1].Value != path[0] {
		m.Content = append(m.Content, name(path[0]), &yaml.Node{Kind: yaml.MappingNode})
		last += 2
	}
	insert(m.Content[last], path[1:], n)
}

// encode returns value, which is of k's Go type, as YAML.
func (k key) encode(value any) *yaml.Node {
	switch v := value.(type) {
	case Secret: // it encodes itself as the mask
		if k.kind == conninfo {
			value = maskConninfo(string(v))
		}
	case string:
		switch {
		case strings.HasSuffix(k.path, "_file") && v != "":
			value = shownPath(v)
		case strings.HasSuffix(k.path, "_url"):
			if at := strings.IndexAny(v, "?#"); at >= 0 {
				value = v[:at+1] + mask
			}
		}
	case encode.ColumnNames:
		switch len(v) {
		case 0:
			value = ""
		case 1:
			value = v[0]
		}
	case time.Duration: // 1m30s and 2m, not 2m0s
		value = strings.Replace(strings.Replace(v.String(), "m0s", "m", 1), "h0m", "h", 1)
	}
	n := new(yaml.Node)
	_ = n.Encode(value) // all kinds can be encoded
	if n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
		for _, item := range n.Content {
			withoutEmpty(item)
		}
	}
	return n
}

// withoutEmpty removes keys without a value from n, if it is a mapping.
func withoutEmpty(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	pairs := slices.Collect(slices.Chunk(n.Content, 2))
	n.Content = slices.Concat(slices.DeleteFunc(pairs, func(pair []*yaml.Node) bool { return pair[1].Value == "" })...)
}

func name(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}
