package debezium

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// linesOfVariables returns the environment variables of a file with a NAME=value in each line.
func linesOfVariables(text string) []pair {
	var out []pair
	n := 0
	for line := range strings.Lines(text) {
		n++
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if name = strings.TrimSpace(name); !ok || strings.HasPrefix(name, "#") {
			continue
		}
		out = append(out, pair{name, withoutComment(strings.TrimSpace(value)), n})
	}
	return out
}

// withoutComment returns a value of such a line without its quotes, and without a comment after it.
func withoutComment(value string) string {
	if m := compileOnce(`^(?:"([^"]*)"|'([^']*)')(?:\s+#.*)?$`).FindStringSubmatch(value); m != nil {
		return m[1] + m[2]
	}
	return strings.TrimSpace(compileOnce(`(^|\s)#.*$`).ReplaceAllString(value, ""))
}

// variables collects what the environment of a container has, in a compose file or in Kubernetes' resources. It reports
// whether n is a container with an environment for us.
func (f *finder) variables(n *yaml.Node, name string) bool {
	vars := variablesOf(child(n, "environment"))
	if vars == nil {
		vars = variablesOf(child(n, "env"))
	}
	return f.container(vars, textOf(n, "image"), name, templateIn(n))
}

// container collects what the environment of a container has. broken is why it cannot be read; nil: it can. It reports whether
// the container is Debezium Server or a Connect worker.
func (f *finder) container(vars []pair, image, name string, broken error) bool {
	for _, v := range vars {
		switch {
		case v.key == "DEBEZIUM_SOURCE_CONNECTOR_CLASS":
			in := fromEnvironment(vars)
			in.broken = broken
			f.add(in)
			return true
		case isWorkerVariable(v.key) && !strings.Contains(image, "/debezium-ui"):
			w := workerOfVariables(vars, image, name)
			w.broken = broken
			for _, p := range w.pairs {
				if text := (entry{value: p.value, line: p.line}).defaulted(f.defaults); text != "" {
					w.note(p.key, text)
				}
			}
			f.workers = append(f.workers, w)
			return true
		}
	}
	return false
}

// variablesOf returns the variables of a map, or of a list of NAME=value or of {name, value}.
func variablesOf(n *yaml.Node) []pair {
	var out []pair
	for _, m := range membersOf(n) {
		if value, ok := scalar(m.value); ok {
			out = append(out, pair{m.key, value, m.line})
		}
	}
	if n.Kind != yaml.SequenceNode {
		return out
	}
	for _, item := range n.Content {
		item = plain(item)
		if text, ok := scalar(item); ok {
			name, value, _ := strings.Cut(text, "=")
			out = append(out, pair{name, value, item.Line})
		} else if name := textOf(item, "name"); name != "" {
			value, ok := scalar(child(item, "value"))
			if !ok {
				value = "${" + name + "}" // of a secret or a ConfigMap
			}
			out = append(out, pair{name, value, item.Line})
		}
	}
	return out
}

// isCompose reports whether a map is a compose file.
func isCompose(n *yaml.Node) bool {
	return slices.ContainsFunc(membersOf(child(n, "services")), func(m member) bool {
		return child(m.value, "image").Kind+child(m.value, "build").Kind+child(m.value, "environment").Kind != 0
	})
}

// interpolate replaces the variables of a compose file by their defaults, and $$ by $. A variable without default stays.
// https://docs.docker.com/reference/compose-file/interpolation/
func (f *finder) interpolate(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		f.noteDefaults(n.Value, func(line int) int {
			if n.Style == yaml.LiteralStyle {
				return n.Line + line
			}
			return n.Line
		})
		n.Value = compileOnce(`\$(\$)|\$\{[A-Za-z_][A-Za-z0-9_]*:?-([^}]*)\}`).ReplaceAllString(n.Value, "$1$2")
	}
	for _, c := range n.Content {
		f.interpolate(c)
	}
}

// noteDefaults adds the variables with a default in a text to the defaults. place returns the line in the file of a line of
// the text.
func (f *finder) noteDefaults(text string, place func(line int) int) {
	line := 0
	for l := range strings.Lines(text) {
		line++
		for _, m := range compileOnce(`\$\{(\w+):?-([^}]+)\}`).FindAllStringSubmatch(l, -1) {
			f.defaults = append(f.defaults, pair{m[1], m[2], place(line)})
		}
	}
}

// defaulted returns what to say of an entry if its value has the default of a variable. defaults are those of the file.
func (e entry) defaulted(defaults []pair) string {
	for _, d := range defaults {
		if d.line == e.line && strings.Contains(e.value, d.value) && !strings.Contains(e.value, "${"+d.key) {
			return fmt.Sprintf("%sthis has the default of ${%s}: if an environment or a file .env sets %[2]s, put that value into the file", e.where(), d.key)
		}
	}
	return ""
}
