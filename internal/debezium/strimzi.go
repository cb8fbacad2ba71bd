package debezium

import (
	"go.yaml.in/yaml/v3"
)

// fromStrimzi returns the connector of a KafkaConnector: https://strimzi.io/docs/operators/latest/configuring.html
func fromStrimzi(n *yaml.Node) *Input {
	return fromSpec(formStrimzi, child(n, "spec"), "config", textOf(child(n, "metadata"), "name"))
}

// fromSpec returns the connector of a map with class, tasksMax and a map of the other keys, which is its member config.
func fromSpec(form string, spec *yaml.Node, config, name string) *Input {
	in := &Input{form: form, Name: name}
	for _, m := range membersOf(spec) {
		text, ok := scalar(m.value)
		switch {
		case m.key == "class" && ok:
			in.add("connector.class", "spec.class", text)
		case m.key == "tasksMax" && ok:
			in.add("tasks.max", "spec.tasksMax", text)
		default:
			continue
		}
		in.entries[len(in.entries)-1].line = m.line
	}
	in.addMembers(child(spec, config), "spec."+config+".")
	return in
}
