package debezium

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// base is a configuration that the import accepts.
const base = `connector.class=PostgresConnector
name=orders-outbox
topic.prefix=shop
database.hostname=localhost
database.user=cdc
database.password=hunter2
database.dbname=app
plugin.name=pgoutput
slot.name=orders
publication.name=orders
table.include.list=public.outbox
snapshot.mode=no_data
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
producer.override.bootstrap.servers=localhost:9092
transforms=outbox
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
`

// imported imports base with changes. A line key=value sets a key, and -key removes it.
func imported(t *testing.T, changes string, server bool, opts Options) *Result {
	t.Helper()
	in, err := Parse([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	if in.server = server; server && !strings.Contains(changes, "server.sink.type=") {
		in.add("server.sink.type", "server.sink.type", sinkKafka)
	} else if server {
		in.entries = slices.DeleteFunc(in.entries, func(e entry) bool { return strings.HasPrefix(e.key, producerPrefix) })
	}
	for line := range strings.Lines(changes) {
		key, value, set := strings.Cut(strings.TrimRight(line, "\n"), "=")
		name := strings.TrimPrefix(key, "-")
		in.entries = slices.DeleteFunc(in.entries, func(e entry) bool { return e.key == name })
		if set {
			in.add(key, key, value)
		}
	}
	if opts.Worker == nil {
		opts.Worker = []byte("")
	}
	result, err := Import(in, opts)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// importedText imports a file without options.
func importedText(t *testing.T, text string) *Result {
	t.Helper()
	in, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A verdictCase is a change of base, and the verdict on the last key of the change. With "-key", it is the verdict
// on the default.
type verdictCase struct {
	changes string
	want    verdict
	text    string // part of the text
	opts    Options
	server  bool // of Debezium Server
}

// The cases cover every declared verdict of every rule. A rule returns only its declared verdicts.
func TestVerdicts(t *testing.T) {
	seen := make(map[string]bool)
	cases := slices.Concat(connectorCases, tableCases(), valueCases(), routerCases(), kafkaCases, sinkCases())
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			if r.apply == nil && !strings.HasSuffix(r.key, "}.type") {
				cases = append(cases, plainCase(r))
			}
		}
	}
	for _, tt := range cases {
		result := imported(t, tt.changes, tt.server, tt.opts)
		lines := strings.Split(tt.changes, "\n")
		key, _, given := strings.Cut(lines[len(lines)-1], "=")
		if !given {
			key = strings.TrimPrefix(key, "-") + " (default)"
		}
		i := slices.IndexFunc(result.Report.findings, func(f Finding) bool { return f.key == key })
		if i < 0 {
			t.Errorf("%s: no finding about %s", tt.changes, key)
			continue
		}
		if f := result.Report.findings[i]; f.verdict != tt.want || !strings.Contains(f.text, tt.text) {
			t.Errorf("%s: %s %q, want %s %q", tt.changes, f.verdict, f.text, tt.want, tt.text)
		}
		for _, f := range result.Report.findings {
			if strings.Contains(f.text, "hunter2") {
				t.Errorf("%s: the finding about %s shows a secret", tt.changes, f.key)
			}
			seen[ruleOf(f.key, tt.changes)+" "+string(f.verdict)] = true
		}
		if refused := len(result.Report.Refused()) > 0; refused == (result.YAML != nil) {
			t.Errorf("%s: refused %t, and a configuration of %d bytes", tt.changes, refused, len(result.YAML))
		}
	}
	declared := make(map[string]bool)
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			for _, v := range r.verdicts {
				declared[r.key+" "+string(v)] = true
			}
		}
	}
	for pair := range declared {
		if !seen[pair] {
			t.Errorf("%s is never the verdict", pair)
		}
	}
	for pair := range seen {
		if !declared[pair] && pair != "unknown REJ" {
			t.Errorf("%s is not declared", pair)
		}
	}
}

// Debezium takes a blank list of tables or schemas for none. The report says so first, and is otherwise the same.
func TestBlankLists(t *testing.T) {
	table := tableName{"public", "outbox"}
	live := &Live{tables: []liveTable{{name: table, root: table, columns: []string{"id", "aggregateid", "aggregatetype", "payload"}}}}
	for _, key := range []string{"table.include.list", "table.exclude.list", "schema.include.list", "schema.exclude.list"} {
		for _, changes := range []string{"-table.include.list\n", "-table.include.list\nschema.include.list=public\n", ""} {
			for _, opts := range []Options{{}, {Live: live}} {
				want := imported(t, changes+"-"+key, false, opts).Report.findings
				if got := imported(t, changes+key+"= ", false, opts).Report.findings[1:]; !slices.Equal(got, want) {
					t.Errorf("%q with a blank %s, live %t: %v, want %v", changes, key, opts.Live != nil, got, want)
				}
			}
		}
	}
}

// plainCase returns a case for a rule that returns the same verdict for every value.
func plainCase(r rule) verdictCase {
	setup := ""
	for part, lines := range map[string]string{"{decode}": decodeOn + decodeIs + "\n", "{header}": headerOn, "{rename}": renameOn, "{other}": "transforms=outbox,o\n"} {
		if strings.Contains(r.key, part) {
			setup = lines
		}
	}
	if r.sink != "" && r.sink != sinkKafka {
		setup = ofSink(r.sink)
	}
	return verdictCase{server: strings.HasPrefix(setup, "server."), changes: setup + aKey(r) + "=x", want: r.verdicts[0]}
}

// aKey returns a key to which a rule applies.
func aKey(r rule) string {
	aliases := strings.NewReplacer("{router}", "outbox", "{decode}", "decode", "{header}", "h", "{rename}", "r", "{other}", "o", "{predicate}", "p", "*", ".any")
	return strings.ReplaceAll(aliases.Replace(r.key), "..", ".")
}

// rules is the mapping table, which takes long to make.
var rules = sync.OnceValue(mappingTable)

// ruleOf returns the key of the rule that a finding is about.
func ruleOf(key, changes string) string {
	key, _, _ = strings.Cut(key, " (")
	entries := map[string]entry{key: {}}
	all := maps.Clone(entries)
	for line := range strings.Lines(base + changes) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		if name, taken := strings.CutPrefix(name, "-"); taken {
			delete(all, name)
			continue
		}
		all[name] = entry{value: value}
	}
	c := chainOf(all)
	key = currentName(key, func(k string) bool { _, ok := all[k]; return ok })
	entries = map[string]entry{key: {}}
	for _, g := range rules() {
		for _, r := range g.rules {
			if len(c.keysOf(r.key, entries)) > 0 {
				return r.key
			}
		}
	}
	return "unknown"
}

// The import rejects an unknown key, or leaves it out with AllowUnknown.
func TestUnknownKeys(t *testing.T) {
	for _, key := range []string{"no.such.key", "producer.override.no.such"} {
		refused := imported(t, key+"=hunter2", false, Options{}).Report.Refused()
		if len(refused) != 1 || refused[0].key != key {
			t.Errorf("%s: refused %v", key, refused)
		}
		result := imported(t, key+"=hunter2", false, Options{AllowUnknown: true})
		if last := result.Report.findings[len(result.Report.findings)-1]; result.YAML == nil || last.key != key || last.verdict != noted {
			t.Errorf("%s: %v", key, last)
		}
	}
}

// Each key has one rule, since the import would never use a second one.
func TestNoRuleIsHidden(t *testing.T) {
	var before []string
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			for _, b := range before {
				prefix, wild := strings.CutSuffix(b, "*")
				if b == r.key || wild && strings.HasPrefix(r.key, prefix) {
					t.Errorf("%s is hidden by %s", r.key, b)
				}
			}
			before = append(before, r.key)
			if len(r.verdicts) == 0 || r.doc == "" || r.apply == nil && len(r.verdicts) > 1 {
				t.Errorf("%s: verdicts %v, doc %q", r.key, r.verdicts, r.doc)
			}
		}
	}
}
