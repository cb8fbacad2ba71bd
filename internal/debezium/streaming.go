package debezium

import (
	"fmt"
	"slices"
	"strings"
)

func snapshotRules() []rule {
	return []rule{
		{
			key: "snapshot.mode", ours: "source.initial_copy", verdicts: []verdict{same, partial, rejected},
			doc:    "`initial` (the default), `exported`, `when_needed` and `always` are `true`, or `false` if stored offsets show that the copy is done. `no_data`, `never` and `schema_only` are `false`. The relay copies rows only when it creates the slot.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.snapshotMode(strings.ToLower(e.value)) },
			absent: func(m *mapping) (verdict, string) { return m.snapshotMode("initial") },
		},
		note("snapshot.*", "A setting of the initial copy. The relay reads each table in one transaction."),
		note("incremental.snapshot.*", "There are no incremental snapshots."),
		note("signal.*", "There are no signals."),
		note("notification.*", "There are no notifications."),
		note("streaming.delay.ms", "Streaming starts at once."),
	}
}

func (m *mapping) snapshotMode(mode string) (verdict, string) {
	switch mode {
	case "no_data", "never", "schema_only":
		return same, "source.initial_copy: false"
	case "initial", "exported", "when_needed", "always":
	default:
		return rejected, fmt.Sprintf("%q is not supported; use initial, when_needed or no_data", mode)
	}
	if m.opts.NewSlot != "" {
		return partial, "source.initial_copy: false, because Debezium sends the rows that were committed before the new slot"
	}
	if o := m.opts.Offset; o != nil && o.snapshot {
		return partial, "source.initial_copy: false; the stored offsets show that the connector's snapshot is not finished: let it finish first"
	} else if o != nil {
		return partial, "source.initial_copy: false, because the stored offsets show that the snapshot is done"
	}
	if m.dropsSlot() {
		return partial, "source.initial_copy: false, because the relay creates no slot: see slot.drop.on.stop"
	}
	m.out.Source.InitialCopy = true
	if mode == "always" {
		return partial, "source.initial_copy: true, if the relay creates the slot; Debezium copies the rows again at each start, the relay only once"
	}
	if mode == "when_needed" {
		return partial, "source.initial_copy: true, if the relay creates the slot; if the slot is lost later, the relay stops and resends nothing by itself"
	}
	return same, "source.initial_copy: true, if the relay creates the slot; not for a slot that it takes over"
}

func streamingRules() []rule {
	rules := []rule{
		note("heartbeat.interval.ms", "Not required: an idle slot advances by itself. The heartbeat topic stops."),
		note("heartbeat.action.query", "The relay does not run it: an idle slot advances by itself. Keep the tables that the query uses, unless you know that nothing else needs them."),
		note("topic.heartbeat.prefix", "There are no heartbeat records."),
		note("topic.heartbeat.name", "There are no heartbeat records."),
		note("heartbeat.topics.prefix", "There are no heartbeat records."),
		note("status.update.interval.ms", "The relay confirms its position every second."),
		{
			key: "lsn.flush.mode", verdicts: []verdict{noted, rejected}, doc: "`connector` and `connector_and_driver`: the relay confirms acknowledged records, and idle slots advance. Not `manual`.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if strings.EqualFold(e.value, "manual") {
					return rejected, "the relay must own the slot's position, which somebody else moves here"
				}
				return noted, "what is acknowledged is confirmed, and an idle slot advances"
			},
		},
		only("flush.lsn.source", true, "The relay confirms acknowledged records.", "the relay must own the slot's position, which somebody else moves here"),
		only("read.only", false, "The source must be a primary.", "a relay writes logical messages to its source, and needs the primary"),
		{
			key: "skipped.operations", verdicts: []verdict{noted, partial, rejected}, doc: "Only inserts become records. `c` cannot be skipped.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				skipped := splitList(strings.ToLower(e.value))
				switch {
				case slices.Contains(skipped, "c"):
					return rejected, "it skips inserts, and only inserts become records"
				case !slices.Contains(skipped, "t"):
					return partial, "a TRUNCATE has no effect here; Debezium's router fails at it"
				}
				return noted, "only inserts become records"
			},
		},
		unless("-1", "errors.max.retries", "The relay retries temporary errors without limit.", "the relay retries temporary errors without limit"),
		{
			key: "event.processing.failure.handling.mode", ours: "on_bad_record", verdicts: []verdict{same, partial}, doc: "`fail` is `stop`; `warn` and `skip` are `dead-letter`, because the relay never drops rows.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if strings.EqualFold(e.value, "fail") {
					return same, "on_bad_record: stop"
				}
				return m.deadLetters()
			},
		},
		note("event.converting.failure.handling.mode", "A value that cannot be converted makes the row a bad row; it does not become null."),
		{
			key: "extended.headers.enabled", ours: "debezium.context_headers", verdicts: []verdict{same, noted, rejected},
			doc:    "The headers `__debezium.context.…`, only with `--exact`.",
			apply:  applyContextHeaders,
			absent: func(m *mapping) (verdict, string) { return m.contextHeaders() },
		},
	}
	for _, key := range []string{
		"lsn.flush.timeout.*", "offset.mismatch.strategy", "internal.slot.seek.to.known.offset.on.start", "internal.log.position.check.enable",
		"internal.offset.activity.monitor.interval.ms",
	} {
		rules = append(rules, note(key, "The relay starts at the slot's position, and compares it with its position record."))
	}
	for _, key := range []string{"max.batch.size", "max.queue.size", "max.queue.size.in.bytes", "poll.interval.ms", "poll.dispatch.interval.ms", "query.fetch.size"} {
		rules = append(rules, note(key, "The relay sends rows at once, limited by `sink.kafka.window`."))
	}
	for _, key := range []string{
		"xmin.fetch.interval.ms", "schema.refresh.mode", "retriable.restart.connector.wait.ms", "custom.metric.tags", "advanced.metrics.enable", "statistics.metrics.enabled",
		"guardrail.*", "openlineage.*",
	} {
		rules = append(rules, note(key, "No equivalent, and no effect on records."))
	}
	return rules
}

func applyContextHeaders(m *mapping, e entry) (verdict, string) {
	on, refusal := boolean(e)
	switch {
	case refusal != "":
		return rejected, refusal
	case !on:
		return same, "no context headers"
	}
	return m.contextHeaders()
}

// contextHeaders enables context headers if the import is Exact.
func (m *mapping) contextHeaders() (verdict, string) {
	if m.opts.Exact {
		m.extras.ContextHeaders = true
		return same, "debezium.context_headers: true"
	}
	return noted, "omits the headers __debezium.context.…; --exact keeps them"
}

// deadLetters sets the dead-letter topic.
func (m *mapping) deadLetters() (verdict, string) {
	m.out.OnBadRecord = "dead-letter"
	m.out.DeadLetterTopic = "outbox.dead-letter"
	return partial, "on_bad_record: dead-letter; Debezium drops such rows, here they go to dead_letter_topic"
}

func typeRules() []rule {
	lower := func(values ...string) map[string]string {
		out := make(map[string]string, len(values))
		for _, v := range values {
			out[v] = v
		}
		return out
	}
	rules := []rule{
		choices("decimal.handling.mode", "debezium.decimals", lower("precise", "double", "string"), func(m *mapping) *string { return &m.extras.Decimals }),
		choices("time.precision.mode", "debezium.times", lower("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
			func(m *mapping) *string { return &m.extras.Times }),
		choices("interval.handling.mode", "debezium.intervals", lower("numeric", "string"), func(m *mapping) *string { return &m.extras.Intervals }),
		choices("hstore.handling.mode", "debezium.hstore", lower("json", "map"), func(m *mapping) *string { return &m.extras.HStore }),
		choices("binary.handling.mode", "debezium.binary", lower("bytes", "base64", "base64-url-safe", "hex"), func(m *mapping) *string { return &m.extras.Binary }),
		{
			key: "money.fraction.digits", ours: "debezium.money_digits", verdicts: []verdict{same, rejected}, doc: "The same.",
			apply: func(m *mapping, e entry) (verdict, string) {
				n, refusal := number(e, 0)
				if refusal != "" {
					return rejected, refusal
				}
				m.extras.MoneyDigits = &n
				return same, fmt.Sprintf("debezium.money_digits: %d", n)
			},
		},
		unless("none", "field.name.adjustment.mode", "The relay uses the table's column names. For members of an expanded payload, see the router's own option.",
			"columns are named here as the table has them: one that Avro does not allow must be named as it is"),
		unless("false", "sanitize.field.names", "The name of `field.name.adjustment.mode` before Debezium 2. The relay uses the table's column names.",
			"columns are named here as the table has them: one that Avro does not allow must be named as it is"),
		unless("none", "schema.name.adjustment.mode", "Schema names are not changed.",
			"names of schemas are written as they are: the difference shows only where an envelope's schema is written and a name has characters that Avro does not allow"),
		unless("false", "include.unknown.datatypes", "Debezium leaves out columns of types that it does not know.",
			"columns of types that Debezium does not know are missing here too, unless they are sent raw"),
		{
			key: "provide.transaction.metadata", verdicts: []verdict{noted, partial}, doc: "There is no transaction topic.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if on, _ := boolean(e); on {
					return partial, fmt.Sprintf("topic %s.transaction gets no more records; the outbox records do not change", m.value("topic.prefix"))
				}
				return noted, "the default"
			},
		},
	}
	for _, key := range []string{
		"unavailable.value.placeholder", "toasted.value.placeholder", "source.struct.version", "topic.transaction", "message.key.columns", "tombstones.on.delete", "topic.naming.strategy", "topic.delimiter", "topic.cache.size",
		"skip.messages.without.change", "include.schema.changes", "include.schema.comments", "sourceinfo.struct.maker", "event.order",
	} {
		rules = append(rules, note(key, "No effect on the records of inserts."))
	}
	return rules
}
