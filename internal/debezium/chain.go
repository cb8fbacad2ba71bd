package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Classes of transforms and predicates.
const (
	eventRouter     = "io.debezium.transforms.outbox.EventRouter"
	decodeMessages  = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"
	insertHeader    = "org.apache.kafka.connect.transforms.InsertHeader"
	regexRouter     = "org.apache.kafka.connect.transforms.RegexRouter"
	extractNewState = "io.debezium.transforms.ExtractNewRecordState"
	topicMatches    = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
	schemaNaming    = "io.debezium.schema.SchemaTopicNamingStrategy" // names the topics of change events, by default
)

// A chain has the transforms of the connector by their role.
type chain struct {
	router  string   // alias of the event router; empty: none
	decode  string   // alias of the transform that makes rows from logical messages; empty: none
	headers []string // aliases after the router that add a header
	renames []string // aliases after the router that rename the topic
	others  []string // aliases that cannot be imported

	order []string // all of them
}

// chainOf returns the chain of a configuration.
func chainOf(entries map[string]entry) chain {
	c := chain{order: splitList(entries["transforms"].value)}
	for _, alias := range c.order {
		switch class := entries["transforms."+alias+".type"].value; {
		case class == eventRouter && c.router == "":
			c.router = alias
		case class == decodeMessages && c.router == "" && c.decode == "":
			c.decode = alias
		case class == insertHeader && c.router != "":
			c.headers = append(c.headers, alias)
		case class == regexRouter && c.router != "":
			c.renames = append(c.renames, alias)
		default:
			c.others = append(c.others, alias)
		}
	}
	return c
}

// foreign returns why a connector is not an outbox connector, or "". A transform without a class may be the router.
func (c chain) foreign(entries map[string]entry) string {
	if c.router != "" {
		return ""
	}
	var classes []string
	for _, alias := range c.order {
		e := entries["transforms."+alias+".type"]
		if e.value == "" || unfilled(e) != "" {
			return ""
		}
		classes = append(classes, e.value)
	}
	among := ""
	if len(classes) > 0 {
		among = " among its transforms (" + strings.Join(classes, ", ") + ")"
	}
	return "there is no " + eventRouter + among + ": this is not an outbox connector, and only those can be imported"
}

// aliases returns the transforms for a part of a key in braces, such as {router}.
func (c chain) aliases(part string) []string {
	switch part {
	case "router":
		return slices.DeleteFunc([]string{c.router}, func(s string) bool { return s == "" })
	case "decode":
		return slices.DeleteFunc([]string{c.decode}, func(s string) bool { return s == "" })
	case "header":
		return c.headers
	case "rename":
		return c.renames
	case "other":
		return c.others
	}
	return nil
}

// patterns returns the key of a rule with its part in braces replaced by each alias.
func (c chain) patterns(key string) []string {
	before, rest, ok := strings.Cut(key, "{")
	if !ok {
		return []string{key}
	}
	part, after, _ := strings.Cut(rest, "}")
	if part == "predicate" {
		return []string{before + "*" + after}
	}
	var out []string
	for _, alias := range c.aliases(part) {
		out = append(out, before+alias+after)
	}
	return out
}

// fill returns the only key for a rule without wildcard, or "" if there is none.
func (c chain) fill(key string) string {
	if p := c.patterns(key); len(p) == 1 && !strings.Contains(p[0], "*") {
		return p[0]
	}
	return ""
}

// keysOf returns the keys of entries to which a rule applies, in the order of the transforms.
func (c chain) keysOf(key string, entries map[string]entry) []string {
	var out []string
	for _, pattern := range c.patterns(key) {
		before, after, wild := strings.Cut(pattern, "*")
		if !wild {
			if _, ok := entries[pattern]; ok {
				out = append(out, pattern)
			}
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			if len(k) >= len(before)+len(after) && strings.HasPrefix(k, before) && strings.HasSuffix(k, after) {
				out = append(out, k)
			}
		}
	}
	return out
}

func chainRules() []rule {
	return []rule{
		{
			key: "transforms", ours: "outbox", verdicts: []verdict{same, rejected},
			doc: "One outbox event router. Before it, at most DecodeLogicalDecodingMessageContent; after it, InsertHeader and RegexRouter.",
			apply: func(m *mapping, _ entry) (verdict, string) {
				for _, alias := range m.chain.order {
					if m.value("transforms."+alias+".type") == "" {
						return rejected, "transform " + alias + " has no type"
					}
				}
				return same, "outbox"
			},
		},
		{key: "transforms.{router}.type", ours: "outbox", verdicts: []verdict{same}, doc: "The event router."},
		{key: "transforms.{router}.predicate", verdicts: []verdict{same, partial, rejected}, doc: "`TopicNameMatches`. Tables whose topics it does not match are not outbox tables.", apply: applyPredicate},
		only("transforms.{router}.negate", false, "`false`: the router applies to the rows of the predicate.", "the router would be applied to all but the predicate's rows"),
		note("predicates", "Predicates apply to the transforms that name them."),
		note("predicates.{predicate}.type", "Its verdict is at the transform that names the predicate."),
		note("predicates.{predicate}.pattern", "Its verdict is at the transform that names the predicate."),
		{
			key: "transforms.{decode}.type", ours: "outbox.messages", verdicts: []verdict{partial, rejected},
			doc:   "Rows are logical messages with the prefixes in `message.prefix.include.list` or `--messages`; without either, with any prefix.",
			apply: applyDecode,
		},
		{
			key: "transforms.{decode}.fields.null.include", ours: "debezium.expand_nulls", verdicts: []verdict{same, noted, rejected}, doc: "Null members of messages.",
			apply: func(m *mapping, e entry) (verdict, string) {
				on, refusal := boolean(e)
				switch {
				case refusal != "":
					return rejected, refusal
				case m.expands() && on != m.keepsNulls():
					return rejected, nullsDiffer
				case !on:
					return noted, "null members are omitted; if a column of the router is one, Debezium fails, and the relay sends NULL"
				}
				m.extras.ExpandNulls = true
				return same, "debezium.expand_nulls: true"
			},
		},
		needs("transforms.{header}.type", "headers.static", "InsertHeader after the router: a header of every record.", "header", "value.literal"),
		{key: "transforms.{header}.header", ours: "headers.static", verdicts: []verdict{same, rejected}, doc: "The header's name.", apply: applyStaticHeader},
		{
			key: "transforms.{header}.value.literal", ours: "headers.static", verdicts: []verdict{same, partial}, doc: "The header's text.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch h := m.out.Outbox.Encoding.Headers; {
				case h != encSimple && h != encString:
					return partial, "headers.static, as text: Kafka Connect would give it the JSON type that it looks like"
				case !isCanonical(e.value):
					return partial, "headers.static, as it is: Kafka Connect reads it as a number, a date, a list, a map, null or a text without spaces around it, and may write it in another form; write the form that is in the topic"
				}
				return same, "headers.static"
			},
		},
		needs("transforms.{rename}.type", "outbox.topic_rules", "RegexRouter after the router: another topic rule.", "regex", "replacement"),
		{key: "transforms.{rename}.regex", ours: "outbox.topic_rules", verdicts: []verdict{same, rejected}, doc: "A Java regular expression.", apply: applyRename},
		{key: "transforms.{rename}.replacement", ours: "outbox.topic_rules", verdicts: []verdict{same, rejected}, doc: "A Java replacement.", apply: applyRename},
		{
			key: "transforms.{other}.type", verdicts: []verdict{noted, partial, rejected},
			doc: "Any other transform is not supported, unless it is before the router and its predicate leaves out the outbox tables. ExtractNewRecordState after the router changes no record, but by default drops those with a NULL value.",
			apply: func(m *mapping, e entry) (verdict, string) {
				alias := e.key[len("transforms.") : len(e.key)-len(".type")]
				router := slices.Index(m.chain.order, m.chain.router)
				behind := router >= 0 && slices.Index(m.chain.order, alias) > router
				switch {
				case router >= 0 && !behind && m.bypasses(alias):
					return noted, "its predicate leaves out the rows of the outbox tables"
				case behind && e.value == extractNewState:
					return m.extractState(alias)
				}
				switch e.value {
				case insertHeader, regexRouter:
					return rejected, e.value + " is supported after the event router, not before it"
				case extractNewState:
					return rejected, e.value + " before the event router removes what the router needs; give it a predicate that leaves out the outbox tables"
				case eventRouter:
					return rejected, "a second event router: one relay has one; import a connector for each"
				case decodeMessages:
					return rejected, e.value + " is supported once, before the event router"
				}
				return rejected, fmt.Sprintf("transform %s is not supported; remove it, or keep Debezium for this connector", e.value)
			},
		},
		note("transforms.{other}.*", "Part of the verdict on the transform's type."),
		refuse("transforms.{header}.predicate", "A predicate on a transform after the router. Only the router's own predicate is supported."),
		refuse("transforms.{rename}.predicate", "A predicate on a transform after the router. Only the router's own predicate is supported."),
		refuse("transforms.{decode}.predicate", "A predicate on the transform before the router. Only the router's own predicate is supported."),
	}
}

// isCanonical reports whether Kafka Connect certainly writes the literal of an InsertHeader as it is. It reads it as a value:
// 007 becomes 7, 12:30 becomes 12, a date has another form with StringConverter.
func isCanonical(literal string) bool {
	number := compileOnce(`^(?:0|-?[1-9][0-9]{0,17})$`).MatchString(literal)
	rewritten := compileOnce(`^(?:[-+.0-9][-+.:0-9eETZ]*|[-+.0-9].*[\[\]{},:"].*|[\[{].*|null)$`).MatchString(literal)
	return strings.TrimSpace(literal) == literal && (number || !rewritten)
}

// nullsDiffer says that one setting of ours has two in Debezium, which have different values.
const nullsDiffer = "null members of a message follow fields.null.include (default false), and those of a payload that is JSON in a string table.json.payload.null.behavior" +
	" (default ignore): the relay has one setting for both, so let both keep them, or neither"

// keepsNulls reports whether the router keeps the null members of a payload that it expands.
func (m *mapping) keepsNulls() bool {
	return strings.EqualFold(m.router("table.json.payload.null.behavior"), "optional_bytes")
}

// routerOptions returns the options of the event router.
func routerOptions() []string {
	var out []string
	for _, r := range routerRules() {
		if option, ok := strings.CutPrefix(r.key, "transforms.{router}."); ok && !strings.Contains(option, "*") {
			out = append(out, option)
		}
	}
	return out
}

// extractState imports ExtractNewRecordState after the router. It leaves a routed record as it is, because that is no
// change event, but takes one without a value for a tombstone, which it drops by default.
func (m *mapping) extractState(alias string) (verdict, string) {
	at := "transforms." + alias + "."
	if strings.EqualFold(m.value(at+"drop.tombstones"), "false") || strings.EqualFold(m.value(at+"delete.tombstone.handling.mode"), "rewrite-with-tombstone") {
		return noted, "a routed record is no change event, and stays as it is"
	}
	const dropped = "it drops routed records with a null value"
	if on, _ := boolean(entry{value: m.router("route.tombstone.on.empty.payload")}); on {
		return rejected, dropped + ", and with route.tombstone.on.empty.payload the relay would send these tombstones: remove one of them"
	}
	return partial, "a routed record is no change event, and stays as it is; but " + dropped + ", which the relay sends"
}

// needs returns a rule for the type of a transform that requires some of its options.
func needs(key, ours, doc string, options ...string) rule {
	return rule{
		key: key, ours: ours, verdicts: []verdict{same, rejected}, doc: doc,
		apply: func(m *mapping, e entry) (verdict, string) {
			for _, option := range options {
				if at := strings.TrimSuffix(e.key, "type") + option; !m.has(at) {
					return rejected, at + " is required"
				}
			}
			return same, ours
		},
	}
}
