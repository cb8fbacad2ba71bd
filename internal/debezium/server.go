package debezium

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// serverPrefix is the prefix of the keys of Debezium Server:
// https://debezium.io/documentation/reference/stable/operations/debezium-server.html
const serverPrefix = "debezium."

// converterOfFormat returns the converter for a value of debezium.format.key and similar keys. It returns
// other formats unchanged. Headers have JSON only.
func converterOfFormat(part, format string) string {
	switch {
	case format == "json", format == "jsonbytearray":
		return jsonConverter
	case part == "header":
		return format
	case format == "simplestring":
		return stringConverter
	case format == "binary":
		return binaryConverter
	}
	return format
}

// inProd returns a key without its profiles, %prod. or %{prod,…}., if one of them is the profile of Quarkus in which Debezium Server
// runs, unless QUARKUS_PROFILE is set: https://quarkus.io/guides/config-reference#profiles
func inProd(key string) (name string, ok bool) {
	m := compileOnce(`^%(?:\{([^}]*)\}|([^.]*))\.(.+)$`).FindStringSubmatch(key)
	if m == nil {
		return key, false
	}
	for profile := range strings.SplitSeq(m[1]+m[2], ",") {
		if strings.TrimSpace(profile) == "prod" {
			return m[3], true
		}
	}
	return key, false
}

// fromServer adds the keys of Debezium Server under Kafka Connect's names.
func (in *Input) fromServer(pairs []pair) {
	in.server = true
	said := make(map[string]bool)
	names := make([]string, len(pairs)) // of the pairs, without profiles
	replaced := make(map[string]bool)   // keys that count with a profile
	for i, p := range pairs {
		var prod bool
		if names[i], prod = inProd(p.key); prod {
			replaced[names[i]] = true
		}
	}
	kafka := false
	for i, p := range pairs {
		kafka = kafka || names[i] == serverPrefix+"sink.type" && p.value == sinkKafka && !replaced[p.key]
	}
	for i, p := range pairs {
		name := names[i]
		if replaced[p.key] {
			in.add("server.%"+p.key, p.key, p.value)
			continue
		}
		key := serverKey(name)
		if strings.HasPrefix(key, producerPrefix) && !kafka { // of a sink that is not used
			key = "server." + strings.TrimPrefix(name, serverPrefix)
		}
		value := strings.ReplaceAll(p.value, "$$", "$")
		if value != p.value || !strings.HasPrefix(name, serverPrefix) {
			in.add(key, p.key, value)
		} else {
			in.add(key, p.key, serverExpression(key, value))
		}
		last := &in.entries[len(in.entries)-1]
		last.line = p.line
		if compileOnce(`\$\{\w+:[^}]`).MatchString(p.value) && takesReference(key) {
			last.lost = "; its default is not imported"
		}
		said[name] = true
		if part, ok := strings.CutPrefix(name, serverPrefix+"format."); ok && !strings.Contains(part, ".") {
			last.value = converterOfFormat(part, value)
		}
	}
	for _, part := range []string{"key", "value", "header"} {
		if said[serverPrefix+"format."+part+".class"] {
			in.overrideFormat(part)
		} else if !said[serverPrefix+"format."+part] {
			in.add(part+".converter", serverPrefix+"format."+part+" (default)", jsonConverter)
		}
		if schemas, ok := in.find("server.format.schemas.enable"); ok && !said[serverPrefix+"format."+part+".schemas.enable"] {
			in.add(part+".converter.schemas.enable", schemas.shown+" ("+part+")", schemas.value)
		}
	}
}

// overrideFormat makes format.….class the converter. The format's own class is only a default.
func (in *Input) overrideFormat(part string) {
	for i, e := range in.entries {
		switch e.key {
		case part + ".converter":
			in.entries[i].key = "server.format." + part
		case part + ".converter.class":
			in.entries[i].key = part + ".converter"
		}
	}
}

// serverKey returns Kafka Connect's name of a key of Debezium Server.
func serverKey(key string) string {
	rest, ok := strings.CutPrefix(key, serverPrefix)
	switch {
	case !ok:
		return "server." + key
	case strings.HasPrefix(rest, "source."):
		return strings.TrimPrefix(rest, "source.")
	case strings.HasPrefix(rest, "sink.kafka.producer."):
		return "producer.override." + strings.TrimPrefix(rest, "sink.kafka.producer.")
	case rest == "transforms" || rest == "predicates" || strings.HasPrefix(rest, "transforms.") || strings.HasPrefix(rest, "predicates."):
		return rest
	case rest == "format.schemas.enable":
		return "server." + rest
	case strings.HasPrefix(rest, "format."):
		part, option, _ := strings.Cut(strings.TrimPrefix(rest, "format."), ".")
		return strings.TrimSuffix(part+".converter."+option, ".")
	}
	return "server." + rest
}

// serverProvider is the provider in references to expressions that only Debezium Server can evaluate.
const serverProvider = "server:"

// serverExpression converts ${NAME} and ${NAME:default}, which Debezium Server reads from its environment, to a reference:
// to Kafka Connect's environment provider, without the default, or to serverProvider for a key that takes no references.
// https://smallrye.io/smallrye-config/Main/config/expressions/
func serverExpression(key, value string) string {
	reference := "$${env:$1}"
	if !takesReference(key) {
		reference = "$${" + serverProvider + "$1$2}"
	}
	return compileOnce(`\$\{([A-Za-z_][A-Za-z0-9_.]*)(:[^}]*)?\}`).ReplaceAllString(value, reference)
}

// serverMap adds the connector of Debezium Server's application.yaml, and reports whether n is one.
func (f *finder) serverMap(n *yaml.Node) bool {
	pairs := propertiesOf(n, "")
	if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key == serverPrefix+"source.connector.class" }) {
		return false
	}
	in := &Input{form: formServerYAML, broken: templateIn(n)}
	in.fromServer(pairs)
	f.add(in)
	return true
}

// propertiesOf returns the properties of a map. The name of a property is that of the keys above it, joined with dots; "~"
// is the map itself. https://quarkus.io/guides/config-yaml
func propertiesOf(n *yaml.Node, at string) []pair {
	var out []pair
	for _, m := range membersOf(n) {
		key := strings.TrimPrefix(strings.TrimSuffix(at+"."+m.key, ".~"), ".")
		text, ok := scalar(m.value)
		if m.value.Kind == yaml.SequenceNode {
			var items []string
			for _, item := range m.value.Content {
				items = append(items, plain(item).Value)
			}
			text, ok = strings.Join(items, ","), true
		}
		if ok {
			out = append(out, pair{key, text, m.line})
		}
		if strings.Count(key, ".") < maxDepth {
			out = append(out, propertiesOf(m.value, key)...)
		}
	}
	return out
}

// fromEnvironment returns the connector of Debezium Server's environment variables.
func fromEnvironment(variables []pair) *Input {
	vars := make(map[string]pair)
	var names []string
	for _, v := range variables {
		if _, ok := vars[v.key]; !ok {
			names = append(names, v.key)
		}
		vars[v.key] = v
	}
	known := serverVariables(splitList(vars["DEBEZIUM_TRANSFORMS"].value), splitList(vars["DEBEZIUM_PREDICATES"].value))
	var pairs []pair
	shown := make(map[string]string)
	for _, name := range names {
		key, ok := known[name]
		switch {
		case ok:
		case strings.HasPrefix(name, "DEBEZIUM_"):
			key = strings.ToLower(strings.ReplaceAll(name, "_", "."))
		default:
			continue // of another program
		}
		shown[key] = name
		pairs = append(pairs, pair{key, vars[name].value, vars[name].line})
	}
	in := &Input{form: formServerEnv}
	in.fromServer(pairs)
	for i, e := range in.entries {
		if name, ok := shown[e.shown]; ok {
			in.entries[i].shown = name
		}
	}
	return in
}

// serverVariables returns the property for each environment variable. The name of a variable is that of the
// property in upper case, with underscores in place of all characters but letters and digits.
func serverVariables(transforms, predicates []string) map[string]string {
	properties := []string{"sink.type", "transforms", "predicates", "format.key", "format.value", "format.header", "format.schemas.enable"}
	for _, part := range []string{"key", "value", "header"} {
		properties = append(properties, "format."+part+".schemas.enable")
	}
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			switch key := r.key; {
			case strings.Contains(key, "*"):
			case strings.HasPrefix(key, "transforms.{"):
				_, option, _ := strings.Cut(key, "}")
				for _, alias := range transforms {
					properties = append(properties, "transforms."+alias+option)
				}
			case strings.HasPrefix(key, "predicates.{"):
				_, option, _ := strings.Cut(key, "}")
				for _, alias := range predicates {
					properties = append(properties, "predicates."+alias+option)
				}
			case strings.HasPrefix(key, "server."):
				properties = append(properties, strings.TrimPrefix(key, "server."))
			case strings.HasPrefix(key, producerPrefix):
				properties = append(properties, "sink.kafka.producer."+strings.TrimPrefix(key, producerPrefix))
			default:
				properties = append(properties, "source."+key)
			}
		}
	}
	out := make(map[string]string)
	for _, p := range properties {
		p = serverPrefix + p
		out[strings.ToUpper(compileOnce(`[^A-Za-z0-9]`).ReplaceAllString(p, "_"))] = p
	}
	return out
}

// splitList splits a comma-separated list and drops empty items.
func splitList(value string) []string {
	var out []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
