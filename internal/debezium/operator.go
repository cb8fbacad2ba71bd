package debezium

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fromOperator returns the connector of a DebeziumServer, the resource of Debezium's operator, which writes the properties of
// Debezium Server: https://debezium.io/documentation/reference/stable/operations/debezium-operator.html
func fromOperator(n *yaml.Node) *Input {
	spec := child(n, "spec")
	source, sink, format := child(spec, "source"), child(spec, "sink"), child(spec, "format")
	pairs := slices.Concat(
		textAt(source, "class", "source.connector.class"), offsetsOf(child(source, "offset")), propertiesOf(child(source, "config"), serverPrefix+"source"),
		textAt(sink, "type", "sink.type"), propertiesOf(child(sink, "config"), serverPrefix+"sink."+textOf(sink, "type")),
	)
	for _, part := range []string{"key", "value", "header"} {
		pairs = append(pairs, withConfig(child(format, part), "format."+part, "format."+part)...)
	}
	var transforms, predicates []string
	for i, t := range child(spec, "transforms").Content {
		transforms = append(transforms, fmt.Sprintf("t%d", i)) // as the operator calls them
		at := "transforms." + transforms[i]
		pairs = slices.Concat(pairs, withConfig(t, at+".type", at), textAt(t, "predicate", at+".predicate"), textAt(t, "negate", at+".negate"))
	}
	for _, p := range membersOf(child(spec, "predicates")) {
		predicates = append(predicates, p.key)
		pairs = append(pairs, withConfig(p.value, "predicates."+p.key+".type", "predicates."+p.key)...)
	}
	for key, names := range map[string][]string{"transforms": transforms, "predicates": predicates} {
		if len(names) > 0 {
			pairs = append(pairs, pair{serverPrefix + key, strings.Join(names, ","), child(spec, key).Line})
		}
	}
	pairs = append(pairs, propertiesOf(child(child(spec, "quarkus"), "config"), "quarkus")...)
	in := &Input{form: formOperator, Name: textOf(child(n, "metadata"), "name"), broken: templateIn(n)}
	in.fromServer(pairs)
	return in
}

// offsetsOf returns the properties of the map that says where the offsets are stored.
func offsetsOf(n *yaml.Node) []pair {
	pairs := textAt(child(n, "file"), "fileName", "source.offset.storage.file.filename")
	for _, m := range membersOf(n) {
		if m.key != "file" {
			pairs = append(pairs, pair{serverPrefix + "source.offset.storage", m.key, m.line})
		}
	}
	return pairs
}

// withConfig returns the properties of a map with type and config.
func withConfig(n *yaml.Node, kind, config string) []pair {
	return append(textAt(n, "type", kind), propertiesOf(child(n, "config"), serverPrefix+config)...)
}

// textAt returns the property with the text of a key of a map, or none.
func textAt(n *yaml.Node, key, property string) []pair {
	value := child(n, key)
	text, ok := scalar(value)
	if !ok {
		return nil
	}
	return []pair{{serverPrefix + property, text, value.Line}}
}
