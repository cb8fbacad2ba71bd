package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// WriteYAML writes every key that has a value, each with where it comes from as a comment.
// Secrets are masked, passwords inside the connection string too; contents of secret files
// are not written at all.
func (c *Config) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range keys {
		s, ok := c.settings[k.path]
		if !ok {
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

// insert puts n into the mapping m under path.
func insert(m *yaml.Node, path []string, n *yaml.Node) {
	if len(path) == 1 {
		m.Content = append(m.Content, scalar("!!str", path[0]), n)
		return
	}
	// Keys come section by section, so a section that exists is the last entry.
	last := len(m.Content) - 1
	if last < 0 || m.Content[last-1].Value != path[0] {
		m.Content = append(m.Content, scalar("!!str", path[0]), &yaml.Node{Kind: yaml.MappingNode})
		last += 2
	}
	insert(m.Content[last], path[1:], n)
}

// encode returns value, which is of k's Go type, as YAML.
func (k key) encode(value any) *yaml.Node {
	switch value := value.(type) {
	case Secret:
		if k.kind == conninfo {
			return scalar("!!str", maskConninfo(string(value)))
		}
		return scalar("!!str", mask)
	case string:
		return scalar("!!str", value)
	case bool:
		return scalar("!!bool", strconv.FormatBool(value))
	case int:
		return scalar("!!int", strconv.Itoa(value))
	case time.Duration:
		return scalar("!!str", shortDuration(value))
	case []string:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range value {
			n.Content = append(n.Content, scalar("!!str", item))
		}
		return n
	case []encode.Placement:
		return encodeItems(k, value, placementTexts)
	case []encode.TopicRule:
		return encodeItems(k, value, ruleTexts)
	}
	return scalar("!!str", fmt.Sprint(value))
}

// encodeItems is what items reads.
func encodeItems[T any](k key, items []T, texts func(*T) []*string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i := range items {
		item := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for j, text := range texts(&items[i]) {
			if *text != "" {
				item.Content = append(item.Content, scalar("!!str", k.fields()[j]), scalar("!!str", *text))
			}
		}
		n.Content = append(n.Content, item)
	}
	return n
}

func scalar(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// shortDuration writes 1m30s and 2m, not 2m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}

// WriteMarkdown writes the reference table of all keys, as docs/configuration.md shows it.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	for _, k := range keys {
		if k.kind == section {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.path, k.markdownDefault(), strings.ReplaceAll(k.meaning(), "|", `\|`))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (k key) markdownDefault() string {
	if k.needed {
		return "*needed*"
	}
	if k.def == nil {
		return ""
	}
	out, _ := yaml.Marshal(k.encode(k.def)) // a literal of keys.go
	return "`" + strings.TrimSpace(string(out)) + "`"
}

// meaning returns the description with what is allowed.
func (k key) meaning() string {
	if k.kind == choice {
		return k.doc + " One of `" + strings.Join(k.allowed, "`, `") + "`."
	}
	return k.doc
}
