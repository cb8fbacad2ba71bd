package debezium

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
)

// Options configure an import.
type Options struct {
	// Worker has the settings of the Connect worker, in any form that parseWorker reads; nil: those in the connector's
	// file. It provides the brokers, settings of producers, and converters that the connector does not set.
	Worker []byte

	Output string // file of the configuration, for the next steps

	// Offset is the stored offset of the connector; nil: unknown.
	Offset *Offset

	Brokers []string // in place of those of the worker
	// NewSlot is the name of a new pgoutput slot beside the connector's, in place of taking that over. Empty: take it
	// over.
	NewSlot string

	Messages []string // prefixes of logical messages, if the connector names none

	// Exact keeps the records byte for byte as Debezium's, including parts that consumers do not need, and
	// rejects rows that Debezium damages.
	Exact bool

	// AllowUnknown ignores unknown keys instead of rejecting them.
	AllowUnknown bool

	Live *Live // what only the database knows; nil: it was not read
}

// A Result is the result of an import.
type Result struct {
	Report    Report
	YAML      []byte   // the configuration; nil if a key is rejected
	Variables []string // environment variables that it refers to

	connector, prefix string // name of the connector (empty: unknown) and topic.prefix
	slot, publication string
	oldSlot           string // the connector's, if slot is a new one beside it
	dropsSlot         bool   // Debezium drops it when it stops
	offsets           string // file with its offsets; empty: they are in none
	stop              string // the command that stops the connector
	alone             bool   // Debezium runs in a process of its own, and not in Kafka Connect
	foreign           string
	steps             []string
}

// Foreign returns why import can convert nothing of the file, as one line, or "".
func (r *Result) Foreign() string { return r.foreign }

// Import converts a configuration. The report has the rejected keys. The error is about options that cannot
// be read.
func Import(in *Input, opts Options) (*Result, error) {
	m := &mapping{
		opts: opts, in: in, entries: make(map[string]entry), worker: make(map[string]entry), dsn: make(map[string]string),
		report: Report{form: in.form, name: in.displayName()},
	}
	if err := m.readWorker(); err != nil {
		return nil, err
	}
	for _, e := range in.entries {
		e.key = currentName(e.key, func(key string) bool { _, ok := in.find(key); return ok })
		m.entries[e.key] = e
	}
	m.withWorker()
	m.chain = chainOf(m.entries)
	m.removeBlanks()
	columns := routerColumns()
	m.out.Outbox.Columns = columnsFile{
		ID: columns["table.field.event.id"], Key: columns["table.field.event.key"],
		Route: columns["route.by.field"], Payload: columns["table.field.event.payload"],
	}
	m.out.Outbox.OnUpdate, m.out.Source.Create = "warn", "none"
	if opts.Live != nil {
		m.tables, m.resolved = opts.Live.match(m.value)
		if m.chain.decode == "" && !m.has("transforms."+m.chain.router+".predicate") {
			m.tables, m.lacking = opts.Live.split(m.tables, m.columnsInUse())
		}
	}
	if m.foreign() {
		return &Result{Report: m.report, foreign: m.report.findings[0].String()}, nil
	}
	for _, key := range in.repeated {
		m.find(key, noted, "several times in the file: the last value counts")
	}
	for _, e := range in.entries {
		if text := e.defaulted(in.defaults); text != "" {
			m.find(e.shown, noted, "%s", text)
		}
	}
	m.apply()
	return m.result()
}

// foreign reports whether the file is not about an outbox connector that import can convert at all. It then adds the only
// finding.
func (m *mapping) foreign() bool {
	only := func(key, text string) bool {
		m.report.findings = []Finding{{key: key, verdict: rejected, text: text}}
		return true
	}
	class := m.entries["connector.class"]
	if text := cmp.Or(unevaluated(class), anotherConnector(class.value)); text != "" {
		return only(class.shown, text)
	}
	sink := m.entries["server.sink.type"]
	if text := cmp.Or(unevaluated(sink), anotherSink(sink.value)); m.in.server && text != "" {
		return only(cmp.Or(sink.shown, serverPrefix+"sink.type (default)"), text)
	}
	if text := m.chain.foreign(m.entries); text != "" {
		return only(cmp.Or(m.entries["transforms"].shown, "transforms (default)"), text)
	}
	return false
}

// result sets the keys that depend on several keys of the connector, and returns the Result.
func (m *mapping) result() (*Result, error) {
	if m.in.Name != "" {
		m.out.Name = relayName(m.in.Name)
	} else {
		m.out.Name = relayName(m.extras.Name)
	}
	m.out.Source.DSN = m.conninfo()
	if m.out.Outbox.Topic == "" && m.chain.router != "" {
		_, _ = m.routeRule()
	}
	for _, alias := range m.chain.renames {
		for _, r := range m.renames {
			if r.transform == "transforms."+alias {
				m.out.Outbox.TopicRules = append(m.out.Outbox.TopicRules, r.rule)
			}
		}
	}
	m.setDestination()
	m.checkTopic()
	if m.opts.Exact {
		m.extras.Exact = true
	}
	if m.extras != (debeziumFile{}) {
		m.out.Debezium = &m.extras
	}
	if m.out.Sink.Kafka.TLS != nil && *m.out.Sink.Kafka.TLS != (tlsFile{}) && !m.out.Sink.Kafka.TLS.Enabled {
		m.find("security.protocol", rejected, "certificates are given, and the connection is not encrypted: SSL or SASL_SSL is required")
	}
	r := &Result{
		Report: m.report, Variables: slices.Sorted(maps.Keys(set(m.refs.used))),
		connector: m.in.Name, prefix: m.extras.Name, alone: m.in.server || m.embedded(),
		offsets: m.offsets(), stop: m.stopConnector(), slot: cmp.Or(m.out.Source.Slot, m.slotName()), publication: cmp.Or(m.out.Source.Publication, defaultPublication),
	}
	if m.opts.NewSlot != "" {
		r.oldSlot, r.dropsSlot = m.slotName(), m.dropsSlot()
	}
	r.steps = m.steps(r)
	if len(m.report.Refused()) > 0 {
		return r, nil
	}
	var err error
	r.YAML, err = m.out.encode(m.in.displayName())
	return r, err
}

// checkTopic tests which topics rows would be sent to. It rejects a configuration in which none of them is legal, or not
// that of a route which the configuration names.
func (m *mapping) checkTopic() {
	route := encode.Config{Names: m.names(), Topic: m.out.Outbox.Topic, Reserved: []string{position.DefaultTopic, m.out.DeadLetterTopic}}
	for _, r := range m.out.Outbox.TopicRules {
		route.TopicRules = append(route.TopicRules, encode.TopicRule{Match: r.Match, Replace: r.Replace})
	}
	v, text := judgeTopics(route)
	if v == "" {
		return
	}
	key := "transforms." + m.chain.router + ".route.topic.replacement"
	e := m.entries[key]
	e.shown = cmp.Or(e.shown, key)
	i := slices.IndexFunc(m.report.findings, func(f Finding) bool { return f.key == e.shown })
	switch {
	case v == partial && i >= 0 && m.report.findings[i].verdict == rejected:
		return
	case v == partial:
		text = "outbox.topic_rules; " + text
	default:
		text = cmp.Or(unfilled(e), text)
	}
	m.report.findings = slices.DeleteFunc(m.report.findings, func(f Finding) bool { return f.key == e.shown })
	m.found(e, v, text)
}

func set(items []string) map[string]bool {
	out := make(map[string]bool, len(items))
	for _, i := range items {
		out[i] = true
	}
	return out
}
