package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The headers that this package adds to a message.
const (
	// KeyHeader has the key of the record: a string, or a byte array if the key is not UTF-8. It is absent if the key is
	// null.
	KeyHeader = "outbox_key"

	// NullHeader is true if the value of the record is null. The body is then empty.
	NullHeader = "outbox_null"

	// TimeHeader has the timestamp in milliseconds, because the property timestamp has seconds. If the record has a
	// header of this name, that one is written instead.
	TimeHeader = "timestamp_in_ms"
)

// The headers of a record that become properties of a message. A value of more than 255 bytes stays a header.
const (
	idHeader          = "id"           // message_id
	typeHeader        = "eventType"    // type
	contentTypeHeader = "content-type" // content_type
)

// maxShort is the maximum size of a short string of AMQP, in bytes: a property, a routing key or the name of a header.
const maxShort = 255

var (
	errNameTooLong = errors.New("the exchange, the routing key or the name of a header has more than 255 bytes")
	errReserved    = fmt.Errorf("a header is named %s or %s, which are reserved", KeyHeader, NullHeader)
	errHeaders     = errors.New("key and headers do not fit into a frame of the broker (frame_max)")
	errBody        = errors.New("larger than the maximum size of a message")
)

// A message is a record in the broker's format.
type message struct {
	destination
	publishing amqp.Publishing
	overhead   int // size of the content header frame
}

// newMessage returns the message for rec, or a [*sink.RecordError] if no broker accepts it. It uses headers, which it clears, and the
// bytes of rec.
func newMessage(rec *sink.Record, contentType string, headers amqp.Table) (message, error) {
	clear(headers)
	m := message{publishing: amqp.Publishing{
		Headers: headers, DeliveryMode: amqp.Persistent, Timestamp: rec.Timestamp, Body: rec.Value,
	}}
	if m.publishing.Timestamp.IsZero() {
		m.publishing.Timestamp = time.Now()
	}
	headers[TimeHeader] = m.publishing.Timestamp.UnixMilli()
	for i := range rec.Headers {
		if err := m.addHeader(&rec.Headers[i]); err != nil {
			return message{}, &sink.RecordError{BadHeader: true, Reason: err}
		}
	}
	if rec.Key != nil {
		headers[KeyHeader] = text(rec.Key)
	}
	if rec.Value == nil {
		headers[NullHeader] = true
	}
	if m.publishing.ContentType == "" {
		m.publishing.ContentType = contentType
	}
	var keyed bool
	if m.destination, keyed = splitDestination(rec.Topic); !keyed {
		m.routingKey = m.publishing.Type
	}
	if len(m.exchange) > maxShort || len(m.routingKey) > maxShort {
		return message{}, &sink.RecordError{Reason: errNameTooLong}
	}
	m.overhead = m.headerSize()
	return m, nil
}

// addHeader adds a header of the record, as a property or a header of the message.
func (m *message) addHeader(h *sink.Header) error {
	if len(h.Key) > maxShort {
		return errNameTooLong
	}
	if p := m.property(h.Key); p != nil && *p == "" && len(h.Value) > 0 && len(h.Value) <= maxShort && utf8.Valid(h.Value) {
		*p = string(h.Value)
		return nil
	}
	if h.Key == KeyHeader || h.Key == NullHeader {
		return errReserved
	}
	var value any // nil is null
	if h.Value != nil {
		value = text(h.Value)
	}
	headers := m.publishing.Headers
	before, repeated := headers[h.Key]
	if values, isArray := before.([]any); isArray {
		value = slices.Concat(values, []any{value})
	} else if repeated && h.Key != TimeHeader {
		value = []any{before, value}
	}
	headers[h.Key] = value
	return nil
}

// property returns the property for which a record has a header, or nil.
func (m *message) property(header string) *string {
	switch header {
	case idHeader:
		return &m.publishing.MessageId
	case typeHeader:
		return &m.publishing.Type
	case contentTypeHeader:
		return &m.publishing.ContentType
	}
	return nil
}

// text returns b as a string, which every client library shows as text, or as bytes if it is not UTF-8.
func text(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return b
}

// headerSize returns the size of the content header frame.
func (m *message) headerSize() int {
	const (
		frame = 8               // type, channel, size, end
		fixed = 2 + 2 + 8 + 2   // class, weight, body size, flags
		sizes = 4 + 1 + 8 + 3*1 // of the table; delivery mode, timestamp, lengths of the strings
	)
	n := frame + fixed + sizes + len(m.publishing.MessageId) + len(m.publishing.Type) + len(m.publishing.ContentType)
	for name, value := range m.publishing.Headers {
		n += 1 + len(name) + fieldSize(value)
	}
	return n
}

// fieldSize returns the size of a value of a header.
func fieldSize(value any) int {
	switch v := value.(type) {
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case int64:
		return 9
	case bool:
		return 2
	case []any:
		n := 5
		for _, e := range v {
			n += fieldSize(e)
		}
		return n
	}
	return 1 // null
}

// check returns the reason for which the broker would end the connection because of m, or for which the configuration
// does not allow it.
func (m *message) check(frameMax, bodyMax int) *sink.RecordError {
	switch body := len(m.publishing.Body); {
	case frameMax > 0 && m.overhead > frameMax:
		return &sink.RecordError{Size: m.overhead, Limit: frameMax, TooLarge: true, Reason: errHeaders}
	case bodyMax > 0 && body > bodyMax:
		return &sink.RecordError{Size: body, Limit: bodyMax, TooLarge: true, Reason: errBody}
	}
	return nil
}

// isReturn reports whether the broker has returned m, which has the destination of r. Messages that it cannot tell apart
// are equal but for other headers.
func (m *message) isReturn(r *amqp.Return) bool {
	p := &m.publishing
	return p.MessageId == r.MessageId && p.Type == r.Type &&
		string(p.Body) == string(r.Body) && sameKey(p.Headers[KeyHeader], r.Headers[KeyHeader])
}

func sameKey(a, b any) bool {
	bytesOf := func(v any) (string, bool) {
		switch v := v.(type) {
		case string:
			return v, true
		case []byte:
			return string(v), true
		}
		return "", false
	}
	x, inX := bytesOf(a)
	y, inY := bytesOf(b)
	return x == y && inX == inY
}
