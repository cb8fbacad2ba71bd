package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// fields are the keys of one item of placements or rules.
func (k key) fields() []string {
	if k.kind == rules {
		return []string{"match", "replace"}
	}
	return []string{"column", "to", "as"}
}

// placementTexts and ruleTexts are where the values of these keys are.
func placementTexts(p *encode.Placement) []*string {
	return []*string{&p.Column, (*string)(&p.To), &p.As}
}

func ruleTexts(r *encode.TopicRule) []*string { return []*string{&r.Match, &r.Replace} }

// items reads a list of mappings. Problems inside an item are reported by themselves.
func (f *fileReader) items(k key, n *yaml.Node) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("found %s; allowed is %s", describe(n), k.want())
	}
	if k.kind == rules {
		return readItems(f, k, n, ruleTexts), nil
	}
	return readItems(f, k, n, placementTexts), nil
}

func readItems[T any](f *fileReader, k key, n *yaml.Node, texts func(*T) []*string) []T {
	out := make([]T, len(n.Content))
	for i, item := range n.Content {
		f.item(fmt.Sprintf("%s[%d]", k.path, i), k.fields(), texts(&out[i]), resolve(item))
	}
	return out
}

// item reads the mapping n, whose keys are fields, into texts.
func (f *fileReader) item(path string, fields []string, texts []*string, n *yaml.Node) {
	f.mapping(path, n, fields, func(full string, name, value *yaml.Node) {
		i := slices.Index(fields, name.Value)
		switch {
		case i < 0:
			f.problem(f.at(name), full, "unknown key; known here: %s", strings.Join(fields, ", "))
			return
		case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str":
			f.problem(f.at(value), full, "found %s; allowed is text", describe(value))
		}
		*texts[i] = value.Value
	})
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

// itemSchema describes an item.
func (k key) itemSchema() *schema {
	text := func(doc string) *schema { return &schema{Type: "string", Description: doc} }
	if k.kind == rules {
		s := object("A rule for the topic's name.")
		s.Required = []string{"match"}
		s.Properties["match"] = text("A regular expression of Java, for all of the name.")
		s.Properties["match"].MinLength = 1
		s.Properties["replace"] = text("A replacement string of Java.")
		return s
	}
	s := object("One more column of the record.")
	s.Required = []string{"column", "to"}
	s.Properties["column"] = text("The column's name.")
	s.Properties["column"].MinLength = 1
	s.Properties["to"] = text("Where it goes.")
	s.Properties["to"].Enum = names(encode.Targets())
	s.Properties["as"] = text("The header's or member's name. Default: the column's.")
	return s
}
