package encode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// topicCacheSize is the maximum number of names in a [topicCache]. Each needs its bytes twice. With more
// topics, some strings are allocated again.
const topicCacheSize = 16_384

// A part of a topic template is literal text or, if column is not empty, the value of a column, given by
// role or name.
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
			return nil, fmt.Errorf("topic: in %q, $ must start ${column} or be written as $$", template)
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

// A topicCache has one string for every topic, so that records do not allocate one and rules are applied to
// a name once. It has legal names only.
type topicCache struct {
	broker   Names
	rules    []*Rule
	reserved []string
	names    map[string]string // by the result of the template
}

// newTopicCache returns an empty topicCache, or an error for the first invalid rule of cfg.
func newTopicCache(cfg Config) (topicCache, error) {
	c := topicCache{broker: cfg.Names, reserved: cfg.Reserved, names: make(map[string]string)}
	if c.broker == nil {
		return c, errors.New("names: the broker's rules for names are needed")
	}
	for _, rule := range cfg.TopicRules {
		parsed, err := ParseRule(rule.Match, rule.Replace)
		if err != nil {
			return c, err
		}
		c.rules = append(c.rules, parsed)
	}
	return c, nil
}

// illegal returns why no record may be sent to a topic, or "" if it may.
func (c *topicCache) illegal(topic string) string {
	if illegal := c.broker.Illegal(topic); illegal != "" {
		return illegal
	}
	if slices.Contains(c.reserved, topic) {
		return "is one of the relay's own (position_topic, dead_letter_topic)"
	}
	return ""
}

// intern applies the rules to name and returns the topic, or why it is not legal.
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

// FixedTopic returns the topic of every row. It is empty if the topic depends on the row or is illegal.
func (cfg Config) FixedTopic() string {
	topic, _ := cfg.fixedTopic()
	return topic
}

// IllegalTopic returns why no record may be sent to the topic of every row. It returns "" if records may, or
// if the topic depends on the row.
func (cfg Config) IllegalTopic() string {
	_, illegal := cfg.fixedTopic()
	return illegal
}

// IllegalFor returns why no record may be sent to the topic of a row whose columns all have this value. It returns "" if
// records may, or if the template or a rule is invalid.
func (cfg Config) IllegalFor(value string) string {
	parts, err := parseTemplate(cfg.Topic)
	if err != nil {
		return ""
	}
	topics, err := newTopicCache(cfg)
	if err != nil {
		return ""
	}
	var topic []byte
	for _, p := range parts {
		if topic = append(topic, p.text...); p.column != "" {
			topic = append(topic, value...)
		}
	}
	_, illegal := topics.intern(topic)
	return illegal
}

// fixedTopic returns the topic of every row, or why no record may be sent there. Both are empty if the topic
// depends on the row, or if the template or a rule is invalid.
func (cfg Config) fixedTopic() (topic, illegal string) {
	parts, err := parseTemplate(cfg.Topic)
	if err != nil || len(parts) != 1 || parts[0].column != "" {
		return "", ""
	}
	topics, err := newTopicCache(cfg)
	if err != nil {
		return "", ""
	}
	topic, illegal = topics.intern([]byte(parts[0].text))
	if illegal != "" && strings.Contains(parts[0].text, "{") {
		illegal += "; a column is written ${column}"
	}
	return topic, illegal
}

// TopicPrefix returns the common prefix of all topics. It is empty if the template starts with a column, or
// if there are rules, which may change any part of a name.
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

// CheckTopic returns an error if no record may be sent to topic.
func (r *Router) CheckTopic(topic string) error {
	if illegal := r.topics.illegal(topic); illegal != "" {
		return fmt.Errorf("topic %q %s", topic, illegal)
	}
	return nil
}
