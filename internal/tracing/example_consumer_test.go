package tracing_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headers lets a propagator read the headers of a record.
type headers struct{ *kgo.Record }

func (h headers) Get(name string) string {
	for _, header := range h.Headers {
		if header.Key == name {
			return string(header.Value)
		}
	}
	return ""
}

func (h headers) Set(string, string) {}

func (h headers) Keys() (names []string) {
	for _, header := range h.Headers {
		names = append(names, header.Key)
	}
	return names
}

// process handles a record within a span whose parent is that of the relay.
func process(ctx context.Context, record *kgo.Record, handle func(context.Context) error) error {
	ctx = propagation.TraceContext{}.Extract(ctx, headers{record})
	ctx, span := otel.Tracer("orders").Start(ctx, "process "+record.Topic, trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	return handle(ctx)
}

func Example_consumer() {
	record := &kgo.Record{Topic: "outbox.event.order", Headers: []kgo.RecordHeader{
		{Key: "id", Value: []byte("0191f7a2-7d0a-7b7e-9a53-0b2f6a1f6a11")},
		{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-53995c3f42cd8ad8-01")},
	}}
	err := process(context.Background(), record, func(ctx context.Context) error {
		fmt.Println(trace.SpanContextFromContext(ctx).TraceID())
		return nil
	})
	fmt.Println(err)
	// Output:
	// 4bf92f3577b34da6a3ce929d0e0e4736
	// <nil>
}
