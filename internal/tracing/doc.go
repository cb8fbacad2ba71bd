// Package tracing makes a span for each record whose row has a sampled trace context, and exports the
// spans with OTLP.
//
// The parent of the span is the context of the row, from the application that wrote it. The span starts at
// the commit and ends when the broker acknowledges the record. The record has the context of the span, so
// that it becomes the parent of the consumers' spans.
//
// [Tracer.Start] is called before the record is sent, because the record needs the context. At most 2,048
// spans exist at a time. If there is no room, the record keeps the context of the row. So sending never
// waits for a span, and no record refers to a span that was dropped for lack of room. [Tracer.End] and
// [Tracer.Fail] end a span, and [Tracer.Run] exports it.
//
// The spans follow the semantic conventions for messaging, which are in development:
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ and …/messaging/kafka/.
// The protocol is OTLP over HTTP with binary protobuf: https://opentelemetry.io/docs/specs/otlp/.
// The package implements it, because OpenTelemetry's exporter adds 3.4 MB to the program and, in memory,
// 2 MB when idle and 8 MB under load. docs/tracing.md has the measurement.
package tracing
