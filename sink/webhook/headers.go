package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"mime"
	"net/http"
	"net/textproto"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// headerPrefix begins the name of each HTTP header that is made of a header of the record, so that a row cannot set a header
// that has a meaning of its own.
const headerPrefix = "Outbox-"

const userAgent = "outbox-cdc"

// idempotencyHeader is not in canonical form, because package net/http would send a request with Idempotency-Key again by
// itself if a used connection breaks: without the fence, and without counting it. The case has no meaning in HTTP.
const idempotencyHeader = "idempotency-key"

// Headers of the record that become attributes of the event.
const (
	idHeader          = "id"
	typeHeader        = "eventType"
	contentTypeHeader = "content-type"
)

// timeFormat is RFC 3339 with milliseconds, which is the precision of a record's timestamp.
const timeFormat = "2006-01-02T15:04:05.000Z"

// An envelope is what a request says about its payload.
type envelope struct {
	id     string // of the event, percent-encoded
	header http.Header
}

// wrap returns the envelope of a record: CloudEvents in binary mode, and the other headers of the record.
// https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/http-protocol-binding.md
func wrap(c *Config, r *sink.Record) envelope {
	h := make(http.Header, 16+len(r.Headers))
	values := make([]string, 0, 16) // one allocation for all
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	contentType, kind := c.ContentType, encode(c.Type)
	var id string
	var hasID, hasType, hasContentType bool
	for i := range r.Headers {
		name, value := r.Headers[i].Key, r.Headers[i].Value
		switch {
		case name == idHeader && !hasID:
			id, hasID = encode(attribute(value)), true
		case name == typeHeader && !hasType:
			hasType = true
			if len(value) > 0 {
				kind = encode(attribute(value))
			}
		case !hasContentType && strings.EqualFold(name, contentTypeHeader) && isContentType(string(value)):
			contentType, hasContentType = string(value), true
		case isTraceHeader(name) && isPrintable(value):
			name = textproto.CanonicalMIMEHeaderKey(name)
			h[name] = append(h[name], string(value))
		default:
			name = headerName(name)
			h[name] = append(h[name], encode(string(value)))
		}
	}
	if id == "" {
		id = identify(r)
	}
	at := r.Timestamp
	if at.IsZero() {
		at = time.Now()
	}
	set("Ce-Specversion", "1.0")
	set("Ce-Id", id)
	set("Ce-Source", encode(c.Source))
	set("Ce-Type", kind)
	set("Ce-Time", at.UTC().Format(timeFormat))
	set(idempotencyHeader, id)
	set("User-Agent", userAgent)
	switch {
	case r.Key == nil:
	case len(r.Key) > 0 && isAttribute(string(r.Key)):
		set("Ce-Subject", encode(string(r.Key)))
	default:
		set("Ce-Keybase64", base64.StdEncoding.EncodeToString(r.Key))
	}
	if r.Value != nil {
		set("Content-Type", contentType)
	}
	return envelope{id: id, header: h}
}

// attribute returns a value as a string that CloudEvents allows: the value, or base64 if it is not text.
func attribute(value []byte) string {
	if text := string(value); isAttribute(text) {
		return text
	}
	return base64.RawURLEncoding.EncodeToString(value)
}

// isAttribute reports whether text may be the value of an attribute of CloudEvents.
func isAttribute(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, isControl)
}

// identify returns an id for a record that has none. It is the same whenever the record is sent, and differs for rows with
// the same content.
func identify(r *sink.Record) string {
	h := sha256.New()
	part(h, []byte(r.Topic))
	part(h, r.Key)
	part(h, r.Value)
	var place []byte
	place = binary.BigEndian.AppendUint64(place, uint64(r.Timestamp.UnixMilli()))
	place = binary.BigEndian.AppendUint64(place, r.Position.CommitLSN)
	place = binary.BigEndian.AppendUint64(place, uint64(r.Position.Index))
	part(h, place)
	for _, header := range r.Headers {
		part(h, []byte(header.Key))
		part(h, header.Value)
	}
	return "sha256-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// part adds a part of a record with its length, so that no other record has the same hash.
func part(h hash.Hash, b []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(b)))
	h.Write(length[:])
	h.Write(b)
}

// encode percent-encodes a value as the HTTP binding of CloudEvents demands: spaces, quotes, percent signs, and everything
// but printable ASCII. So no value can end a header.
func encode(text string) string {
	extra := 0
	for i := range len(text) {
		if !isPlain(text[i]) {
			extra += 2
		}
	}
	if extra == 0 {
		return text
	}
	out := make([]byte, 0, len(text)+extra)
	for i := range len(text) {
		out = appendByte(out, text[i], isPlain(text[i]))
	}
	return string(out)
}

func appendByte(out []byte, c byte, plain bool) []byte {
	const digits = "0123456789ABCDEF"
	if plain {
		return append(out, c)
	}
	return append(out, '%', digits[c>>4], digits[c&15])
}

func isPlain(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' }

// headerName returns the name of the HTTP header for a header of a record. An underscore becomes a hyphen, because many
// servers drop headers with underscores. Bytes that a name cannot have are percent-encoded.
func headerName(name string) string {
	out := make([]byte, 0, len(headerPrefix)+len(name))
	out = append(out, headerPrefix...)
	for i := range len(name) {
		if name[i] == '_' {
			out = append(out, '-')
			continue
		}
		out = appendByte(out, name[i], isToken(name[i]) && name[i] != '%')
	}
	return textproto.CanonicalMIMEHeaderKey(string(out))
}

// isToken reports whether c may be part of the name of a header (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// isTraceHeader reports whether a header has the trace context, which keeps its name.
func isTraceHeader(name string) bool { return name == "traceparent" || name == "tracestate" }

// isPrintable reports whether a value can be that of an HTTP header as it is.
func isPrintable(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(value) > 0 && value[0] != ' ' && value[len(value)-1] != ' '
}

// isContentType reports whether text is the media type of a payload. A structured CloudEvent is not: its payload would
// say what the event is, in place of the headers.
func isContentType(text string) bool {
	if !isPrintable([]byte(text)) {
		return false
	}
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && strings.Contains(kind, "/") && !strings.HasPrefix(kind, "application/cloudevents")
}
