package outbox

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// An Event is one row of the outbox, or one message of it, and becomes one Kafka record.
type Event struct {
	// ID identifies the event: consumers drop repeats by it. With zero a UUIDv7 is made; set it
	// (uuid.NewV7) to know it beforehand. A second event with the same ID violates the primary key,
	// unless the table is partitioned.
	ID uuid.UUID

	// AggregateType says what kind of thing changed and chooses the topic, by default
	// outbox.event.<AggregateType>. It consists of what Kafka allows in topic names: ASCII
	// letters, digits, '.', '_' and '-', of which there may be 236.
	AggregateType string

	// AggregateID says which of them changed. It is the key of the record, byte for byte, so the
	// events of one aggregate share a partition and keep their order.
	AggregateID string

	// Type says what happened, such as OrderPaid; consumers find it in the header eventType.
	Type string

	// Payload is the value of the record. A []byte or json.RawMessage is taken as it is; anything
	// else is marshaled by encoding/json, once. It may be nil only of a Tombstone.
	//
	// In a JSONB column (the default) it must be JSON, and Postgres keeps the value, not the bytes:
	// white space is put elsewhere, members are reordered, of repeated members the last one stays,
	// and 1e3 is 1000. Use a JSON or BYTEA column where bytes matter.
	Payload any

	// Tombstone makes a record whose value is null, which makes a compacted topic forget the key.
	// Payload must be nil: what was forgotten to be set is no tombstone.
	Tombstone bool

	// Headers become headers of the record, after id and eventType, each with the string as its
	// bytes and in no particular order. The names id and eventType are taken.
	Headers map[string]string

	// ContentType is the payload's media type, such as application/json, in the header
	// content-type. Empty: no such header.
	ContentType string

	// SchemaVersion is the version of the payload's schema, from 1 on: the header schemaVersion, or
	// the column Columns.SchemaVersion. Zero: none.
	SchemaVersion int

	// Partition is the record's partition, in place of that which the key decides. It needs a
	// column (Columns.Partition), and a relay that knows it. Nil leaves it to the key.
	Partition *int32

	// CloudEvent makes the record a CloudEvent. Nil: it is none.
	CloudEvent *CloudEvent
}

// maxAggregateType is what the default name of a topic leaves of the longest one; see
// org.apache.kafka.common.internals.Topic.
const maxAggregateType = 249 - len("outbox.event.")

// framing is what surrounds a record that is alone in its batch, at most, and a header
// (https://kafka.apache.org/documentation/#messageformat).
const (
	batchFraming  = 61 + 36
	headerFraming = 10
)

// row checks e and returns it as its columns have it. payloadType is the type that is to hold the
// payload. The problem's Index is not set.
func (e *Event) row(cfg *Config, payloadType PayloadType, trace map[string]string) (row, *EventError) {
	if problem := e.check(cfg); problem != nil {
		return row{}, problem
	}
	payload, problem := e.checkedPayload(payloadType)
	if problem != nil {
		return row{}, problem
	}
	id, err := e.identity()
	if err != nil {
		return row{}, &EventError{Field: "ID", Reason: "cannot be made", Err: err}
	}
	headers, problem := e.headers(cfg, id, trace)
	if problem != nil {
		return row{}, problem
	}
	if len(headers) > 0 && cfg.Columns.Headers == NoColumn {
		return row{}, &EventError{Field: "Headers", Reason: "has no column in this table, and the trace, SchemaVersion, ContentType and CloudEvent need it"}
	}
	if problem := e.checkSize(cfg.MaxBytes, payload, payloadType, headers); problem != nil {
		return row{}, problem
	}
	r := row{event: e, id: id, payload: payload}
	if r.headers, err = encodeHeaders(headers); err != nil {
		return row{}, &EventError{Field: "Headers", Reason: "cannot be marshaled", Err: err}
	}
	return r, nil
}

// check returns the first thing, but for the payload, that would keep e out of the table or make
// the relay stop at its row.
func (e *Event) check(cfg *Config) *EventError {
	if !topicPart(e.AggregateType) {
		return &EventError{Field: "AggregateType", Reason: "is not 1 to 236 of the characters a-z, A-Z, 0-9, '.', '_', '-'"}
	}
	for _, f := range [...]struct{ name, value string }{{"AggregateID", e.AggregateID}, {"Type", e.Type}} {
		reason := textProblem(f.value)
		if f.value == "" {
			reason = "is empty"
		}
		if reason != "" {
			return &EventError{Field: f.name, Reason: reason}
		}
	}
	switch {
	case e.ContentType != "" && !mediaType(e.ContentType):
		return &EventError{Field: "ContentType", Reason: "is not a media type"}
	case e.SchemaVersion < 0 || e.SchemaVersion > math.MaxInt32:
		return &EventError{Field: "SchemaVersion", Reason: "is not from 1 to 2147483647"}
	case e.Partition != nil && *e.Partition < 0:
		return &EventError{Field: "Partition", Reason: "is negative"}
	case e.Partition != nil && cfg.Columns.Partition == "":
		return &EventError{Field: "Partition", Reason: "has no column in this table (Config.Columns.Partition)"}
	}
	if e.CloudEvent != nil {
		if problem := e.CloudEvent.check(e.Type); problem != nil {
			return problem
		}
	}
	return headersProblem("Headers", e.Headers)
}

// checkedPayload returns the payload's bytes, nil for a tombstone.
func (e *Event) checkedPayload(t PayloadType) ([]byte, *EventError) {
	payload, problem := payloadBytes(e.Payload)
	switch {
	case problem != nil:
		return nil, problem
	case payload == nil && !e.Tombstone:
		return nil, &EventError{Field: "Payload", Reason: "is nil, and Tombstone is not set"}
	case payload != nil && e.Tombstone:
		return nil, &EventError{Field: "Payload", Reason: "is not nil, and Tombstone is set"}
	case payload == nil:
		return nil, nil
	}
	if reason := payloadProblem(payload, t); reason != "" {
		return nil, &EventError{Field: "Payload", Reason: reason}
	}
	return payload, nil
}

// checkSize holds the record to a limit.
func (e *Event) checkSize(limit int, payload []byte, t PayloadType, headers map[string]string) *EventError {
	value := len(payload)
	if t == JSONB {
		var ok bool
		if value, ok = printedSize(payload); !ok {
			return &EventError{Field: "Payload", Reason: "contains a number that is too large or too precise for jsonb"}
		}
	}
	size := batchFraming + len(e.AggregateID) + len("id") + len(uuid.Nil.String()) + len("eventType") + len(e.Type) + 2*headerFraming
	for name, text := range headers {
		size += len(name) + len(text) + headerFraming
	}
	if size+value <= limit {
		return nil
	}
	field := "Payload"
	if value < size {
		field = "Headers"
	}
	return &EventError{Field: field, Reason: fmt.Sprintf(
		"is too large: the record would have about %d bytes, and MaxBytes are %d", size+value, limit)}
}

// identity returns e.ID, or a new one.
func (e *Event) identity() (string, error) {
	if e.ID != uuid.Nil {
		return e.ID.String(), nil
	}
	id, err := uuid.NewV7()
	return id.String(), err
}

func topicPart(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxAggregateType
}

// textProblem says why a text column cannot hold s
// (https://www.postgresql.org/docs/current/datatype-character.html), or nothing.
func textProblem(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return "contains a NUL byte"
	}
	return ""
}
