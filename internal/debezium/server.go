package debezium

import (
	"regexp"
	"strings"
)

// serverPrefix is the prefix of the keys of Debezium Server:
// https://debezium.io/documentation/reference/stable/operations/debezium-server.html
const serverPrefix = "debezium."

// converterOfFormat returns the converter for a value of debezium.format.key and similar keys. It returns
// other formats unchanged.
func converterOfFormat(format string) string {
	switch format {
	case "json", "jsonbytearray":
		return jsonConverter
	case "simplestring":
		return stringConverter
	case "binary":
		return binaryConverter
	}
	return format
}

// fromServer adds the keys of Debezium Server under Kafka Connect's names.
func (in *Input) fromServer(pairs []pair) {
	in.server = true
	said := make(map[string]bool)
	for _, p := range pairs {
		value := strings.ReplaceAll(p.value, "$$", "$")
		if value != p.value || !strings.HasPrefix(p.key, serverPrefix) {
			in.add(serverKey(p.key), p.key, value)
		} else {
			in.add(serverKey(p.key), p.key, serverExpression(value))
		}
		said[p.key] = true
		if part, ok := strings.CutPrefix(p.key, serverPrefix+"format."); ok && !strings.Contains(part, ".") {
			in.entries[len(in.entries)-1].value = converterOfFormat(value)
		}
	}
	for _, part := range []string{"key", "value", "header"} {
		if !said[serverPrefix+"format."+part] {
			in.add(part+".converter", serverPrefix+"format."+part+" (default)", jsonConverter)
		}
		if schemas, ok := in.find("server.format.schemas.enable"); ok && !said[serverPrefix+"format."+part+".schemas.enable"] {
			in.add(part+".converter.schemas.enable", schemas.shown+" ("+part+")", schemas.value)
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

// serverExpression converts ${NAME} and ${NAME:default}, which Debezium Server reads from the environment, to
// a reference to Kafka Connect's environment provider.
func serverExpression(value string) string {
	return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:[^}]*)?\}`).ReplaceAllString(value, "$${env:$1}")
}

// parseEnvironment parses Debezium Server's configuration from environment variables, one NAME=value per
// line.
func parseEnvironment(text string) (*Input, error) {
	vars := make(map[string]string)
	var names []string
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if name = strings.TrimSpace(name); !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		if _, ok := vars[name]; !ok {
			names = append(names, name)
		}
		vars[name] = value
	}
	known := serverVariables(splitList(vars["DEBEZIUM_TRANSFORMS"]), splitList(vars["DEBEZIUM_PREDICATES"]))
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
		pairs = append(pairs, pair{key, vars[name]})
	}
	in := &Input{form: formServerEnv}
	in.fromServer(pairs)
	for i, e := range in.entries {
		if name, ok := shown[e.shown]; ok {
			in.entries[i].shown = name
		}
	}
	return in, in.check()
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
		out[strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(p, "_"))] = p
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
