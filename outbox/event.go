package outbox

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// An Event is one row of the outbox table, or one logical message, and becomes one Kafka record.
type Event struct {
	// ID identifies the event. Consumers find duplicates by it. Zero means a new UUIDv7. Set it
	// (uuid.NewV7) if you need to know it. A second event with the same ID violates the primary key,
	// unless the table is partitioned.
	ID uuid.UUID

	// AggregateType is the kind of thing that changed, such as order. It determines the topic, by
	// default outbox.event.<AggregateType>. It consists of 1 to 236 characters that Kafka allows in
	// topic names: ASCII letters, digits, '.', '_' and '-'.
	AggregateType string

	// AggregateID identifies the thing that changed. It is the key of the record, byte for byte, so
	// the events of one aggregate are in one partition and in order.
	AggregateID string

	// Type is what happened, such as OrderPaid. It is the header eventType of the record.
	Type string

	// Payload is the value of the record. A []byte, json.RawMessage or string is used as it is. Any
	// other value is marshaled with encoding/json. Only a Tombstone has a nil Payload.
	//
	// In a column of type jsonb (the default) or json it must be valid JSON. jsonb keeps the value
	// and not the bytes: Postgres changes white space and the order of members, keeps the last of
	// repeated members, and turns 1e3 into 1000. If the bytes matter, use a json or bytea column.
	Payload any

	// Tombstone makes the value of the record null. A compacted topic then deletes the key. Payload
	// must be nil. Without Tombstone a nil Payload is an error, because it is usually a mistake.
	Tombstone bool

	// Headers become headers of the record, after id and eventType, in no particular order. The names
	// id and eventType are reserved.
	Headers map[string]string

	// ContentType is the payload's media type, such as application/json. It is the header
	// content-type. Empty means no such header.
	ContentType string

	// SchemaVersion is the version of the payload's schema, starting at 1. It is the header
	// schemaVersion, or the column Columns.SchemaVersion. Zero means none.
	SchemaVersion int

	// Partition is the partition of the record. Nil means the partition of the key. It needs a column
	// (Columns.Partition), and the relay must know that column.
	Partition *int32

	// CloudEvent adds the attributes of a CloudEvent. Nil means none.
	CloudEvent *CloudEvent
}

// maxAggregateType is what outbox.event. leaves of the longest topic name; see
// org.apache.kafka.common.internals.Topic.
const maxAggregateType = 249 - len("outbox.event.")

// The most bytes that Kafka adds to a record that is alone in its batch, and to a header
// (https://kafka.apache.org/documentation/#messageformat).
const (
	batchFraming  = 61 + 36
	headerFraming = 10
)

// row checks e and returns the values of its columns. payloadType is the type of the payload column.
// The caller sets the problem's Index.
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
		return row{}, &EventError{Field: "ID", Reason: fmt.Sprintf("cannot be generated: %v", err), Err: err}
	}
	headers, problem := e.headers(cfg, id, trace)
	if problem != nil {
		return row{}, problem
	}
	if len(headers) > 0 && cfg.Columns.Headers == NoColumn {
		return row{}, &EventError{Field: "Headers", Reason: "cannot be written: this table has no column for them (Config.Columns.Headers); Config.Trace, SchemaVersion, ContentType and CloudEvent need it too"}
	}
	if problem := e.checkSize(cfg.MaxBytes, payload, payloadType, headers); problem != nil {
		return row{}, problem
	}
	r := row{event: e, id: id, payload: payload}
	if r.headers, err = encodeHeaders(headers); err != nil {
		return row{}, &EventError{Field: "Headers", Reason: fmt.Sprintf("cannot be marshaled: %v", err), Err: err}
	}
	return r, nil
}

// check returns the first problem, except those of the payload, that would keep e out of the table or
// stop the relay at its row.
func (e *Event) check(cfg *Config) *EventError {
	if !topicPart(e.AggregateType) {
		return &EventError{Field: "AggregateType", Reason: "must be 1 to 236 characters of a-z, A-Z, 0-9, '.', '_' and '-'"}
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
		return &EventError{Field: "SchemaVersion", Reason: "must be from 1 to 2147483647"}
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
		if _, ok := e.Payload.(string); ok && reason == notJSON {
			reason = "is a string that is not valid JSON; if you want a JSON string, marshal it first"
		}
		return nil, &EventError{Field: "Payload", Reason: reason}
	}
	return payload, nil
}

// checkSize returns a problem if the record would be larger than limit.
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
		"is too large: the record would have about %d bytes, and Config.MaxBytes is %d", size+value, limit)}
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

// textProblem returns why a text column cannot hold s
// (https://www.postgresql.org/docs/current/datatype-character.html), or the empty string.
func textProblem(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return "contains a NUL byte"
	}
	return ""
}
