package debezium

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/javaregex"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A tableName is a table's name.
type tableName struct{ schema, name string }

// sql returns the quoted name for SQL and outbox.tables.
func (t tableName) sql() string { return quoteName(t.schema) + "." + quoteName(t.name) }

// String returns the name as in Debezium's expressions and topics.
func (t tableName) String() string { return t.schema + "." + t.name }

func quoteName(name string) string {
	if compileOnce(`^[a-z_][a-z0-9_$]*$`).MatchString(name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func tableRules() []rule {
	return []rule{
		{
			key: "table.include.list", ours: "outbox.tables", verdicts: []verdict{same, partial, noted, rejected},
			doc:   "Names are copied. For expressions, `import --live` looks up the matching tables that have the columns of the router; a partitioned table by its root.",
			apply: applyTables,
			absent: func(m *mapping) (verdict, string) {
				switch {
				case m.chain.decode != "":
					return noted, "no tables: rows come from logical messages"
				case m.has("schema.include.list") || m.has("table.exclude.list") || m.has("schema.exclude.list"):
					return noted, ""
				case strings.EqualFold(m.value("publication.autocreate.mode"), "disabled"):
					return partial, "the tables are those of publication " + m.out.Source.Publication
				}
				return m.tablesWithColumns()
			},
		},
		{
			key: "schema.include.list", ours: "outbox.tables", verdicts: []verdict{noted, partial, rejected}, doc: "With `table.include.list` both must match. Alone, `import --live` looks up the tables in the database.",
			apply: applyOtherLists,
		},
		{key: "table.exclude.list", ours: "outbox.tables", verdicts: []verdict{noted, partial, rejected}, doc: "With `--live`, `import` looks up the tables in the database. With logical messages, `.*` excludes all.", apply: applyOtherLists},
		{key: "schema.exclude.list", ours: "outbox.tables", verdicts: []verdict{noted, partial, rejected}, doc: "With `--live`, `import` looks up the tables in the database. With logical messages, `.*` excludes all.", apply: applyOtherLists},
		{key: "column.include.list", verdicts: []verdict{noted, rejected}, doc: "Rejected if it omits a column that is used.", apply: applyColumnList},
		{key: "column.exclude.list", verdicts: []verdict{noted, rejected}, doc: "Rejected if it has a column that is used.", apply: applyColumnList},
		refuse("column.mask.*", "It would mask values. Do that in the writer."),
		refuse("column.truncate.*", "It would truncate values. Do that in the writer."),
		note("column.propagate.source.type", "The router drops these schema parameters."),
		note("datatype.propagate.source.type", "The router drops these schema parameters."),
		refuse("converters", "Custom converters change values in Java. Use the column unchanged, or keep Debezium."),
		refuse("post.processors", "Post processors change values in Java. Keep Debezium if you need them."),
		{key: "message.prefix.include.list", ours: "outbox.messages", verdicts: []verdict{same, noted, rejected}, doc: "With DecodeLogicalDecodingMessageContent: literal prefixes. Without, messages are not events.", apply: applyPrefixes},
		{
			key: "message.prefix.exclude.list", verdicts: []verdict{noted, rejected}, doc: "Without DecodeLogicalDecodingMessageContent, messages are not events.",
			apply: func(m *mapping, _ entry) (verdict, string) {
				if m.chain.decode == "" {
					return noted, "messages do not become records"
				}
				return rejected, "excluded prefixes are not supported; list the prefixes of rows in message.prefix.include.list"
			},
		},
	}
}

func applyTables(m *mapping, e entry) (verdict, string) {
	for _, item := range splitExpressions(e.value) {
		if compileOnce(`^[\pL\pN_]+$`).MatchString(item) {
			return rejected, fmt.Sprintf("%s has no schema. Debezium matches whole names such as public.%s, so it captures nothing", item, item)
		}
	}
	if m.resolved {
		return m.setTables()
	}
	var unsure bool
	for _, item := range splitExpressions(e.value) {
		t, sure, ok := literalTable(item)
		if !ok {
			if m.opts.Live != nil {
				return rejected, "no table of the database matches it"
			}
			return rejected, fmt.Sprintf("%s is an expression that only the database can resolve: give --live, or the tables' names", item)
		}
		m.tables = append(m.tables, t)
		unsure = unsure || !sure
	}
	v, text := m.setTables()
	if unsure && v == same {
		return partial, text + ", as written; Debezium's expressions do not tell capital letters from small ones"
	}
	return v, text
}

// tablesWithColumns sets the tables that have the columns of the router, because the connector captures all tables.
func (m *mapping) tablesWithColumns() (verdict, string) {
	if m.opts.Live == nil {
		return rejected, "all tables are captured, and which of them are outbox tables is not said: give --live, or table.include.list"
	}
	columns := strings.Join(m.columnsInUse(), ", ")
	if m.tables = m.opts.Live.withColumns(m.columnsInUse()); len(m.tables) == 0 {
		return rejected, "all tables are captured, and none of the database has the columns " + columns
	}
	_, text := m.setTables()
	return partial, text + ", which have the columns " + columns
}

// setTables sets the known tables.
func (m *mapping) setTables() (verdict, string) {
	if m.chain.decode != "" {
		return rejected, "tables beside logical messages: one relay has one or the other"
	}
	for _, t := range m.tables {
		m.out.Outbox.Tables = append(m.out.Outbox.Tables, t.sql())
	}
	var lacking []string
	for _, t := range m.lacking {
		lacking = append(lacking, t.String())
	}
	without := fmt.Sprintf("%s, without all of the columns %s: Debezium fails at their rows", strings.Join(lacking, ", "), strings.Join(m.columnsInUse(), ", "))
	text := "outbox.tables: " + strings.Join(m.out.Outbox.Tables, ", ")
	switch {
	case len(m.tables) > 0 && len(lacking) > 0:
		return partial, text + "; not " + without
	case len(m.tables) > 0:
		return same, text
	case len(lacking) > 0:
		return rejected, "it matches only " + without
	}
	return rejected, "no table of the database matches it"
}

func applyOtherLists(m *mapping, e entry) (verdict, string) {
	switch {
	case m.resolved:
		if len(m.out.Outbox.Tables) > 0 || m.has("table.include.list") {
			return partial, "looked up in the database: " + strings.Join(m.out.Outbox.Tables, ", ")
		}
		v, text := m.setTables()
		if v == rejected {
			return rejected, text
		}
		return partial, "looked up in the database: " + text
	case m.chain.decode != "" && strings.HasSuffix(e.key, ".exclude.list") && slices.Contains([]string{".*", ".+", `.*\..*`, `.+\..+`, ".*[.].*"}, e.value):
		return noted, "no tables: rows come from logical messages"
	case m.has("table.include.list") && e.key == "schema.include.list":
		for _, t := range m.tables {
			if !slices.ContainsFunc(splitExpressions(e.value), func(x string) bool { return matches(x, t.schema) }) {
				return rejected, fmt.Sprintf("schema %s of table.include.list is not on it, so Debezium captures nothing there", t.schema)
			}
		}
		return noted, "the tables of table.include.list are in these schemas"
	}
	return rejected, "only the database can say which tables are left: give --live, or table.include.list"
}

// splitExpressions splits a list of Debezium's regular expressions at unescaped commas.
func splitExpressions(list string) []string {
	var out []string
	var item strings.Builder
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',':
			if text := strings.TrimSpace(item.String()); text != "" {
				out = append(out, text)
			}
			item.Reset()
		case list[i] == '\\' && i+1 < len(list):
			if list[i+1] != ',' {
				item.WriteByte('\\')
			}
			i++
			item.WriteByte(list[i])
		default:
			item.WriteByte(list[i])
		}
	}
	return out
}

// literalTable returns the table of an expression that names only one table. sure is false if the expression
// also matches other spellings of the name. The dot between schema and table need not be escaped.
func literalTable(expression string) (t tableName, sure, ok bool) {
	plain := strings.ReplaceAll(expression, `\.`, ".")
	plain = strings.TrimSuffix(strings.TrimPrefix(plain, "^"), "$")
	if !compileOnce(`^[\pL\pN_ -]+\.[\pL\pN_ -]+$`).MatchString(plain) {
		return tableName{}, false, false
	}
	t.schema, t.name, _ = strings.Cut(plain, ".")
	return t, strings.ToLower(plain) == plain, true
}

// matches reports whether a Debezium expression matches the whole name, ignoring case.
func matches(expression, name string) bool {
	pattern, err := javaregex.CompileIgnoreCase(expression)
	if err != nil {
		return false
	}
	ok, err := pattern.Matches(name)
	return ok && err == nil
}

// columnsInUse returns the columns that a table needs.
func (m *mapping) columnsInUse() []string {
	var out []string
	for option, fallback := range routerColumns() {
		if column := cmp.Or(m.router(option), fallback); column != "" {
			out = append(out, column)
		}
	}
	if !m.ignoresMissing() {
		for _, item := range splitList(m.router(placementOption)) {
			column, _, _ := strings.Cut(item, ":")
			out = append(out, strings.TrimSpace(column))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func applyColumnList(m *mapping, e entry) (verdict, string) {
	include := e.key == "column.include.list"
	for _, t := range m.tables {
		for _, column := range m.columnsInUse() {
			listed := slices.ContainsFunc(splitExpressions(e.value), func(x string) bool { return matches(x, t.String()+"."+column) })
			if listed != include {
				return rejected, fmt.Sprintf("column %s of %s is used but excluded, so Debezium fails at the first row", column, t)
			}
		}
	}
	return noted, "columns that are not in use do not matter"
}

func applyDecode(m *mapping, _ entry) (verdict, string) {
	if len(m.opts.Messages) > 0 {
		m.out.Outbox.Messages = m.opts.Messages
	}
	if len(m.out.Outbox.Messages) == 0 {
		m.out.Outbox.Messages = []string{replication.AnyPrefix}
		return partial, "outbox.messages: every prefix, as here; if others write messages, too, name those that hold rows with --messages"
	}
	if text := reserved(m.out.Outbox.Messages); text != "" {
		return rejected, text
	}
	return partial, "outbox.messages: " + strings.Join(m.out.Outbox.Messages, ", ") + "; numbers keep their digits"
}

func applyPrefixes(m *mapping, e entry) (verdict, string) {
	if m.chain.decode == "" {
		return noted, "messages do not become records"
	}
	prefixes := splitExpressions(e.value)
	for i, p := range prefixes {
		p = strings.ReplaceAll(p, `\.`, ".")
		if regexp.QuoteMeta(strings.ReplaceAll(p, ".", "")) != strings.ReplaceAll(p, ".", "") {
			return rejected, fmt.Sprintf("%s is an expression, and prefixes have to be whole: name them", p)
		}
		prefixes[i] = p
	}
	if text := reserved(prefixes); text != "" {
		return rejected, text
	}
	m.out.Outbox.Messages = prefixes
	return same, "outbox.messages: " + strings.Join(prefixes, ", ")
}

// reserved returns an error text if the reserved prefix is among prefixes, or "".
func reserved(prefixes []string) string {
	if slices.Contains(prefixes, catalog.MessagePrefix) {
		return catalog.MessagePrefix + " is reserved for outbox-cdc's own messages"
	}
	return ""
}

// applyPredicate imports the predicate of the router. Tables that it does not match are no outbox tables: their rows
// pass as change events, which the relay does not send.
func applyPredicate(m *mapping, e entry) (verdict, string) {
	covers, refusal := m.predicate(e.value)
	if refusal != "" {
		return rejected, refusal
	}
	if len(m.tables) == 0 {
		return rejected, fmt.Sprintf("whether predicate %s covers all outbox tables is not known: give --live, or table.include.list with names", e.value)
	}
	var outbox []tableName
	var others []string
	for _, t := range m.tables {
		covered, err := covers.Matches(m.topicOf(t))
		switch {
		case err != nil:
			return rejected, fmt.Sprintf("predicate %s on %s: %v", e.value, m.topicOf(t), err)
		case covered:
			outbox = append(outbox, t)
		default:
			others = append(others, t.String())
		}
	}
	switch {
	case len(outbox) == 0:
		return rejected, fmt.Sprintf("predicate %s does not match %s, so no row goes through the router", e.value, m.topicOf(m.tables[0]))
	case len(others) == 0:
		return same, fmt.Sprintf("predicate %s matches all outbox tables", e.value)
	}
	m.tables, m.out.Outbox.Tables = outbox, nil
	_, text := m.setTables()
	names := strings.Join(others, ", ")
	m.report.before = append(m.report.before, "if somebody reads the change events of "+names+", create a connector for these tables, with a slot and a publication of its own")
	return partial, fmt.Sprintf("%s only: rows of %s pass the router as change events, which the relay does not send", text, names)
}

// topicOf returns the topic of a table's change events, which predicates see.
func (m *mapping) topicOf(t tableName) string {
	return strings.Join([]string{m.extras.Name, t.schema, t.name}, cmp.Or(m.value("topic.delimiter"), "."))
}

// predicate returns the pattern of a predicate of type TopicNameMatches.
func (m *mapping) predicate(name string) (pattern *javaregex.Pattern, refusal string) {
	at := "predicates." + name
	if class := m.value(at + ".type"); class != topicMatches {
		return nil, fmt.Sprintf("predicate %s is a %q; only %s is supported", name, class, topicMatches)
	}
	if naming := m.value("topic.naming.strategy"); naming != "" && naming != schemaNaming {
		return nil, fmt.Sprintf("predicate %s sees the topics that %s names, which is Java code; only %s is supported with a predicate", name, naming, schemaNaming)
	}
	pattern, err := javaregex.Compile(m.value(at + ".pattern"))
	if err != nil {
		return nil, fmt.Sprintf("predicate %s: %v", name, err)
	}
	return pattern, ""
}

// bypasses reports whether a transform before the router leaves out the rows of all outbox tables.
func (m *mapping) bypasses(alias string) bool {
	at := "transforms." + alias
	covers, refusal := m.predicate(m.value(at + ".predicate"))
	if refusal != "" || len(m.tables) == 0 {
		return false
	}
	negated, wrong := boolean(entry{value: cmp.Or(m.value(at+".negate"), "false")})
	return wrong == "" && !slices.ContainsFunc(m.tables, func(t tableName) bool {
		matches, err := covers.Matches(m.topicOf(t))
		return err != nil || matches != negated
	})
}
