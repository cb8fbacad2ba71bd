package jetstream

import (
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// How a record is written as headers of a message: see the package documentation.
const (
	KeyHeader    = "outbox_key"  // has the key
	NullHeader   = "outbox_null" // "value" if the value is null
	Base64Suffix = "_base64"
	NullSuffix   = "_null"
	NamePrefix   = "outbox_name_"

	idHeader     = "id"
	nullText     = "value"
	statusHeader = "Status"            // makes a message without payload one of the protocol
	notInNames   = `"()/,:;<=>?@[\]{}` // and control characters, spaces, and what is not ASCII
)

// An encoder makes messages of records. One goroutine uses it.
type encoder struct {
	header nats.Header
	values []string // for the values of header
}

// encode returns the headers of r. They are valid until the next call.
func (e *encoder) encode(r *sink.Record) nats.Header {
	if e.header == nil {
		e.header = make(nats.Header, 16)
	}
	clear(e.header)
	e.values = e.values[:0]
	for i := range r.Headers {
		e.add(headerName(r.Headers[i].Key), r.Headers[i].Value)
	}
	if r.Key != nil {
		e.add(KeyHeader, r.Key)
	}
	if r.Value == nil {
		e.set(NullHeader, nullText)
	}
	if !r.Timestamp.IsZero() {
		e.set(sink.TimestampHeader, r.Timestamp.UTC().Format(sink.TimestampFormat))
	}
	if id := messageID(r); id != "" {
		e.set(jetstream.MsgIDHeader, id)
	}
	return e.header
}

// add adds a header with any value.
func (e *encoder) add(name string, value []byte) {
	switch _, suffix := cutSuffix(name); {
	case value == nil:
		e.set(name+NullSuffix, "")
	case !isText(value) || suffix != "":
		e.set(name+Base64Suffix, base64.StdEncoding.EncodeToString(value))
	default:
		e.set(name, string(value))
	}
}

// set adds a header with a value that is text.
func (e *encoder) set(name, value string) {
	if before := e.header[name]; before != nil {
		e.header[name] = append(before, value)
		return
	}
	e.values = append(e.values, value)
	n := len(e.values)
	e.header[name] = e.values[n-1 : n : n]
}

// headerName returns name, or in hexadecimal if it has a meaning for NATS or for us, or cannot be a name.
func headerName(name string) string {
	if isPlainName(name) {
		return name
	}
	return NamePrefix + hex.EncodeToString([]byte(name))
}

func isPlainName(name string) bool {
	if name == "" || name == statusHeader || isServerHeader(name) {
		return false
	}
	for _, ours := range []string{KeyHeader, NullHeader, NamePrefix} {
		if strings.HasPrefix(name, ours) {
			return false
		}
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(notInNames, c) >= 0 {
			return false
		}
	}
	return true
}

// isServerHeader reports whether a header of this name is a command to the server, or is set by it.
func isServerHeader(name string) bool {
	const prefix = "nats-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// isText reports whether NATS transports b as the value of a header: a line of UTF-8 without control characters, and
// without space at its beginning or end.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	n := len(b)
	return n == 0 || b[0] != ' ' && b[n-1] != ' ' && utf8.Valid(b)
}

// messageID returns the Nats-Msg-Id of r, or "" if it has none. A row has an id that is unique over all tables, databases
// and relays only if it is a UUID.
func messageID(r *sink.Record) string {
	i := slices.IndexFunc(r.Headers, func(h sink.Header) bool { return h.Key == idHeader })
	if r.Position.IsZero() || i < 0 {
		return ""
	}
	if id := string(r.Headers[i].Value); len(id) == uuidLength && uuid.Validate(id) == nil {
		return id
	}
	return ""
}

const uuidLength = 36

// decode returns a message as the record from which it was made. A message that the relay has not written has no key, and
// the time at which it was stored as its timestamp.
func decode(m *jetstream.RawStreamMsg) *sink.StoredRecord {
	r := &sink.StoredRecord{Offset: int64(m.Sequence), Record: sink.Record{Topic: m.Subject, Value: m.Data, Timestamp: m.Time}}
	if r.Value == nil {
		r.Value = []byte{}
	}
	if m.Header.Get(NullHeader) == nullText {
		r.Value = nil
	}
	ours := false // the last timestamp header
	if n := len(m.Header[sink.TimestampHeader]); n > 0 {
		if t, err := time.Parse(sink.TimestampFormat, m.Header[sink.TimestampHeader][n-1]); err == nil {
			r.Timestamp, ours = t, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		values := m.Header[name]
		switch {
		case name == NullHeader, isServerHeader(name):
			continue
		case name == sink.TimestampHeader && ours:
			values = values[:len(values)-1]
		}
		plain, suffix := cutSuffix(name)
		for _, text := range values {
			value := []byte(text)
			if suffix == NullSuffix {
				value = nil
			} else if decoded, err := base64.StdEncoding.DecodeString(text); err == nil && suffix == Base64Suffix {
				value = decoded // otherwise it is of another program
			}
			if plain == KeyHeader {
				r.Key = value
				continue
			}
			r.Headers = append(r.Headers, sink.Header{Key: originalName(plain), Value: value})
		}
	}
	return r
}

// cutSuffix returns the name of a header without its suffix, and that.
func cutSuffix(name string) (plain, suffix string) {
	for _, suffix := range []string{NullSuffix, Base64Suffix} {
		if plain, found := strings.CutSuffix(name, suffix); found {
			return plain, suffix
		}
	}
	return name, ""
}

// originalName is the inverse of headerName.
func originalName(name string) string {
	if text, ok := strings.CutPrefix(name, NamePrefix); ok {
		if original, err := hex.DecodeString(text); err == nil {
			return string(original)
		}
	}
	return name
}
