package debezium

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Options configure an import.
type Options struct {
	// Worker has the properties of the Connect worker, or a Strimzi KafkaConnect. It provides the brokers, settings of
	// producers, and converters that the connector does not set.
	Worker []byte

	// Offset is the stored offset of the connector; nil: unknown.
	Offset *Offset

	Brokers  []string // in place of those of the worker
	Messages []string // prefixes of logical messages, if the connector names none

	// Exact keeps the records byte for byte as Debezium's, including parts that consumers do not need, and
	// rejects rows that Debezium damages.
	Exact bool

	// AllowUnknown ignores unknown keys instead of rejecting them.
	AllowUnknown bool

	// Live has what only the database knows. It is nil if the database was not read, or if it could not be
	// reached; Unreachable tells these apart.
	Live        *Live
	Unreachable error
}

// A Result is the result of an import.
type Result struct {
	Report    Report
	YAML      []byte   // the configuration; nil if a key is rejected
	Variables []string // environment variables that it refers to

	connector, prefix string // name of the connector (empty: unknown) and topic.prefix
	slot, publication string
	server            bool
}

// Import converts a configuration. The report has the rejected keys. The error is about options that cannot
// be read.
func Import(in *Input, opts Options) (*Result, error) {
	m := &mapping{
		opts: opts, in: in, entries: make(map[string]entry), worker: make(map[string]string), dsn: make(map[string]string),
		report: Report{form: in.form, name: in.displayName()},
	}
	if opts.Worker != nil {
		pairs, err := parseWorker(opts.Worker)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			m.worker[p.key] = strings.TrimSpace(p.value)
		}
	}
	for _, e := range in.entries {
		m.entries[e.key] = e
	}
	m.withWorker()
	m.chain = chainOf(m.entries)
	columns := routerColumns()
	m.out.Outbox.Columns = columnsFile{
		ID: columns["table.field.event.id"], Key: columns["table.field.event.key"],
		Route: columns["route.by.field"], Payload: columns["table.field.event.payload"],
	}
	m.out.Outbox.OnUpdate = "warn"
	if opts.Live != nil {
		m.tables, m.resolved = opts.Live.match(m.value)
	}
	m.apply()
	return m.result()
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
	m.refuseIllegalTopic()
	if m.opts.Exact {
		m.extras.Exact = true
	}
	if m.extras != (debeziumFile{}) {
		m.out.Debezium = &m.extras
	}
	if m.out.Sink.Kafka.TLS != nil && *m.out.Sink.Kafka.TLS != (tlsFile{}) && !m.out.Sink.Kafka.TLS.Enabled {
		m.find("security.protocol", rejected, "certificates are given, and the connection is not encrypted: SSL or SASL_SSL is needed")
	}
	r := &Result{
		Report: m.report, Variables: slices.Sorted(maps.Keys(set(m.refs.used))),
		connector: m.in.Name, prefix: m.extras.Name, server: m.in.server,
		slot: m.slotName(), publication: cmp.Or(m.out.Source.Publication, defaultPublication),
	}
	if len(m.report.Refused()) > 0 {
		return r, nil
	}
	var err error
	r.YAML, err = m.out.encode(m.in.displayName())
	return r, err
}

// refuseIllegalTopic rejects a topic that no row can be sent to.
func (m *mapping) refuseIllegalTopic() {
	route := encode.Config{Topic: m.out.Outbox.Topic, Reserved: []string{relay.PositionTopic, m.out.DeadLetterTopic}}
	for _, r := range m.out.Outbox.TopicRules {
		route.TopicRules = append(route.TopicRules, encode.TopicRule{Match: r.Match, Replace: r.Replace})
	}
	illegal := route.IllegalTopic()
	if illegal == "" {
		return
	}
	key := "transforms." + m.chain.router + ".route.topic.replacement"
	m.report.findings = slices.DeleteFunc(m.report.findings, func(f Finding) bool { return f.key == key })
	m.find(key, rejected, "every row would go to one topic, whose name %s", illegal)
}

func set(items []string) map[string]bool {
	out := make(map[string]bool, len(items))
	for _, i := range items {
		out[i] = true
	}
	return out
}
