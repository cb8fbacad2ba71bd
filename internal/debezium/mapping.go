package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A group is a section of the mapping table.
type group struct {
	title string
	rules []rule
}

// A rule is a row of the mapping table: it says how a key is imported.
//
// In a key, {router} and similar parts mean the alias of the transform with that role. A final * means any
// rest of the key. The first matching rule applies.
type rule struct {
	key      string
	ours     string    // key of our configuration; empty: none
	sink     string    // the sink of Debezium Server that it is about; empty: any
	verdicts []verdict // possible verdicts
	doc      string    // one line of Markdown

	// apply imports the value and returns the verdict and one sentence. If it is nil, the verdict is
	// the only one of verdicts, and the sentence is doc.
	apply func(m *mapping, e entry) (verdict, string)

	// absent returns the finding if the key is absent; an empty sentence means none.
	absent func(m *mapping) (verdict, string)
}

// mappingTable returns all known keys.
func mappingTable() []group {
	return []group{
		{"Connector and database", connectionRules()},
		{"Slot and publication", slotRules()},
		{"Tables, columns and messages", tableRules()},
		{"First copy", snapshotRules()},
		{"Streaming", streamingRules()},
		{"How values are written", typeRules()},
		{"Outbox event router", routerRules()},
		{"Converters", converterRules()},
		{"Transforms and predicates", chainRules()},
		{"Kafka Connect", connectRules()},
		{"Kafka", forSink(sinkKafka, producerRules()...)},
		{"Debezium Server", serverRules()},
		{"Left over", leftoverRules()},
	}
}

// A mapping is the state of an import.
type mapping struct {
	opts    Options
	in      *Input
	entries map[string]entry
	worker  map[string]entry
	chain   chain
	out     file
	report  Report
	refs    references

	dsn      map[string]string // parameters of source.dsn
	extras   debeziumFile      // out.Debezium, unless it is empty
	tables   []tableName       // the known outbox tables
	lacking  []tableName       // tables that the connector captures, without a column of the router
	resolved bool              // tables were read from the server
	renames  []renaming        // from transforms after the router
}

// value returns the value of a key, or "" if it is absent.
func (m *mapping) value(key string) string { return m.entries[key].value }

func (m *mapping) has(key string) bool {
	_, ok := m.entries[key]
	return ok
}

// router returns the value of an option of the event router.
func (m *mapping) router(option string) string {
	return m.value("transforms." + m.chain.router + "." + option)
}

// find adds a finding about a key.
func (m *mapping) find(key string, v verdict, format string, args ...any) {
	m.report.findings = append(m.report.findings, Finding{key: key, verdict: v, text: fmt.Sprintf(format, args...)})
}

// apply applies the table, and then adds findings for unknown keys.
func (m *mapping) apply() {
	left := maps.Clone(m.entries)
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			if !m.hasSink(r) {
				continue
			}
			keys := m.chain.keysOf(r.key, left)
			for _, key := range keys {
				e := left[key]
				delete(left, key)
				m.applyRule(r, e)
			}
			if name := m.chain.fill(r.key); len(keys) == 0 && r.absent != nil && name != "" && !m.has(name) {
				if v, text := r.absent(m); text != "" {
					m.find(name+" (default)", v, "%s", text)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(left)) {
		v, text := m.unknown()
		m.found(left[key], v, text)
	}
}

// found adds the finding about an entry. A rejection begins with its line.
func (m *mapping) found(e entry, v verdict, text string) {
	if v == rejected {
		text = e.where() + text
	}
	m.find(e.shown, v, "%s%s", text, e.lost)
}

// unknown returns the verdict on an unknown key.
func (m *mapping) unknown() (verdict, string) {
	if m.opts.AllowUnknown {
		return noted, "unknown, omitted because of --allow-unknown"
	}
	return rejected, "unknown: Debezium may ignore it, but if it changes records so must this relay; remove it, or ignore it with --allow-unknown"
}

func (m *mapping) applyRule(r rule, e entry) {
	if r.apply == nil {
		m.found(e, r.verdicts[0], plainText(r.doc))
		return
	}
	if text := unfilled(e); text != "" {
		m.found(e, rejected, text)
		return
	}
	if invalidBlank(r.key, e) {
		m.found(e, rejected, "empty, with which Debezium does not work: write a value, or remove it")
		return
	}
	v, text := r.apply(m, e)
	m.found(e, v, text)
}

// plainText returns the doc of a rule as a sentence without Markdown.
func plainText(doc string) string {
	text := strings.TrimSuffix(strings.ReplaceAll(doc, "`", ""), ".")
	first, _, _ := strings.Cut(text, " ")
	name := slices.Contains([]string{"Kafka", "Debezium", "Java", "Kerberos", "Amazon", "Postgres"}, strings.TrimSuffix(first, "'s"))
	if name || strings.ToLower(first[1:]) != first[1:] { // the last: such as TLS
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// Shorthands for rules.

func note(key, doc string) rule { return rule{key: key, verdicts: []verdict{noted}, doc: doc} }

func refuse(key, doc string) rule { return rule{key: key, verdicts: []verdict{rejected}, doc: doc} }

// text returns a rule that copies the value.
func text(key, ours string, field func(*mapping) *string) rule {
	return rule{
		key: key, ours: ours, verdicts: []verdict{same}, doc: "The same.",
		apply: func(m *mapping, e entry) (verdict, string) {
			*field(m) = e.value
			return same, ours
		},
	}
}

// choices returns a rule for some values, each with its value of the field.
func choices(key, ours string, meaning map[string]string, field func(*mapping) *string) rule {
	return rule{
		key: key, ours: ours, verdicts: []verdict{same, rejected}, doc: "The same; takes " + orList(slices.Sorted(maps.Keys(meaning))) + ".",
		apply: func(m *mapping, e entry) (verdict, string) {
			is, ok := meaning[strings.ToLower(e.value)]
			if !ok {
				return rejected, fmt.Sprintf("%q is not one of %s", e.value, strings.Join(slices.Sorted(maps.Keys(meaning)), ", "))
			}
			*field(m) = is
			return same, ours + ": " + is
		},
	}
}

func orList(items []string) string { return "`" + strings.Join(items, "`, `") + "`" }

// boolean reads what Connect takes for a boolean.
func boolean(e entry) (value bool, refusal string) {
	switch strings.ToLower(e.value) {
	case "true":
		return true, ""
	case "false":
		return false, ""
	}
	return false, fmt.Sprintf("%q is neither true nor false", e.value)
}

// onOff is a rule about a boolean.
func onOff(key, ours, doc string, field func(*mapping) *bool) rule {
	return rule{
		key: key, ours: ours, verdicts: []verdict{same, rejected}, doc: doc,
		apply: func(m *mapping, e entry) (verdict, string) {
			on, refusal := boolean(e)
			if refusal != "" {
				return rejected, refusal
			}
			*field(m) = on
			return same, fmt.Sprintf("%s: %t", ours, on)
		},
	}
}

// only is a rule about a boolean that can have one value; refusal says what the other would mean.
func only(key string, value bool, doc, refusal string) rule {
	return rule{
		key: key, verdicts: []verdict{noted, rejected}, doc: doc,
		apply: func(_ *mapping, e entry) (verdict, string) {
			if on, wrong := boolean(e); on != value || wrong != "" {
				return rejected, fmt.Sprintf("%s; only %t is supported", refusal, value)
			}
			return noted, plainText(doc)
		},
	}
}

// unless is a rule about an option that is not carried over, which matters unless it has the value it
// has by default.
func unless(value, key, doc, difference string) rule {
	return rule{
		key: key, verdicts: []verdict{noted, partial}, doc: doc,
		apply: func(_ *mapping, e entry) (verdict, string) {
			if strings.EqualFold(e.value, value) {
				return noted, plainText(doc)
			}
			return partial, difference
		},
	}
}
