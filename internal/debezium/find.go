package debezium

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A finder collects what a file has for an import, whatever surrounds it: connectors and Connect workers.
type finder struct {
	found   []*Input
	workers []*worker
	depth   int  // of texts in texts
	before  int  // lines of the file before the text
	inside  int  // line of the text in the file, if its own lines are not there; 0: they are
	level   int  // of the node in its document
	yaml    bool // the documents are YAML

	defaults []pair // variables of the file that are replaced by their defaults
}

const whatImportReads = "import reads Kafka Connect's JSON (also in a script, or as the answer" +
	" of GET /connectors?expand=info), properties, YAML with a KafkaConnector or with a connector's keys, and Debezium Server's properties, YAML, environment (also of docker run) or DebeziumServer"

var errNothing = errors.New("not a connector's configuration: it has no connector.class; " + whatImportReads)

// text collects what a text has. name is the connector's, if the text has none.
func (f *finder) text(text, name string) error {
	found, workers := len(f.found), len(f.workers)
	if start := strings.TrimSpace(text); strings.HasPrefix(start, "{") || strings.HasPrefix(start, "[") {
		return f.documents(text, name, false)
	}
	broken := f.documents(text, name, true)
	switch {
	case len(f.found) > found, broken == nil && len(f.workers) > workers:
		return broken
	case compileOnce(`(?m)^\s*(export\s+)?DEBEZIUM_SOURCE_\w+=`).MatchString(text):
		f.add(fromEnvironment(f.lines(linesOfVariables(text))))
		return nil
	}
	f.scripts(text, name)
	f.commands(text)
	if working := slices.ContainsFunc(f.found[found:], func(in *Input) bool { return in.broken == nil }); broken != nil && !working && looksLikeYAML(text) && !isScript(text) {
		f.found = f.found[:found]
		return broken
	}
	if len(f.found) > found || len(f.workers) > workers {
		return nil
	}
	pairs, err := parseProperties(text)
	if err == nil {
		f.properties(f.lines(pairs))
	}
	return err
}

// isScript reports whether a text sends requests to Kafka Connect, or starts containers.
func isScript(text string) bool {
	return compileOnce(`(?m)^#!|\bcurl\b|/connectors\b`).MatchString(text) || runsContainer().MatchString(text)
}

// line returns the line in the file of a line of the text.
func (f *finder) line(n int) int { return cmp.Or(f.inside, f.before+n) }

// place gives a tree of the text its lines in the file.
func (f *finder) place(n *yaml.Node) {
	n.Line = f.line(n.Line)
	for _, c := range n.Content {
		f.place(c)
	}
}

// lines gives pairs of the text their lines in the file.
func (f *finder) lines(pairs []pair) []pair {
	for i := range pairs {
		pairs[i].line = f.line(pairs[i].line)
	}
	return pairs
}

// looksLikeYAML reports whether a text is YAML rather than properties, which may have colons too.
func looksLikeYAML(text string) bool {
	return compileOnce(`(?m)^(---|apiVersion:|kind:|[\w."'-]+:[ \t]*(#.*)?$|[ \t]+["']?[\w.-]+["']?: )`).MatchString(text)
}

// templated returns an error about a template of Helm or Ansible, which has no meaning before it is rendered. The error
// has a line for each of its actions; nil: the text has none.
func templated(text string) error {
	var lines []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		for _, m := range compileOnce(`(?:^|[^$])(\{\{.*?\}\})`).FindAllStringSubmatch(line, -1) {
			lines = append(lines, fmt.Sprintf("\n  line %d: %s", n, m[1]))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New("a template: render it first (for example with helm template), or write the values in place of" + strings.Join(lines, ""))
}

// templateIn returns an error about the first template in a tree. An action without quotes is YAML: a map as the key of
// another one.
func templateIn(n *yaml.Node) error {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Kind == yaml.MappingNode || c.Kind == yaml.ScalarNode && strings.Contains(c.Value, "{{") {
			return fmt.Errorf("line %d: a template: render it first", c.Line)
		}
		if err := templateIn(c); err != nil {
			return err
		}
	}
	return nil
}

// documents collects what JSON or YAML documents have.
func (f *finder) documents(text, name string, isYAML bool) error {
	outer, read := f.yaml, readJSON
	if isYAML {
		read = readYAML
	}
	docs, err := read(text)
	f.yaml = isYAML
	for _, d := range docs {
		if f.place(d); isYAML && plain(d).Kind == yaml.ScalarNode {
			continue // not YAML, but any text
		}
		f.node(d, name)
	}
	f.yaml = outer
	return err
}

// properties adds the connector of Java properties.
func (f *finder) properties(pairs []pair) {
	has := func(key string) bool {
		return slices.ContainsFunc(pairs, func(p pair) bool { return p.key == key })
	}
	switch {
	case has(serverPrefix + "source.connector.class"):
		in := &Input{form: formServer}
		in.fromServer(pairs)
		f.add(in)
	case has("connector.class"):
		in := &Input{form: formProperties}
		for _, p := range pairs {
			in.add(p.key, p.key, p.value)
			in.entries[len(in.entries)-1].line = p.line
		}
		f.add(in)
	}
}

// node collects what a tree has. name is what its surroundings call it.
func (f *finder) node(n *yaml.Node, name string) {
	if f.level++; f.level > maxDepth {
		f.level--
		return
	}
	defer func() { f.level-- }()
	n = plain(n)
	if n.Kind == yaml.MappingNode {
		f.mapping(n, name)
		return
	}
	if n.Kind == yaml.ScalarNode {
		f.embedded(n, name)
	}
	for _, item := range n.Content {
		f.node(item, name)
	}
}

// embedded collects what a text in a document has, such as a file in a ConfigMap. Its lines are those of the file if it
// has them, as a block of YAML with | does.
func (f *finder) embedded(n *yaml.Node, name string) {
	text := n.Value
	if f.depth > 2 || !strings.ContainsAny(text, "\n{") || !compileOnce(`connector\.class|DEBEZIUM_SOURCE_`).MatchString(text) {
		return
	}
	outer := *f
	f.depth++
	if f.before = n.Line; n.Style != yaml.LiteralStyle {
		f.inside = n.Line
	}
	before := len(f.found)
	if err := f.text(text, name); err != nil && len(f.found) == before && classMark().MatchString(text) {
		f.add(&Input{form: formREST, Name: name, broken: fmt.Errorf("in the text at line %d: %w", n.Line, err)})
	}
	f.depth, f.before, f.inside = outer.depth, outer.before, outer.inside
}

// nameFor returns what the map n calls a connector in its member m. A text has the name of its file.
func nameFor(n *yaml.Node, m member) string {
	switch ext := path.Ext(m.key); {
	case slices.Contains([]string{".json", ".yaml", ".yml", ".properties"}, ext):
		return strings.TrimSuffix(m.key, ext)
	case m.key == "config":
		return textOf(n, "name")
	case m.key == "connectorConfiguration": // of Amazon MSK Connect
		return textOf(n, "connectorName")
	case m.key == "body": // of a request, as in Ansible
		return nameInURL(textOf(n, "url"))
	case m.value.Kind == yaml.MappingNode:
		return m.key
	}
	return ""
}

// mapping collects what a map has.
func (f *finder) mapping(n *yaml.Node, name string) {
	if isCompose(n) {
		f.interpolate(n)
	}
	kind, config := textOf(n, "kind"), child(n, "config")
	_, flat := scalar(child(n, "connector.class"))
	_, nested := scalar(child(config, "connector.class"))
	switch {
	case kind == "KafkaConnector":
		f.add(fromStrimzi(n))
	case kind == "Connector": // of Confluent for Kubernetes
		spec := child(n, "spec")
		f.add(fromSpec(formYAML, spec, "configs", cmp.Or(textOf(spec, "name"), textOf(child(n, "metadata"), "name"))))
	case kind == "KafkaConnect":
		f.workers = append(f.workers, workerOfStrimzi(n))
	case kind == "DebeziumServer":
		f.add(fromOperator(n))
	case kind == "Template":
		fillTemplate(n)
		f.node(child(n, "objects"), name)
	case flat:
		f.add(f.fromMap(formConfig, n, name))
	case nested:
		in := f.fromMap(formREST, config, name)
		in.Name = cmp.Or(textOf(n, "name"), in.Name)
		f.add(in)
	case textOf(n, "class") != "" && config.Kind == yaml.MappingNode: // in the manner of Strimzi, as in Helm's values
		f.add(fromSpec(formYAML, n, "config", cmp.Or(textOf(n, "name"), name)))
	case f.serverMap(n):
	case f.variables(n, name):
	default:
		for _, m := range membersOf(n) {
			f.node(m.value, nameFor(n, m))
		}
	}
}

// add adds a connector.
func (f *finder) add(in *Input) {
	if e, ok := in.find("name"); ok && in.Name == "" {
		in.Name = e.value
	}
	if strings.Contains(in.Name, "${") { // a placeholder
		in.Name = ""
	}
	f.found = append(f.found, in)
}

// fromMap returns the connector whose keys a map has. form is that of JSON.
func (f *finder) fromMap(form string, n *yaml.Node, name string) *Input {
	if f.yaml {
		form = formYAML
	}
	in := &Input{form: form}
	in.addMembers(n, "")
	if e, ok := in.find("name"); ok {
		name = e.value
	}
	in.Name = name
	return in
}

// addMembers adds the keys of a map. where is its place in the file.
func (in *Input) addMembers(n *yaml.Node, where string) {
	in.repeated = append(in.repeated, repeated(n)...)
	for _, m := range membersOf(n) {
		text, ok := scalar(m.value)
		switch {
		case ok:
			in.add(m.key, m.key, text)
			in.entries[len(in.entries)-1].line = m.line
		case m.value.Kind != yaml.ScalarNode && in.broken == nil:
			in.broken = noText(m, where)
		}
	}
}

// noText returns the error about a member that is a list or a map. where is the place of its map in the file.
func noText(m member, where string) error {
	return fmt.Errorf("line %d: %s%s: a text is required", m.line, where, m.key)
}

// fillTemplate replaces the parameters of an OpenShift template by their values. A parameter without one stays.
func fillTemplate(n *yaml.Node) {
	var values []string
	for _, p := range child(n, "parameters").Content {
		if value, ok := scalar(child(p, "value")); ok {
			parameter := textOf(plain(p), "name")
			values = append(values, "${{"+parameter+"}}", value, "${"+parameter+"}", value)
		}
	}
	fill(child(n, "objects"), strings.NewReplacer(values...).Replace)
}

// fill replaces the texts of a tree.
func fill(n *yaml.Node, filled func(string) string) {
	if n.Kind == yaml.ScalarNode {
		n.Value = filled(n.Value)
	}
	for _, c := range n.Content {
		fill(c, filled)
	}
}
