package debezium

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// Defaults of the router's options.
const (
	defaultRegex       = "(?<routedByValue>.*)"
	defaultReplacement = "outbox.event.${routedByValue}"
)

// placementOption is the option that adds columns to the record.
const placementOption = "table.fields.additional.placement"

// routerColumns returns the options that name a column, with their defaults.
func routerColumns() map[string]string {
	return map[string]string{
		"table.field.event.id": "id", "table.field.event.key": "aggregateid", "route.by.field": "aggregatetype", "table.field.event.payload": "payload",
		"table.field.event.timestamp": "", "table.field.event.schema.version": "",
	}
}

func routerRules() []rule {
	return slices.Concat(columnRules(), topicRules(), payloadRules(), []rule{
		{
			key: "transforms.{router}.table.op.invalid.behavior", ours: "outbox.on_update", verdicts: []verdict{same, rejected},
			doc: "`warn` (the default), `error`; `fatal` is `stop`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				behaviour, ok := map[string]string{"warn": "warn", "error": "error", "fatal": "stop"}[strings.ToLower(e.value)]
				if !ok {
					return rejected, fmt.Sprintf("%q is not one of warn, error, fatal", e.value)
				}
				m.out.Outbox.OnUpdate = behaviour
				return same, "outbox.on_update: " + behaviour
			},
		},
		note("transforms.{router}.tracing.*", "Kafka Connect needs OpenTelemetry for trace headers. The relay reads them from `outbox.columns.trace_context`, and exports spans to `tracing.endpoint`."),
	})
}

func columnRules() []rule {
	column := func(option, ours string, field func(*columnsFile) *string) rule {
		r := text("transforms.{router}."+option, "outbox.columns."+ours, func(m *mapping) *string { return field(&m.out.Outbox.Columns) })
		if routerColumns()[option] == "" {
			return r
		}
		r.verdicts = append(r.verdicts, rejected)
		set := r.apply
		r.apply = func(m *mapping, e entry) (verdict, string) {
			if e.value == "" {
				return rejected, "a column's name is required, by Debezium, too"
			}
			return set(m, e)
		}
		return r
	}
	timestamp := column("table.field.event.timestamp", "timestamp", func(c *columnsFile) *string { return &c.Timestamp })
	copyTimestamp := timestamp.apply
	timestamp.verdicts, timestamp.doc = []verdict{same, partial, noted}, "The same, also with `timestamptz`. Without it the record has the commit time; in Debezium, the time of processing."
	timestamp.apply = func(m *mapping, e entry) (verdict, string) {
		if m.in.server {
			return partial, "omitted, because Debezium Server drops it; records have the commit time"
		}
		return copyTimestamp(m, e)
	}
	timestamp.absent = func(*mapping) (verdict, string) {
		return noted, "records have the time of their transaction's commit, and not of their processing"
	}
	version := column("table.field.event.schema.version", "schema_version", func(c *columnsFile) *string { return &c.SchemaVersion })
	copyVersion := version.apply
	version.verdicts, version.doc = []verdict{same, noted}, "With an envelope that has a schema. Otherwise Debezium ignores it too."
	version.apply = func(m *mapping, e entry) (verdict, string) {
		if !m.placesEnvelope() {
			return noted, "without an envelope Debezium does not look at it either"
		}
		return copyVersion(m, e)
	}
	return []rule{
		column("table.field.event.id", "id", func(c *columnsFile) *string { return &c.ID }),
		column("table.field.event.key", "key", func(c *columnsFile) *string { return &c.Key }),
		column("route.by.field", "route", func(c *columnsFile) *string { return &c.Route }),
		column("table.field.event.payload", "payload", func(c *columnsFile) *string { return &c.Payload }),
		note("transforms.{router}.table.field.event.type", "Debezium declares this option but does not use it. Use a placement for a type header."),
		timestamp, version,
		{
			key: "transforms.{router}." + placementOption, ours: "outbox.place", verdicts: []verdict{same, partial, rejected},
			doc:   "`column:header`, `column:envelope` and `column:partition`, with an alias or without.",
			apply: applyPlacements,
		},
		choices("transforms.{router}.table.field.additional.missing", "outbox.on_missing_column", map[string]string{"error": "error", "ignore": "ignore"},
			func(m *mapping) *string { return &m.out.Outbox.OnMissingColumn }),
		{
			key: "transforms.{router}.table.fields.additional.error.on.missing", ours: "outbox.on_missing_column", verdicts: []verdict{partial, noted, rejected},
			doc: "The name of `table.field.additional.missing` before Debezium 3.6, which ignores it.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch _, refusal := boolean(e); {
				case refusal != "":
					return rejected, refusal
				case m.router("table.field.additional.missing") != "":
					return noted, "table.field.additional.missing counts"
				case m.ignoresMissing():
					m.out.Outbox.OnMissingColumn = "ignore"
				}
				return partial, fmt.Sprintf("outbox.on_missing_column: %s; Debezium 3.6 and later ignore this option and stop at a missing column", cmp.Or(m.out.Outbox.OnMissingColumn, "error"))
			},
		},
	}
}

// ignoresMissing reports whether a table may lack a placed column.
func (m *mapping) ignoresMissing() bool {
	if missing := m.router("table.field.additional.missing"); missing != "" {
		return strings.EqualFold(missing, "ignore")
	}
	return strings.EqualFold(m.router("table.fields.additional.error.on.missing"), "false")
}

// placesEnvelope reports whether a column is placed in the envelope.
func (m *mapping) placesEnvelope() bool {
	for _, item := range splitList(m.router(placementOption)) {
		if parts := strings.Split(item, ":"); len(parts) > 1 && strings.EqualFold(strings.TrimSpace(parts[1]), "envelope") {
			return true
		}
	}
	return false
}

func applyPlacements(m *mapping, e entry) (verdict, string) {
	var left []string
	names := []string{encode.IDHeader}
	for _, item := range splitList(e.value) {
		parts := strings.Split(item, ":")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
			return rejected, fmt.Sprintf("%q is not column:placement or column:placement:alias", item)
		}
		p := placeFile{Column: parts[0], To: strings.ToLower(parts[1])}
		if len(parts) == 3 && p.To != "partition" {
			p.As = parts[2]
		}
		switch p.To {
		case "header":
			names = append(names, cmp.Or(p.As, p.Column))
		case "envelope":
		case "partition":
			if m.in.server {
				left = append(left, p.Column)
				continue
			}
		default:
			return rejected, fmt.Sprintf("%q has no placement header, envelope or partition; Debezium fails at the first row", item)
		}
		m.out.Outbox.Place = append(m.out.Outbox.Place, p)
	}
	if len(left) > 0 {
		return partial, "outbox.place, without the partition, which Debezium Server does not pass on: records stay where they were"
	}
	slices.Sort(names)
	if twice := len(names) - len(slices.Compact(names)); twice > 0 {
		return same, "outbox.place; records have this header twice, as before"
	}
	return same, "outbox.place"
}

func topicRules() []rule {
	return []rule{
		{
			key: "transforms.{router}.route.topic.regex", ours: "outbox.topic_rules", verdicts: []verdict{same, rejected},
			doc:   "A Java regular expression. `import` rejects parts without an exact translation, such as nested classes, and names the place.",
			apply: func(m *mapping, _ entry) (verdict, string) { return m.routeRule() },
		},
		{
			key: "transforms.{router}.route.topic.replacement", ours: "outbox.topic", verdicts: []verdict{same, partial, rejected},
			doc:   "A Java replacement. With the default expression it becomes a template. `import` tests the topics of some routes: those that the expressions name, an ordinary and an awkward one.",
			apply: func(m *mapping, _ entry) (verdict, string) { return m.routeRule() },
		},
	}
}

// routeRule imports the two options that make the topic from the route.
func (m *mapping) routeRule() (verdict, string) {
	regex, replacement := m.routeOptions()
	if e, ok := m.entries["transforms."+m.chain.router+".route.topic.regex"]; ok && isBlank(e) {
		m.out.Outbox.Topic = "${route}"
		return same, "outbox.topic: ${route}, as an empty expression matches no route, and leaves it as it is"
	}
	if _, err := encode.ParseRule(regex, replacement); err != nil && strings.Contains(err.Error(), "there is no group ${") {
		return rejected, err.Error() + "; if it is a placeholder, write the value in its place"
	} else if err != nil {
		return rejected, err.Error()
	}
	if len(m.out.Outbox.TopicRules) > 0 {
		return same, "outbox.topic_rules"
	}
	if template, ok := topicTemplate(regex, replacement); ok {
		m.out.Outbox.Topic = template
		return same, "outbox.topic: " + template
	}
	m.out.Outbox.Topic = "${route}"
	m.out.Outbox.TopicRules = []ruleFile{{Match: regex, Replace: replacement}}
	return same, "outbox.topic_rules"
}

func (m *mapping) routeOptions() (regex, replacement string) {
	return cmp.Or(m.router("route.topic.regex"), defaultRegex), cmp.Or(m.router("route.topic.replacement"), defaultReplacement)
}

// topicTemplate returns the template that is equivalent to the default expression with a replacement. Digits after $0 may
// belong to the number of the group.
func topicTemplate(regex, replacement string) (string, bool) {
	if regex != defaultRegex || compileOnce(`\$0\d`).MatchString(replacement) {
		return "", false
	}
	const whole = "\x00"
	text := strings.NewReplacer("${routedByValue}", whole, "$1", whole, "$0", whole, `\$`, "\x01").Replace(replacement)
	if strings.ContainsAny(text, `$\`) {
		return "", false
	}
	return strings.NewReplacer(whole, "${route}", "\x01", "$$").Replace(text), true
}

func applyRename(m *mapping, e entry) (verdict, string) {
	at := e.key[:strings.LastIndexByte(e.key, '.')]
	rule := ruleFile{Match: m.value(at + ".regex"), Replace: m.value(at + ".replacement")}
	if _, err := encode.ParseRule(rule.Match, rule.Replace); err != nil {
		return rejected, err.Error()
	}
	if rule.Match == "" {
		return rejected, "an empty expression matches no topic"
	}
	if !slices.ContainsFunc(m.renames, func(r renaming) bool { return r.transform == at }) {
		m.renames = append(m.renames, renaming{at, rule})
	}
	return same, "outbox.topic_rules"
}

// A renaming is a topic rule from a transform after the router.
type renaming struct {
	transform string
	rule      ruleFile
}

func applyStaticHeader(m *mapping, e entry) (verdict, string) {
	at := e.key[:strings.LastIndexByte(e.key, '.')]
	if e.value == "" || strings.Contains(e.value, "=") {
		return rejected, "not a supported header name; it must not be empty or contain ="
	}
	m.out.Headers.Static = append(m.out.Headers.Static, e.value+"="+m.value(at+".value.literal"))
	return same, "headers.static"
}

func payloadRules() []rule {
	return []rule{
		onOff("transforms.{router}.route.tombstone.on.empty.payload", "outbox.tombstone_on_empty", "The same.", func(m *mapping) *bool { return &m.out.Outbox.TombstoneOnEmpty }),
		{
			key: "transforms.{router}.table.expand.json.payload", ours: "debezium.expand_payload", verdicts: []verdict{same, partial, rejected},
			doc: "The same members. If Debezium fails or loses some, the relay keeps the document; with `--exact` such a row is a bad row.",
			apply: func(m *mapping, e entry) (verdict, string) {
				on, refusal := boolean(e)
				switch {
				case refusal != "":
					return rejected, refusal
				case !on:
					return same, "debezium.expand_payload: false"
				}
				m.extras.ExpandPayload = true
				if m.opts.Exact {
					return same, "debezium.expand_payload: true; a document that Debezium rejects or damages is a bad row"
				}
				return partial, "debezium.expand_payload: true; a document that Debezium fails at or damages is kept as it is"
			},
		},
		keepNulls(),
		keep("table.json.payload.empty.array.behavior", "debezium.expand_empty_arrays", "optional_string", func(m *mapping) *bool { return &m.extras.ExpandEmptyArrays }),
		{
			key: "transforms.{router}.field.name.adjustment.mode", ours: "debezium.field_names", verdicts: []verdict{same, partial, noted, rejected},
			doc: "For the members of an expanded payload. Renamed members keep their values, which Debezium loses; with `--exact` such a row is a bad row.",
			apply: func(m *mapping, e entry) (verdict, string) {
				mode := strings.ToLower(e.value)
				if !slices.Contains([]string{"none", "avro", "avro_unicode"}, mode) {
					return rejected, fmt.Sprintf("%q is not one of none, avro, avro_unicode", e.value)
				}
				if !m.expands() {
					return noted, "without table.expand.json.payload there are no names to adjust"
				}
				m.extras.FieldNames = mode
				if mode == "none" || m.opts.Exact {
					return same, "debezium.field_names: " + mode
				}
				return partial, "debezium.field_names: " + mode + "; renamed members keep their values, which Debezium loses"
			},
		},
	}
}

// keep returns a rule for members without a type: they are ignored, or kept with the type that Debezium
// calls kept.
func keep(option, ours, kept string, field func(*mapping) *bool) rule {
	return rule{
		key: "transforms.{router}." + option, ours: ours, verdicts: []verdict{same, noted, rejected}, doc: "`ignore` (the default), `" + kept + "`, with an expanded payload.",
		apply: func(m *mapping, e entry) (verdict, string) {
			value := strings.ToLower(e.value)
			switch {
			case value != "ignore" && value != kept:
				return rejected, fmt.Sprintf("%q is not one of ignore, %s", e.value, kept)
			case !m.expands():
				return noted, "has no effect without table.expand.json.payload"
			}
			*field(m) = value == kept
			return same, ours + ": " + strconv.FormatBool(value == kept)
		},
	}
}

// keepNulls returns the rule for null members.
func keepNulls() rule {
	r := keep("table.json.payload.null.behavior", "debezium.expand_nulls", "optional_bytes", func(m *mapping) *bool { return &m.extras.ExpandNulls })
	set := r.apply
	r.apply = func(m *mapping, e entry) (verdict, string) {
		if decodes := m.chain.decode != ""; decodes && m.expands() && m.keepsNulls() && !m.has("transforms."+m.chain.decode+".fields.null.include") {
			return rejected, nullsDiffer
		}
		return set(m, e)
	}
	return r
}

// number parses an integer of at least least.
func number(e entry, least int) (n int, refusal string) {
	n, err := strconv.Atoi(e.value)
	if err != nil || n < least {
		return 0, fmt.Sprintf("%q is not a whole number of at least %d", e.value, least)
	}
	return n, ""
}
