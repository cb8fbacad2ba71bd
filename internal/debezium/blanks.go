package debezium

import (
	"slices"
	"strings"
)

// What Debezium 3.7 does with an option that is empty or blank, as its own classes do it: it takes those of unsetIfBlank for
// options that are not set, and does not start, or fails at the first row, with those of invalidIfBlank. The rules of other options
// see the value, or the options have no effect on what is imported.

func unsetIfBlank() []string {
	return []string{
		"table.include.list", "table.exclude.list", "schema.include.list", "schema.exclude.list", "column.exclude.list",
		"message.prefix.include.list", "message.prefix.exclude.list",
		"converters", "post.processors", "custom.sanitize.pattern", "slot.stream.params",
		"database.initial.statements", "database.password", "database.sslcert", "database.sslkey", "database.sslpassword", "database.sslrootcert",
		"transforms.{router}.table.field.event.schema.version", "transforms.{router}.table.fields.additional.error.on.missing",
		"transforms.{router}.field.name.adjustment.mode",
	}
}

func invalidIfBlank() []string {
	return []string{
		"database.hostname", "database.user", "database.dbname", "errors.max.retries", "event.processing.failure.handling.mode",
		"field.name.adjustment.mode", "schema.name.adjustment.mode", "include.unknown.datatypes", "lsn.flush.mode",
		"provide.transaction.metadata", "publish.via.partition.root", "skipped.operations",
		"transforms.{router}.table.field.event.timestamp", "transforms.{router}." + placementOption, "transforms.{router}.route.topic.replacement",
	}
}

// removeBlanks removes the entries that Debezium takes for options that are not set.
func (m *mapping) removeBlanks() {
	for _, key := range unsetIfBlank() {
		key = m.chain.fill(key)
		if e, ok := m.entries[key]; ok && isBlank(e) {
			delete(m.entries, key)
			m.find(e.shown, noted, "empty, which Debezium takes for not set")
		}
	}
}

// invalidBlank reports whether the rule for key is about an option with which Debezium does not work if it is e.
func invalidBlank(key string, e entry) bool {
	return isBlank(e) && slices.Contains(invalidIfBlank(), key)
}

func isBlank(e entry) bool { return strings.TrimSpace(e.value) == "" }
