package debezium

import (
	"fmt"
	"slices"
	"strings"
)

// Classes of converters.
const (
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
	simpleConverter = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
	bytesConverter  = "org.apache.kafka.connect.converters.ByteArrayConverter"
	binaryConverter = "io.debezium.converters.BinaryDataConverter"
	bufferConverter = "io.debezium.converters.ByteBufferConverter"
)

// Encodings, as in outbox.encoding.
const (
	encString     = "string"
	encSimple     = "simple"
	encJSON       = "json"
	encJSONSchema = "json-schema"
	encBytes      = "bytes"
)

func converterRules() []rule {
	var rules []rule
	for _, part := range []string{"key", "value", "header"} {
		rules = append(rules, converterRule(part))
		for _, option := range []string{"schemas.enable", "delegate.converter.type", "delegate.converter.type.schemas.enable"} {
			rules = append(rules, note(part+".converter."+option, "Part of the verdict on `"+part+".converter`."))
		}
		rules = append(rules,
			note(part+".converter.schemas.cache.size", "No effect on the bytes."),
			note(part+".converter.plugin.version", "No effect on the bytes."),
			unless("false", part+".converter.replace.null.with.default", "NULL stays NULL.", "a NULL stays one, and does not become the column's default"),
			rule{
				key: part + ".converter.decimal.format", verdicts: []verdict{noted, rejected}, doc: "`BASE64`, the default.",
				apply: func(_ *mapping, e entry) (verdict, string) {
					if strings.EqualFold(e.value, "base64") {
						return noted, "the default"
					}
					return rejected, "decimals are written as BASE64; decimal.handling.mode=string or double writes them as text or number"
				},
			},
			rule{
				key: part + ".converter.converter.encoding", verdicts: []verdict{noted, rejected}, doc: "UTF-8.",
				apply: func(_ *mapping, e entry) (verdict, string) {
					if strings.EqualFold(strings.ReplaceAll(e.value, "-", ""), "utf8") {
						return noted, "the default"
					}
					return rejected, "text is written as UTF-8"
				},
			},
		)
	}
	return rules
}

// converterRule returns the rule for key.converter, value.converter or header.converter.
func converterRule(part string) rule {
	ours := "outbox.encoding." + part
	if part == "header" {
		ours = "outbox.encoding.headers"
	}
	doc := "StringConverter is `string`, JsonConverter `json` or, with its default `schemas.enable=true`, `json-schema`; ByteArrayConverter and BinaryDataConverter are `bytes`. Without it the worker's counts (`--worker`)."
	if part == "header" {
		doc = "SimpleHeaderConverter (the default) is `simple`, StringConverter `string`, JsonConverter `json` or `json-schema`. Default: the worker's (`--worker`)."
	}
	return rule{
		key: part + ".converter", ours: ours, verdicts: []verdict{same, rejected}, doc: doc,
		apply: func(m *mapping, e entry) (verdict, string) {
			return m.convert(part, e.value, m.value)
		},
		absent: func(m *mapping) (verdict, string) {
			class, worker := m.worker[part+".converter"], func(key string) string { return m.worker[key] }
			switch {
			case class == "" && part == "header":
				return m.convert(part, simpleConverter, worker)
			case class == "":
				return rejected, "the Connect worker decides, and with it every byte: give its properties with --worker"
			}
			v, text := m.convert(part, class, worker)
			if m.has(part + ".converter.schemas.enable") {
				text += "; " + part + ".converter.schemas.enable has no effect without " + part + ".converter"
			}
			return v, "of the worker: " + text
		},
	}
}

// convert imports a converter. option returns the options from the place that names the converter.
func (m *mapping) convert(part, class string, option func(string) string) (verdict, string) {
	var encoding string
	switch class {
	case stringConverter:
		encoding = encString
	case simpleConverter:
		encoding = encSimple
	case jsonConverter:
		encoding = encJSONSchema
		if schemas := option(part + ".converter.schemas.enable"); schemas != "" {
			on, refusal := boolean(entry{value: schemas})
			if refusal != "" {
				return rejected, "schemas.enable: " + refusal
			}
			if !on {
				encoding = encJSON
			}
		}
	case bytesConverter, binaryConverter, bufferConverter:
		encoding = encBytes
	default:
		return rejected, fmt.Sprintf("%q is not supported; use StringConverter, JsonConverter, ByteArrayConverter, BinaryDataConverter and, for headers, SimpleHeaderConverter", class)
	}
	switch part {
	case "key":
		m.out.Outbox.Encoding.Key = encoding
		if encoding == encSimple {
			return rejected, class + " is for headers"
		}
	case "value":
		m.out.Outbox.Encoding.Value = encoding
		if refusal := m.refuseValue(encoding); refusal != "" {
			return rejected, refusal
		}
	case "header":
		m.out.Outbox.Encoding.Headers = encoding
		if encoding == encBytes {
			return rejected, class + " fails at the header id, which is text: takes SimpleHeaderConverter, StringConverter, JsonConverter"
		}
		return same, "outbox.encoding.headers: " + encoding
	}
	return m.sayEncoding(part, encoding, class)
}

// refuseValue returns why an encoding cannot encode the value that the router makes, or "" if it can.
func (m *mapping) refuseValue(encoding string) string {
	expand, _ := boolean(entry{value: m.router("table.expand.json.payload")})
	envelope := m.places("envelope")
	switch {
	case encoding == encSimple:
		return "it is for headers"
	case encoding == encJSON || encoding == encJSONSchema || !envelope && !expand:
		return ""
	case encoding == encBytes:
		return "it writes bytea only, and an envelope or an expanded payload is an object: Debezium fails at the first row; use JsonConverter"
	case envelope:
		return "with an envelope it writes Java's text Struct{…}, which nobody can read: use JsonConverter, or header placements"
	}
	return "of an expanded payload it writes Java's text Struct{…}, which nobody can read: take table.expand.json.payload away, and the value is the JSON itself"
}

func (m *mapping) sayEncoding(part, encoding, class string) (verdict, string) {
	ours := "outbox.encoding." + part + ": " + encoding
	switch {
	case encoding == encBytes && class == binaryConverter && slices.Contains([]string{"key", "value"}, part):
		return same, ours + ", for a bytea column; the delegate is not needed"
	case encoding == encBytes:
		return same, ours + ", for a bytea column"
	case part == "key" && encoding == encJSON:
		return same, ours + ": quotes are part of the key, and decide its partition"
	case part == "key" && encoding == encJSONSchema:
		return same, ours + ": the schema is part of the key, and decides its partition"
	case part == "value" && encoding == encJSON && !m.extras.ExpandPayload && !m.places("envelope"):
		return same, ours + ": a JSON payload is a string of JSON, as it was"
	}
	return same, ours
}
