package tracing_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// newWriter returns a writer that puts the context's trace into the headers of each event.
func newWriter() (*outbox.Writer, error) {
	return outbox.NewWriter(outbox.Config{Trace: inject})
}

// inject returns the headers of the trace that ctx is in.
func inject(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}

func Example_writer() {
	_, err := newWriter()
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x4b, 0xf9}, SpanID: trace.SpanID{0xf0, 0x67}, TraceFlags: trace.FlagsSampled,
	}))
	fmt.Println(inject(ctx), err)
	// Output: map[traceparent:00-4bf90000000000000000000000000000-f067000000000000-01] <nil>
}
