package debezium

import (
	"strings"
	"testing"
)

// An empty option is imported as Debezium takes it: for one that is not set, or for one with which it does not work.
func TestEmptyOptions(t *testing.T) {
	t.Parallel()
	const unset = "empty, which Debezium takes for not set"
	const invalid = "empty, with which Debezium does not work"
	for key, want := range map[string]string{
		"column.exclude.list":                           unset,
		"converters":                                    unset,
		"post.processors":                               unset,
		"slot.stream.params":                            unset,
		"custom.sanitize.pattern":                       unset,
		"database.initial.statements":                   unset,
		"database.sslcert":                              unset,
		"message.prefix.include.list":                   unset,
		"schema.exclude.list":                           unset,
		"database.hostname":                             invalid,
		"database.dbname":                               invalid,
		"database.user":                                 invalid,
		"skipped.operations":                            invalid,
		"lsn.flush.mode":                                invalid,
		"errors.max.retries":                            invalid,
		"publication.name":                              "not a publication's name",
		"slot.name":                                     "not the name of a slot",
		"topic.prefix":                                  "letters, digits",
		"plugin.name":                                   "only pgoutput",
		"snapshot.mode":                                 "is not supported",
		"column.include.list":                           "is used but excluded",
		"transforms.outbox.route.topic.regex":           "outbox.topic: ${route}",
		"transforms.outbox.route.topic.replacement":     "REJ   transforms.outbox.route.topic.replacement",
		"transforms.outbox.route.by.field":              "a column's name is required",
		"transforms.outbox.table.field.event.timestamp": invalid,
		"transforms.outbox.table.field.event.schema.version":         unset,
		"transforms.outbox.table.fields.additional.placement":        invalid,
		"transforms.outbox.table.fields.additional.error.on.missing": unset,
		"transforms.outbox.field.name.adjustment.mode":               unset,
		"transforms.outbox.table.op.invalid.behavior":                "is not one of",
		"transforms.outbox.route.tombstone.on.empty.payload":         "neither true nor false",
	} {
		for _, blank := range []string{"", "  "} {
			result := imported(t, key+"="+blank, false, Options{})
			refused := len(result.Report.Refused()) > 0
			var report strings.Builder
			if _, err := result.Report.WriteTo(&report); err != nil {
				t.Fatal(err)
			}
			works := want == unset || strings.HasPrefix(want, "outbox.topic")
			if !strings.Contains(report.String(), want) || refused == works {
				t.Errorf("%s=%q: refused %t, and the report does not have %q:\n%s", key, blank, refused, want, &report)
			}
			if strings.HasSuffix(key, "route.topic.regex") && !strings.Contains(string(result.YAML), "topic: ${route}\n") {
				t.Errorf("%s=%q:\n%s", key, blank, result.YAML)
			}
		}
	}
}
