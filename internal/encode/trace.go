package encode

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// parentHeader is the header with the trace context: https://www.w3.org/TR/trace-context/.
const parentHeader = "traceparent"

// maxContext is the maximum size of a trace context, in bytes. Propagators drop a baggage of more than 8 KiB
// and a state of more than 512 characters. The limit matters because each header is compared with all
// earlier ones.
const maxContext = 64 << 10

// traceContext adds the headers of the trace context column, unchanged. The column has one of three
// formats: a JSON object, as a propagator fills a map; lines of name=value, as java.util.Properties and
// Debezium's libraries write them; or just a traceparent. traceContext never rejects a row: it adds any
// other text as a traceparent, which consumers ignore.
//
// It leaves out names of existing headers and names that only the relay may use, and a context of more than
// maxContext bytes.
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

// traceHeader adds a header, unless the record already has one of that name.
func (b *builder) traceHeader(name string, value []byte) {
	if value == nil {
		value = []byte{} // an empty header is not null
	}
	if b.r.isOwnHeader(name) || slices.ContainsFunc(b.rec.Headers, func(h sink.Header) bool { return h.Key == name }) {
		return
	}
	b.header(name, value)
}

// traceProperties parses the format of java.util.Properties.store: comments, and lines of name=value in which
// a backslash escapes special characters.
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

// unescaped returns text without escaping backslashes.
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
