package encode

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// The router rejects a row or message whose topic is one of the relay's own. That holds for any template, and if a
// topic rule produces the name.
func TestReservedTopics(t *testing.T) {
	for template, aggregate := range map[string]string{
		"${route}": "outbox-cdc.positions", "outbox-cdc.${route}": "positions", "x-${route}": "positions",
	} {
		r, err := New(defaultConfig(func(c *Config) {
			c.Topic, c.Reserved = template, []string{"outbox-cdc.positions", "dead"}
			c.TopicRules = []TopicRule{{Match: "x-(.*)", Replace: "outbox-cdc.$1"}}
		}))
		if err != nil {
			t.Fatal(err)
		}
		var rec sink.Record
		refusals := []error{
			r.Route(tx, 0, row(outboxTable(), map[string]string{"aggregatetype": aggregate}), &rec),
			r.RouteMessage(tx, 0, &decoder.LogicalMessage{Content: []byte(`{"id": "1", "aggregatetype": "` + aggregate + `", "aggregateid": "k", "type": "T", "payload": ""}`)}, &rec),
		}
		for _, err := range refusals {
			if _, ok := errors.AsType[*RowError](err); !ok || !strings.Contains(err.Error(), "is one of the relay's own") {
				t.Errorf("%s: %v", template, err)
			}
		}
		for topic, free := range map[string]bool{"orders": true, "dead": false, "outbox-cdc.positions": false, "__consumer_offsets": false, "": false} {
			if err := r.CheckTopic(topic); (err == nil) != free {
				t.Errorf("topic %q: %v", topic, err)
			}
		}
	}
	for template, rules := range map[string][]TopicRule{"dead": nil, "alive": {{Match: ".*", Replace: "dead"}}} {
		_, err := New(defaultConfig(func(c *Config) { c.Topic, c.TopicRules, c.Reserved = template, rules, []string{"dead"} }))
		if err == nil || !strings.Contains(err.Error(), "topic: ") || !strings.Contains(err.Error(), "relay's own") {
			t.Errorf("the fixed topic %s: %v", template, err)
		}
	}
}

// A template with a brace and without a dollar has no column.
func TestColumnWithoutDollar(t *testing.T) {
	cfg := Config{Names: kafka.Names{}, Topic: "orders.{route}"}
	if got := cfg.IllegalTopic(); !strings.HasSuffix(got, "; a column is written ${column}") {
		t.Error(got)
	}
	if cfg.Topic = "or ders"; strings.Contains(cfg.IllegalTopic(), "column") {
		t.Error(cfg.IllegalTopic())
	}
}

// TopicPrefix returns the part of the topic name that is the same for all rows.
func TestTopicPrefix(t *testing.T) {
	for template, want := range map[string]string{"orders": "orders", "": "outbox.event.", "a.${route}.b": "a.", "${route}": "", "${route}.b": ""} {
		if got := (Config{Names: kafka.Names{}, Topic: template}).TopicPrefix(); got != want {
			t.Errorf("%q: prefix %q, want %q", template, got, want)
		}
	}
	if got := (Config{Names: kafka.Names{}, Topic: "a.${route}", TopicRules: []TopicRule{{Match: ".*", Replace: "b"}}}).TopicPrefix(); got != "" {
		t.Errorf("with rules: prefix %q", got)
	}
}

// IllegalFor finds literal parts of a template that the broker rejects, also after the rules.
func TestIllegalFor(t *testing.T) {
	for topic, want := range map[string]string{"events.${route}": "", "@ENV@.${route}": "contains '@'", "${route}": "", "__${route}": "begins with __"} {
		cfg := Config{Names: kafka.Names{}, Topic: topic}
		if got := cfg.IllegalFor("Order"); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", topic, got, want)
		}
	}
	cfg := Config{Names: kafka.Names{}, Topic: "${route}", TopicRules: []TopicRule{{Match: "(.*)", Replace: "a/$1"}}}
	if got := cfg.IllegalFor("Order"); !strings.HasPrefix(got, "contains '/'") {
		t.Errorf("with a rule: %q", got)
	}
}
