package tracing

import (
	"net"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers and enumeration values are those of
// https://github.com/open-telemetry/opentelemetry-proto (collector/trace/v1, trace/v1,
// resource/v1, common/v1).

// schemaURL is the version of the semantic conventions that the attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// scopeName is the name of the instrumentation scope.
const scopeName = "github.com/outbox-cdc/outbox-cdc"

const (
	kindProducer  = 4
	statusOfError = 2

	// parentIsRemote: it is known whether the parent is of another process, and it is.
	parentIsRemote = 0x100 | 0x200
)

// An encoder appends the fields of a protobuf message.
type encoder []byte

func (m *encoder) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

// text appends a field, unless s is empty.
func (m *encoder) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

func (m *encoder) varint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *encoder) fixed64(field protowire.Number, v int64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), uint64(v))
}

func (m *encoder) fixed32(field protowire.Number, v uint32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, field, protowire.Fixed32Type), v)
}

// sub appends a message as a field. Its length precedes it, so sub writes the message first and then moves
// it to make room for the length.
func (m *encoder) sub(field protowire.Number, write func(m *encoder)) {
	*m = protowire.AppendTag(*m, field, protowire.BytesType)
	start := len(*m)
	write(m)
	size := len(*m) - start
	length := protowire.SizeVarint(uint64(size))
	for range length {
		*m = append(*m, 0)
	}
	copy((*m)[start+length:], (*m)[start:start+size])
	protowire.AppendVarint((*m)[start:start], uint64(size))
}

// The fields of a KeyValue, and of an AnyValue.
const (
	keyField, valueField              = 1, 2
	textValue, boolValue, numberValue = 1, 2, 3
)

// attribute appends a KeyValue as a field. value appends its value.
func (m *encoder) attribute(field protowire.Number, name string, value func(m *encoder)) {
	m.sub(field, func(m *encoder) {
		m.text(keyField, name)
		m.sub(valueField, value)
	})
}

func (m *encoder) textAttribute(field protowire.Number, name, value string) {
	m.attribute(field, name, func(m *encoder) {
		*m = protowire.AppendString(protowire.AppendTag(*m, textValue, protowire.BytesType), value)
	})
}

func (m *encoder) intAttribute(field protowire.Number, name string, value int64) {
	m.attribute(field, name, func(m *encoder) { m.varint(numberValue, uint64(value)) })
}

// encodeResource returns the Resource of all spans.
func encodeResource(cfg *Config) []byte {
	attributes := []Attribute{{"service.name", cfg.Service}, {"service.version", cfg.Version}}
	for _, a := range cfg.Resource {
		replaced := false
		for i := range attributes {
			if attributes[i].Name == a.Name {
				attributes[i], replaced = a, true
			}
		}
		if !replaced {
			attributes = append(attributes, a)
		}
	}
	var m encoder
	for _, a := range attributes {
		m.textAttribute(1, a.Name, a.Value)
	}
	return m
}

// encodeScope returns the InstrumentationScope of all spans.
func encodeScope(cfg *Config) []byte {
	var m encoder
	m.text(1, scopeName)
	m.text(2, cfg.Version)
	return m
}

// encode appends an ExportTraceServiceRequest of batch to dst.
func (t *Tracer) encode(dst []byte, batch []*span) []byte {
	m := encoder(dst)
	m.sub(1, func(m *encoder) { // ResourceSpans
		m.bytes(1, t.resource)
		m.sub(2, func(m *encoder) { // ScopeSpans
			m.bytes(1, t.scope)
			for _, s := range batch {
				m.sub(2, func(m *encoder) { s.encode(m, &t.cfg) })
			}
			m.text(3, schemaURL)
		})
	})
	return m
}

// encode writes a Span.
func (s *span) encode(m *encoder, cfg *Config) {
	m.bytes(1, s.parent.TraceID[:])
	m.bytes(2, s.id[:])
	m.text(3, string(s.state))
	m.bytes(4, s.parent.spanID[:])
	m.text(5, "send "+s.topic)
	m.varint(6, kindProducer)
	m.fixed64(7, s.start)
	m.fixed64(8, s.end)
	s.attributes(m, cfg)
	m.sub(11, func(m *encoder) { // Event
		m.fixed64(1, s.handed)
		m.text(2, "handed to producer")
	})
	if s.failure != "" {
		m.sub(15, func(m *encoder) { // Status
			m.text(2, s.reason)
			m.varint(3, statusOfError)
		})
	}
	m.fixed32(16, uint32(s.parent.flags)|parentIsRemote)
}

// attributes appends the attributes of the semantic conventions for messaging, and the commit LSN.
func (s *span) attributes(m *encoder, cfg *Config) {
	const field = 9
	m.textAttribute(field, "messaging.system", cfg.System)
	kafka := cfg.System == "kafka"
	m.textAttribute(field, "messaging.operation.type", "send")
	m.textAttribute(field, "messaging.operation.name", "send")
	m.textAttribute(field, "messaging.client.id", cfg.ClientID)
	m.textAttribute(field, "messaging.destination.name", s.topic)
	if s.partition >= 0 {
		m.textAttribute(field, "messaging.destination.partition.id", strconv.Itoa(int(s.partition)))
	}
	if s.offset >= 0 && kafka {
		m.intAttribute(field, "messaging.kafka.offset", s.offset)
	}
	if len(s.message) > 0 {
		m.textAttribute(field, "messaging.message.id", string(s.message))
	}
	if s.flags&hasKey != 0 {
		name := "outbox_cdc.message.key"
		if kafka {
			name = "messaging.kafka.message.key"
		}
		m.textAttribute(field, name, string(s.key))
	}
	m.intAttribute(field, "messaging.message.body.size", int64(s.size))
	if s.flags&tombstone != 0 && kafka {
		m.attribute(field, "messaging.kafka.message.tombstone", func(m *encoder) { m.varint(boolValue, 1) })
	}
	if host, port, err := net.SplitHostPort(s.broker); err == nil {
		m.textAttribute(field, "server.address", host)
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			m.intAttribute(field, "server.port", int64(n))
		}
	}
	m.textAttribute(field, "outbox_cdc.commit_lsn", s.lsn.String())
	if s.failure != "" {
		m.textAttribute(field, "error.type", strings.ToValidUTF8(s.failure, "\uFFFD"))
	}
}

// partialSuccess parses an ExportTraceServiceResponse. It returns how many spans were rejected, and why.
func partialSuccess(response []byte) (rejected uint64, why string) {
	fields(response, func(field protowire.Number, kind protowire.Type, partial []byte) {
		if field != 1 || kind != protowire.BytesType {
			return
		}
		partial, _ = protowire.ConsumeBytes(partial)
		fields(partial, func(field protowire.Number, kind protowire.Type, value []byte) {
			switch {
			case field == 1 && kind == protowire.VarintType:
				rejected, _ = protowire.ConsumeVarint(value)
			case field == 2 && kind == protowire.BytesType:
				text, _ := protowire.ConsumeBytes(value)
				why = string(text)
			}
		})
	})
	return rejected, why
}

// fields calls each for the encoded value of every field of a message. It stops at the first invalid field.
func fields(m []byte, each func(field protowire.Number, kind protowire.Type, value []byte)) {
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return
		}
		m = m[n:]
		if n = protowire.ConsumeFieldValue(field, kind, m); n < 0 {
			return
		}
		each(field, kind, m[:n])
		m = m[n:]
	}
}
