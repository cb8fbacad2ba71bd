package encode

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// parentHeader holds the context of a trace: https://www.w3.org/TR/trace-context/.
const parentHeader = "traceparent"

// maxContext is the size of the largest trace context that is passed on. The specifications have
// propagators drop a baggage beyond 8 KiB and a state beyond 512 characters, and each header is compared
// with those before it.
const maxContext = 64 << 10

// traceContext adds the headers that the column of the trace context holds, as it is written. It
// takes the three forms that writers use: a JSON object, as a propagator fills a map; lines of
// name=value, as java.util.Properties are stored and Debezium's libraries write them; and else a
// traceparent alone. A row is never refused for its trace: what is none of them is passed on too,
// and tells a consumer nothing.
//
// A name that the row has a header of already, or that only the relay may give, is left out, and so is a
// context of more than maxContext bytes.
func (b *builder) traceContext(f *field) {
	v := b.text(f)
	switch {
	case len(v) == 0, len(v) > maxContext:
	case v[0] == '{' && jsontext.Valid(v):
		members := gjson.Parse(unsafe.String(unsafe.SliceData(v), len(v))) //nolint:gosec // v is not written to meanwhile
		members.ForEach(func(name, member gjson.Result) bool {
			if member.Type != gjson.Null {
				b.traceHeader(name.Str, bytesOf(member.String()))
			}
			return true
		})
	case bytes.IndexByte(v, '=') >= 0:
		b.traceProperties(v)
	default:
		b.traceHeader(parentHeader, v)
	}
}

// traceHeader adds a header, unless there is one of that name.
func (b *builder) traceHeader(name string, value []byte) {
	if value == nil {
		value = []byte{} // an empty header is not a null one
	}
	if isOwnHeader(name) || slices.ContainsFunc(b.rec.Headers, func(h sink.Header) bool { return h.Key == name }) {
		return
	}
	b.header(name, value)
}

// traceProperties reads what java.util.Properties.store writes: lines of name=value, in which a
// backslash is before what would mean something else, and comments.
func (b *builder) traceProperties(text []byte) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		if name, value, ok := bytes.Cut(line, []byte("=")); ok {
			b.traceHeader(string(bytes.TrimSpace(name)), b.unescaped(bytes.TrimSpace(value)))
		}
	}
}

// unescaped returns text without the backslashes that escape.
func (b *builder) unescaped(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	start := len(b.r.scratch)
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.r.scratch = append(b.r.scratch, text[i])
	}
	return b.r.scratch[start:len(b.r.scratch):len(b.r.scratch)]
}
