package encode

import (
	"fmt"
	"slices"
	"strings"
)

// maxTopicLength is Kafka's limit on the length of a topic's name.
const maxTopicLength = 249

// topicCacheSize bounds the names kept by [topicCache]. A name costs its bytes twice; a
// table that routes to more topics than this only pays for making strings again.
const topicCacheSize = 16_384

// A part of a topic template is literal text or, where column is not empty, the value of
// a column, by role or name.
type part struct {
	text   string
	column string
}

// parseTemplate splits a topic template into its parts; empty means [DefaultTopic].
func parseTemplate(template string) ([]part, error) {
	if template == "" {
		template = DefaultTopic
	}
	var parts []part
	var text strings.Builder
	for rest := template; rest != ""; {
		i := strings.IndexByte(rest, '$')
		if i < 0 {
			text.WriteString(rest)
			break
		}
		text.WriteString(rest[:i])
		rest = rest[i+1:]
		if after, ok := strings.CutPrefix(rest, "$"); ok {
			text.WriteByte('$')
			rest = after
			continue
		}
		name, after, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		if !ok || name == "" || !strings.HasPrefix(rest, "{") {
			return nil, fmt.Errorf("topic: in %q, $ must begin ${column} or be written $$", template)
		}
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String()})
			text.Reset()
		}
		parts = append(parts, part{column: name})
		rest = after
	}
	if text.Len() > 0 {
		parts = append(parts, part{text: text.String()})
	}
	return parts, nil
}

// illegalTopic says why Kafka, or we, would not take name as a topic; "" if it is legal.
// Names that begin with two underscores belong to the cluster: a row must not be able to
// write to __consumer_offsets.
func illegalTopic(name []byte) string {
	switch {
	case len(name) == 0:
		return "is empty"
	case len(name) > maxTopicLength:
		return fmt.Sprintf("has %d characters, Kafka allows %d", len(name), maxTopicLength)
	case string(name) == "." || string(name) == "..":
		return "is reserved"
	case len(name) >= 2 && name[0] == '_' && name[1] == '_':
		return "begins with __, which is reserved for the cluster's own topics"
	}
	for _, c := range name {
		if !legalTopicByte(c) {
			return fmt.Sprintf("contains %q; Kafka allows letters, digits, '.', '_' and '-'", c)
		}
	}
	return ""
}

func legalTopicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

// A topicCache gives every topic one string, so that a record needs none of its own, and the
// rules are applied to a name once. Only what gives a legal name gets in.
type topicCache struct {
	rules    []*Rule
	reserved []string
	names    map[string]string // by what the template gives
}

// newTopicCache returns an empty topicCache, or the first rule of cfg that cannot be used.
func newTopicCache(cfg Config) (topicCache, error) {
	c := topicCache{reserved: cfg.Reserved, names: make(map[string]string)}
	for _, rule := range cfg.TopicRules {
		parsed, err := ParseRule(rule.Match, rule.Replace)
		if err != nil {
			return c, err
		}
		c.rules = append(c.rules, parsed)
	}
	return c, nil
}

// illegal says why no record may go to a topic; "" if one may.
func (c *topicCache) illegal(topic string) string {
	if illegal := illegalTopic([]byte(topic)); illegal != "" {
		return illegal
	}
	if slices.Contains(c.reserved, topic) {
		return "is one of the relay's own (position_topic, dead_letter_topic)"
	}
	return ""
}

// intern returns the topic that the rules make of name, or why it is not legal.
func (c *topicCache) intern(name []byte) (topic, illegal string) {
	if s, ok := c.names[string(name)]; ok {
		return s, ""
	}
	before := string(name)
	topic = before
	for i, rule := range c.rules {
		var err error
		if topic, err = rule.apply(topic); err != nil {
			return "", fmt.Sprintf("cannot be rewritten by outbox.topic_rules[%d]: %v", i, err)
		}
	}
	if illegal := c.illegal(topic); illegal != "" {
		return "", illegal
	}
	if len(c.names) >= topicCacheSize {
		clear(c.names)
	}
	c.names[before] = topic
	return topic, ""
}

// FixedTopic returns the topic of every row, empty if it depends on the row's columns or is illegal.
func (cfg Config) FixedTopic() string {
	topic, _ := cfg.fixedTopic()
	return topic
}

// IllegalTopic says why no row can be delivered: the topic does not depend on the row, and no record may
// go there. It returns "" if one may, and if the topic depends on the row.
func (cfg Config) IllegalTopic() string {
	_, illegal := cfg.fixedTopic()
	return illegal
}

// fixedTopic returns the topic of every row, or why no record may go there; neither if it depends on the
// row's columns, or the template or a rule is wrong.
func (cfg Config) fixedTopic() (topic, illegal string) {
	parts, err := parseTemplate(cfg.Topic)
	if err != nil || len(parts) != 1 || parts[0].column != "" {
		return "", ""
	}
	topics, err := newTopicCache(cfg)
	if err != nil {
		return "", ""
	}
	return topics.intern([]byte(parts[0].text))
}

// TopicPrefix returns the text that the topic of every row begins with, empty if rows decide that.
// Rules may rewrite any part of a name.
func (cfg Config) TopicPrefix() string {
	if fixed := cfg.FixedTopic(); fixed != "" {
		return fixed
	}
	parts, err := parseTemplate(cfg.Topic)
	if err != nil || len(cfg.TopicRules) > 0 {
		return ""
	}
	return parts[0].text
}

// CheckTopic returns an error if no record may go to a topic, whatever named it.
func (r *Router) CheckTopic(topic string) error {
	if illegal := r.topics.illegal(topic); illegal != "" {
		return fmt.Errorf("topic %q %s", topic, illegal)
	}
	return nil
}
