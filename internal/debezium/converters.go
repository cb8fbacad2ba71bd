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
		for _, option := range []string{"schemas.enable", "decimal.format", "converter.encoding", "delegate.converter.type", "delegate.converter.type.*"} {
			rules = append(rules, note(part+".converter."+option, "Part of the verdict on `"+part+".converter`."))
		}
		rules = append(rules,
			rule{
				key: part + ".converter.replace.null.with.default", verdicts: []verdict{noted, partial}, doc: "NULL stays NULL.",
				apply: func(m *mapping, e entry) (verdict, string) {
					if strings.EqualFold(e.value, "false") || m.value(part+".converter") != jsonConverter {
						return noted, "NULL stays NULL"
					}
					return partial, "a NULL stays one, and does not become the column's default"
				},
			},
			note(part+".converter.*", "An option that the converter ignores, or that has no effect on the bytes."),
		)
	}
	return append(rules, note("internal.key.converter*", "Kafka Connect ignores it."), note("internal.value.converter*", "Kafka Connect ignores it."))
}

// converterRule returns the rule for key.converter, value.converter or header.converter.
func converterRule(part string) rule {
	r := rule{
		key: part + ".converter", ours: "outbox.encoding." + part, verdicts: []verdict{same, partial, rejected},
		doc: "StringConverter is `string`, JsonConverter `json` or, with its default `schemas.enable=true`, `json-schema`; ByteArrayConverter is `bytes`, and so is BinaryDataConverter, with its delegate in `debezium." + part + "_delegate`." +
			" Without it the worker's counts (`--worker`).",
		apply: func(m *mapping, e entry) (verdict, string) { return m.convert(part, e.value, m.value) },
		absent: func(m *mapping) (verdict, string) {
			class, worker := m.worker[part+".converter"].value, func(key string) string { return m.worker[key].value }
			switch text := unfilled(m.worker[part+".converter"]); {
			case text != "":
				return rejected, "of the worker: " + m.worker[part+".converter"].where() + text
			case class == "" && part == "header":
				return m.convert(part, simpleConverter, worker)
			case class == "":
				return rejected, m.noConverter()
			}
			v, text := m.convert(part, class, worker)
			if m.has(part + ".converter.schemas.enable") {
				text += "; " + part + ".converter.schemas.enable has no effect without " + part + ".converter"
			}
			return v, "of the worker: " + text
		},
	}
	if part == "header" {
		r.ours, r.verdicts = "outbox.encoding.headers", []verdict{same, partial, rejected}
		r.doc = "SimpleHeaderConverter (the default) is `simple`, StringConverter `string`, JsonConverter `json` or `json-schema`. Default: the worker's (`--worker`). With Debezium Server's sink `http` always `simple`."
	}
	return r
}

// encodingOf returns the encoding that is a converter. at is the key that names it, and option returns the options
// from the place that does.
func (m *mapping) encodingOf(class, at string, option func(string) string) (encoding, refusal string) {
	switch class {
	case stringConverter:
		if charset := option(at + ".converter.encoding"); charset != "" && !strings.EqualFold(strings.ReplaceAll(charset, "-", ""), "utf8") {
			return "", "converter.encoding: text is written as UTF-8"
		}
		return encString, ""
	case simpleConverter:
		return encSimple, ""
	case jsonConverter:
		if format := option(at + ".decimal.format"); format != "" && !strings.EqualFold(format, "base64") {
			return "", "decimal.format: decimals are written as BASE64; decimal.handling.mode=string or double writes them as text or number"
		}
		schemas := option(at + ".schemas.enable")
		if schemas == "" {
			return encJSONSchema, ""
		}
		on, refusal := boolean(entry{value: schemas})
		if on {
			return encJSONSchema, ""
		} else if refusal != "" {
			refusal = "schemas.enable: " + refusal
		}
		return encJSON, refusal
	case bytesConverter, binaryConverter, bufferConverter:
		return encBytes, ""
	}
	switch {
	case strings.Contains(class, "."):
	case !m.in.server:
		return "", fmt.Sprintf("%q: write the name of the class with its package, such as %s", class, stringConverter)
	case at == "header.converter":
		return "", fmt.Sprintf("format %q: Debezium Server has only json for headers, and does not start; use json, or a class in debezium.format.header.class", class)
	default:
		return "", fmt.Sprintf("format %q is not supported; use json, simplestring or binary", class)
	}
	return "", fmt.Sprintf("%q is not supported; use StringConverter, JsonConverter, ByteArrayConverter, BinaryDataConverter and, for headers, SimpleHeaderConverter", class)
}

// convert imports a converter. option returns the options from the place that names the converter.
func (m *mapping) convert(part, class string, option func(string) string) (verdict, string) {
	if m.sink() == sinkHTTP && part != "value" {
		return m.convertToAttribute(part)
	}
	at := part + ".converter"
	encoding, refusal := m.encodingOf(class, at, option)
	if refusal != "" {
		return rejected, refusal
	}
	switch part {
	case "header":
		m.out.Outbox.Encoding.Headers = encoding
		if encoding == encBytes {
			return rejected, class + " fails at the header id, which is text: takes SimpleHeaderConverter, StringConverter, JsonConverter"
		}
		return same, "outbox.encoding.headers: " + encoding
	case "key", "value":
		if encoding == encSimple {
			return rejected, class + " is for headers"
		}
	}
	if delegate := option(at + delegateOption); encoding == encBytes && class != bytesConverter && delegate != "" {
		return m.delegate(part, delegate, option)
	}
	return m.setEncoding(part, encoding)
}

// delegateOption is the option with the converter for everything that is not bytea.
const delegateOption = ".delegate.converter.type"

// delegate imports BinaryDataConverter with a delegate. It sends bytea as it is, and leaves everything else to the
// delegate: other columns, an envelope, the members of an expanded payload.
func (m *mapping) delegate(part, class string, option func(string) string) (verdict, string) {
	encoding, refusal := m.encodingOf(class, part+".converter"+delegateOption, option)
	if refusal == "" && !slices.Contains([]string{encString, encJSON, encJSONSchema}, encoding) {
		refusal = class + " writes no text"
	}
	object := part == "value" && (m.placesEnvelope() || m.expands())
	switch {
	case refusal != "" && object:
		return rejected, "the delegate writes the value, which is an object: " + refusal
	case refusal != "":
		_, text := m.setEncoding(part, encBytes)
		return partial, text + " only: the delegate is not supported, and the relay refuses a column of another type; " + refusal
	case part == "value" && m.placesEnvelope():
		v, text := m.setEncoding(part, encoding)
		return v, text + ", of the delegate: an envelope is not bytea"
	case object && encoding == encString:
		return rejected, m.refuseValue(encoding)
	case part == "value":
		m.extras.ValueDelegate = encoding
	default:
		m.extras.KeyDelegate = encoding
	}
	m.encodingField(part, encBytes)
	return same, fmt.Sprintf("outbox.encoding.%s: bytes, for a bytea column, and debezium.%s_delegate: %s for any other", part, part, encoding)
}

// encodingField sets the encoding of the key or value.
func (m *mapping) encodingField(part, encoding string) {
	if part == "key" {
		m.out.Outbox.Encoding.Key = encoding
	} else {
		m.out.Outbox.Encoding.Value = encoding
	}
}

// setEncoding sets the encoding of the key or value, and returns the verdict on its converter.
func (m *mapping) setEncoding(part, encoding string) (verdict, string) {
	m.encodingField(part, encoding)
	if part == "value" {
		if refusal := m.refuseValue(encoding); refusal != "" {
			return rejected, refusal
		}
	}
	ours := "outbox.encoding." + part + ": " + encoding
	switch {
	case encoding == encBytes:
		return same, ours + ", for a bytea column"
	case part == "key" && encoding == encJSON:
		return same, ours + ": quotes are part of the key, and decide its partition"
	case part == "key" && encoding == encJSONSchema:
		return same, ours + ": the schema is part of the key, and decides its partition"
	case part == "value" && encoding == encJSON && !m.extras.ExpandPayload && !m.placesEnvelope():
		return same, ours + ": a JSON payload is a string of JSON, as it was"
	}
	return same, ours
}

// expands reports whether the payload is expanded.
func (m *mapping) expands() bool {
	on, _ := boolean(entry{value: m.router("table.expand.json.payload")})
	return on
}

// refuseValue returns why an encoding cannot encode the value that the router makes, or "" if it can.
func (m *mapping) refuseValue(encoding string) string {
	expand, envelope := m.expands(), m.placesEnvelope()
	switch {
	case encoding == encJSON || encoding == encJSONSchema || !envelope && !expand:
		return ""
	case encoding == encBytes:
		return "it writes bytea only, and an envelope or an expanded payload is an object: Debezium fails at the first row; use JsonConverter"
	case envelope:
		return "with an envelope it writes Java's text Struct{…}, which nobody can read: use JsonConverter, or header placements"
	}
	return "of an expanded payload it writes Java's text Struct{…}, which nobody can read: remove table.expand.json.payload, and the value is the JSON itself"
}
