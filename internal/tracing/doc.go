// Package tracing makes a span of each record whose row brought a sampled trace context, and
// exports it by OTLP.
//
// The row's own span, in the application that wrote it, is the parent. The span begins with the
// commit and ends with Kafka's acknowledgement; the record names it as the parent of what its
// consumers do. So it has to be decided before the record is sent whether there will be a span:
// [Tracer.Begin] takes one of a fixed number that exist at a time, and where there is none left the
// record keeps the context it came with. Nobody ever waits for a span, and no record names one
// that was dropped for want of room.
//
// Spans are those of the semantic conventions for messaging, which are still in development:
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ and …/messaging/kafka/.
// The protocol is OTLP over HTTP with binary protobuf: https://opentelemetry.io/docs/specs/otlp/.
// It is written here because OpenTelemetry's exporter costs more than tracing is worth to a relay:
// 3.4 MB of program and 2 MB of memory if it exports nothing, 8 MB of memory if it exports much.
// docs/tracing.md has the measurement.
package tracing
