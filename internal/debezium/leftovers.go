package debezium

import (
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// oldNames returns the names that Debezium 2 has replaced, with the new ones.
func oldNames() map[string]string {
	return map[string]string{
		"table.whitelist": "table.include.list", "table.blacklist": "table.exclude.list",
		"schema.whitelist": "schema.include.list", "schema.blacklist": "schema.exclude.list",
		"column.whitelist": "column.include.list", "column.blacklist": "column.exclude.list",
		oldKeyOption: "table.field.event.key",
	}
}

// oldKeyOption is the router's option for the column of the key of rows in which table.field.event.key is NULL or not
// set.
const oldKeyOption = "table.field.event.payload.id"

// currentName returns the name of a key in Debezium 2 and later. A configuration with topic.prefix is one for these
// versions, which ignore the old names; any other is one for Debezium 1.
func currentName(key string, has func(string) bool) string {
	at, option := "", key
	if alias, rest, ok := strings.Cut(strings.TrimPrefix(key, "transforms."), "."); ok && strings.HasPrefix(key, "transforms.") {
		at, option = "transforms."+alias+".", rest
	}
	current, old := oldNames()[option]
	if !old || has("topic.prefix") || has(at+current) {
		return key
	}
	return at + current
}

// leftoverRules returns the rules for keys that Debezium's connector does not read.
func leftoverRules() []rule {
	var rules []rule
	for _, key := range []string{"table.whitelist", "table.blacklist", "schema.whitelist", "schema.blacklist", "column.whitelist", "column.blacklist"} {
		rules = append(rules, note(key, "Ignored by Debezium 2 and later. Without `topic.prefix`, it counts like `"+oldNames()[key]+"`."))
	}
	rules = append(rules, note("transforms.{router}."+oldKeyOption,
		"Ignored by Debezium 2 and later. Without `topic.prefix`, it is the key's column if `table.field.event.key` is not set; a NULL there is a null key."))
	for _, key := range []string{
		"schema.history.*", "database.history*", "database.server.id", "database.include.list", "database.exclude.list", "database.whitelist", "database.blacklist",
		"database.allowPublicKeyRetrieval", "database.connectionTimeZone", "database.serverTimezone", "gtid.*", "bigint.unsigned.handling.mode",
	} {
		rules = append(rules, note(key, "An option of other connectors, such as MySQL's, which this one ignores."))
	}
	rules = append(rules, note("database.ssl.*", "An option of the connector for MySQL. For Postgres, `database.sslmode` and the keys beside it count."))
	for _, key := range []string{"/*", "_*", "#*"} {
		rules = append(rules, note(key, "A comment."))
	}
	ignored := func(key, doc string, counts func(m *mapping, key string) bool) rule {
		return rule{
			key: key, verdicts: []verdict{noted, rejected}, doc: doc,
			apply: func(m *mapping, e entry) (verdict, string) {
				if counts(m, e.key) {
					return m.unknown()
				}
				return noted, plainText(doc)
			},
		}
	}
	overrides := func(_ *mapping, key string) bool { return strings.HasPrefix(key, producerPrefix) }
	return append(rules, rule{
		key: "transforms.{router}.*", verdicts: []verdict{noted}, doc: "The router ignores an option that it does not know. The report names the one that was probably meant.",
		apply: func(_ *mapping, e entry) (verdict, string) {
			option := e.key[strings.LastIndex(e.key, "transforms."):]
			option = strings.SplitN(option, ".", 3)[2]
			if meant := config.Misspelled(option, routerOptions()); meant != "" {
				return noted, "the router has no such option and ignores it; did you mean " + meant + "?"
			}
			return noted, "the router has no such option and ignores it"
		},
	},
		ignored("transforms.*", "Kafka Connect ignores a transform that is not in `transforms`.", func(m *mapping, key string) bool {
			alias, _, _ := strings.Cut(strings.TrimPrefix(key, "transforms."), ".")
			return slices.Contains(m.chain.order, alias)
		}),
		ignored("producer.*", "Kafka Connect ignores it in a connector: only `producer.override.…` counts.", overrides),
		note("consumer.*", "Kafka Connect ignores it: this connector has no consumer."),
	)
}
