package tracing

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// FuzzParseContext: ParseContext returns the same as OpenTelemetry's propagator. It also parses the output of
// AppendText.
func FuzzParseContext(f *testing.F) {
	for _, text := range []string{
		"", parent, parent + "-", parent + "-x", "01" + parent[2:], "01" + parent[2:] + "-more", "01" + parent[2:] + "more", "ff" + parent[2:],
		"fe" + parent[2:], strings.ToUpper(parent), strings.ReplaceAll(parent, "-", "_"), parent[:54], parent[:54] + "g", parent[:54] + "0", parent[:53] + "03",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-" + strings.Repeat("A", 32) + "-00f067aa0ba902b7-01",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{ParentHeader: text}))
		ours, ok := ParseContext([]byte(text))
		if ok != theirs.IsValid() {
			// For version 00, OpenTelemetry accepts a trailing dash, which the specification does not allow. It
			// rejects unknown flags, which the specification ignores.
			dash := len(text) == contextLen+1 && text[:2] == "00" && text[contextLen] == '-'
			unknown := ok && text[:2] == "00" && ours.flags > 3
			if !dash && !unknown {
				t.Fatalf("%q: %v, and OpenTelemetry says %v", text, ok, theirs.IsValid())
			}
			return
		}
		if !ok {
			return
		}
		if trace.TraceID(ours.TraceID) != theirs.TraceID() || trace.SpanID(ours.spanID) != theirs.SpanID() || ours.Sampled() != theirs.IsSampled() {
			t.Errorf("%q is %x, want %+v", text, ours, theirs)
		}
		again, ok := ParseContext(ours.AppendText(nil))
		if again != ours || !ok {
			t.Errorf("%q became %q", text, ours.AppendText(nil))
		}
	})
}

func TestContextText(t *testing.T) {
	c, ok := ParseContext([]byte(parent))
	if got := string(c.AppendText([]byte("x"))); !ok || got != "x"+parent || !c.Sampled() {
		t.Errorf("%q, %v", got, ok)
	}
	if c, ok := ParseContext([]byte(parent[:53] + "02")); !ok || c.Sampled() {
		t.Errorf("flags 02: %+v, %v", c, ok)
	}
}
