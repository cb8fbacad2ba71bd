package tracing

import "encoding/hex"

// The headers of a trace context: https://www.w3.org/TR/trace-context/.
const (
	ParentHeader = "traceparent"
	StateHeader  = "tracestate"
)

// contextLen is the length of a traceparent of version 00.
const contextLen = 2 + 1 + 32 + 1 + 16 + 1 + 2

// A Context is a parsed traceparent. The zero value is no context.
type Context struct {
	TraceID [16]byte
	spanID  [8]byte
	flags   byte
}

// The known flags. A new context has no others (section 4.2 of the specification).
const (
	sampled = 1
	random  = 2 // the trace id is
)

// ParseContext parses a traceparent. Of a later version, it parses the fields of version 00, as the
// specification demands. ok is false for an invalid text and for ids of zeros.
func ParseContext(text []byte) (c Context, ok bool) {
	var version, flags [1]byte
	if len(text) < contextLen || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Context{}, false
	}
	if !unhex(version[:], text[:2]) || version[0] == 0xff ||
		!unhex(c.TraceID[:], text[3:35]) || !unhex(c.spanID[:], text[36:52]) || !unhex(flags[:], text[53:55]) {
		return Context{}, false
	}
	if longer := len(text) > contextLen; longer && (version[0] == 0 || text[contextLen] != '-') {
		return Context{}, false
	}
	c.flags = flags[0]
	return c, c.TraceID != [16]byte{} && c.spanID != [8]byte{}
}

// unhex decodes lower-case hexadecimal digits; upper-case ones are not allowed.
func unhex(dst, digits []byte) bool {
	for _, d := range digits {
		if 'A' <= d && d <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, digits)
	return err == nil
}

// Sampled reports whether the caller may have recorded the trace.
func (c Context) Sampled() bool { return c.flags&sampled != 0 }

// AppendText appends c as a traceparent of version 00.
func (c Context) AppendText(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, "00-"...), c.TraceID[:])
	dst = hex.AppendEncode(append(dst, '-'), c.spanID[:])
	return hex.AppendEncode(append(dst, '-'), []byte{c.flags})
}
