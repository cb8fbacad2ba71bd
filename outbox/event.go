package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// An Event is one row of the outbox and becomes one Kafka record.
type Event struct {
	// ID identifies the event: consumers drop repeats by it. Zero lets Write make a UUIDv7; set it
	// (uuid.NewV7) to know it beforehand. A second event with the same ID violates the primary key,
	// unless the table is partitioned.
	ID uuid.UUID

	// AggregateType says what kind of thing changed and chooses the topic, by default
	// outbox.event.<AggregateType>. It consists of what Kafka allows in topic names: ASCII
	// letters, digits, '.', '_' and '-'.
	AggregateType string

	// AggregateID says which of them changed. It is the key of the record, byte for byte, so the
	// events of one aggregate share a partition and keep their order.
	AggregateID string

	// Type says what happened, such as OrderPaid; consumers find it in the header eventType.
	Type string

	// Payload is the value of the record. Nil is SQL NULL and a null value: a tombstone, which
	// makes a compacted topic forget the key. In a JSONB column (the default) it must be JSON,
	// and Postgres keeps the value, not the bytes: white space goes, members are reordered, of
	// repeated members the last one stays. Use a JSON or BYTEA column where bytes matter.
	Payload []byte

	// Headers become headers of the record, after id and eventType, each with the string as its
	// bytes. Postgres, not Go, decides their order.
	Headers map[string]string
}

// An EventError names the event and the field that keep Write from writing anything. Nothing of
// the field's value is in it.
type EventError struct {
	Index  int    // which of Write's events, from 0
	Field  string // as in Event
	Reason string // what is wrong with it
}

// Error returns one line such as "outbox: event 2: Type is empty".
func (e *EventError) Error() string {
	return fmt.Sprintf("outbox: event %d: %s %s", e.Index, e.Field, e.Reason)
}

// maxTopic is the longest name of a topic; see org.apache.kafka.common.internals.Topic.
const maxTopic = 249

// check returns the first thing that would keep e out of table t or make the relay stop at its
// row. Field and Reason are set, Index is not.
func (e *Event) check(t *Table) *EventError {
	if !topicPart(e.AggregateType) {
		return &EventError{Field: "AggregateType", Reason: "is not 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'"}
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
	if len(e.Headers) > 0 && t.Columns.Headers == NoColumn {
		return &EventError{Field: "Headers", Reason: "has no column in this table"}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Headers)) {
		for _, s := range [...]string{key, e.Headers[key]} {
			if reason := textProblem(s); reason != "" {
				return &EventError{Field: "Headers", Reason: "has a member that " + reason}
			}
		}
	}
	if e.Payload == nil {
		return nil
	}
	if reason := payloadProblem(e.Payload, t.PayloadType); reason != "" {
		return &EventError{Field: "Payload", Reason: reason}
	}
	return nil
}

func topicPart(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxTopic
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

// payloadProblem says why a column of type t cannot hold p, or nothing.
func payloadProblem(p []byte, t PayloadType) string {
	switch t {
	case Bytea:
		return ""
	case Text:
		return textProblem(string(p))
	case JSON, JSONB:
		if !json.Valid(p) {
			return "is not valid JSON"
		}
		if !utf8.Valid(p) {
			return "is not UTF-8"
		}
		if t == JSONB {
			return escapeProblem(p)
		}
	}
	return ""
}

// escapeProblem looks for the escapes that are JSON but that jsonb refuses, because they stand for
// no text (https://www.postgresql.org/docs/current/datatype-json.html). p is valid JSON.
func escapeProblem(p []byte) string {
	high := -1 // where the low half of a surrogate pair has to begin
	for i := 0; i < len(p); i++ {
		if p[i] != '\\' {
			continue
		}
		i++ // the escaped character
		var unit rune
		if p[i] == 'u' {
			unit = hex4(p[i+1 : i+5])
		}
		low := 0xDC00 <= unit && unit < 0xE000
		switch {
		case p[i] == 'u' && unit == 0:
			return `contains the escape \u0000, which jsonb refuses`
		case low != (high == i-1), high >= 0 && high != i-1:
			return "contains half of a surrogate pair, which jsonb refuses"
		}
		high = -1
		if 0xD800 <= unit && unit < 0xDC00 {
			high = i + 5
		}
	}
	if high >= 0 {
		return "contains half of a surrogate pair, which jsonb refuses"
	}
	return ""
}

// hex4 returns the value of four hexadecimal digits.
func hex4(digits []byte) rune {
	var v rune
	for _, c := range digits {
		v <<= 4
		switch {
		case c <= '9':
			v |= rune(c - '0')
		default:
			v |= rune(c|0x20-'a') + 10
		}
	}
	return v
}
