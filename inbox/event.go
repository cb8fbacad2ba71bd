package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// An Event is a record of Kafka as the relay makes it; see
// [From row to record](https://github.com/outbox-cdc/outbox-cdc/blob/main/docs/record.md).
type Event struct {
	ID      uuid.UUID // header id; it makes the event known when it comes again
	Type    string    // header eventType; it chooses the handler
	Topic   string
	Key     []byte // the aggregate's id; events of equal topic and key keep their order. Nil: no order
	Payload []byte // nil is a tombstone
	Headers []Header

	Partition int32
	Offset    int64
	Time      time.Time // the record's timestamp: when the event was committed

	// Attempt is 1 when the event is tried for the first time. It is set for the handler.
	Attempt int
}

// A Header is one of an event's headers. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Header returns the value of the first header of that name, or nil.
func (e *Event) Header(name string) []byte {
	for _, h := range e.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return nil
}

// A Handler makes the effects of an event in tx. It returns nil if tx may be committed; the caller
// does that. After an error, or a panic, tx is rolled back and the event is tried again later. What
// is done elsewhere than in tx may happen again.
//
// The context ends when the attempt takes longer than Config.Timeout, when the processor stops and
// has waited for Config.Grace, and when another processor has taken the event over. Savepoints
// (tx.Begin) may be used; tx itself is neither committed nor rolled back by the handler.
type Handler func(ctx context.Context, tx pgx.Tx, e Event) error

// JSON returns a Handler whose payload is decoded first, as by [json.Unmarshal]. Of a tombstone v is
// the zero value.
func JSON[T any](handle func(ctx context.Context, tx pgx.Tx, e Event, v T) error) Handler {
	return func(ctx context.Context, tx pgx.Tx, e Event) error {
		var v T
		if e.Payload != nil {
			if err := json.Unmarshal(e.Payload, &v); err != nil {
				return fmt.Errorf("decode the payload: %w", err)
			}
		}
		return handle(ctx, tx, e, v)
	}
}

// lane returns what events that keep their order have in common. An event without a key has one of
// its own.
func (e *Event) lane() uuid.UUID {
	if e.Key == nil {
		return e.ID
	}
	sum := sha256.Sum256(append(append([]byte(e.Topic), 0), e.Key...))
	return uuid.UUID(sum[:16])
}

// laneLock returns the advisory lock of whoever puts events into a lane, or takes them out.
func laneLock(lane uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(lane[:])) }

func (e *Event) check() error {
	if e.ID == uuid.Nil {
		return &EventError{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, Reason: "the event has no id"}
	}
	return nil
}

// ParseRecord fills ID, Type and Headers of e from the headers of its record. For adapters. It
// returns an [*EventError] if there is no header id, or none that is a UUID.
func (e *Event) ParseRecord(headers []Header) error {
	e.Headers = headers
	e.Type = string(e.Header("eventType"))
	id := e.Header("id")
	if id == nil {
		return &EventError{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, Reason: "the record has no header id"}
	}
	var err error
	if e.ID, err = uuid.ParseBytes(id); err != nil || e.ID == uuid.Nil {
		return &EventError{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, Reason: "the header id is no UUID"}
	}
	return nil
}

// text returns s as a text column can hold it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
