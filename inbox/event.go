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

// An Event is a record of the relay. See [how a row becomes a record].
//
// [how a row becomes a record]: https://github.com/outbox-cdc/outbox-cdc/blob/main/docs/record.md
type Event struct {
	ID      uuid.UUID // header id; identifies duplicates
	Type    string    // header eventType; selects the handler
	Topic   string    // subject of JetStream, queue of RabbitMQ, stream of Redis
	Key     []byte    // the aggregate's id; events with the same topic and key stay in order. Nil: no order
	Payload []byte    // nil is a tombstone
	Headers []Header

	Partition int32     // 0 if the broker has no partitions
	Offset    int64     // sequence number of JetStream, delivery tag of RabbitMQ, first part of the entry's id of Redis
	Time      time.Time // timestamp of the record: the commit time of the event

	// Attempt is the number of this attempt, starting at 1. The processor sets it for the handler.
	Attempt int
}

// A Header is a header of an event. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Header returns the value of the first header with that name, or nil.
func (e *Event) Header(name string) []byte {
	for _, h := range e.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return nil
}

// ParseHeaders sets ID and Type from the headers id and eventType. It returns an [*EventError] if there
// is no header id or if it is not a UUID.
func (e *Event) ParseHeaders() error {
	e.Type = string(e.Header("eventType"))
	id := e.Header("id")
	if id == nil {
		return e.problem("the record has no header id")
	}
	var err error
	if e.ID, err = uuid.ParseBytes(id); err != nil || e.ID == uuid.Nil {
		return e.problem("the header id is not a UUID")
	}
	return nil
}

func (e *Event) problem(reason string) error {
	return &EventError{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, Reason: reason}
}

// A Handler writes the effects of an event in tx. If it returns nil, the processor commits tx. If it
// returns an error or panics, the processor rolls tx back and retries the event later; see
// [Permanent] and [RetryAfter]. Effects outside tx, such as a mail, may happen again.
//
// ctx ends after Config.Timeout, when the processor has stopped and Config.Grace is over, and when
// another processor has taken the event over. The handler may use savepoints (tx.Begin). Commit and
// Rollback of tx return an error.
type Handler func(ctx context.Context, tx pgx.Tx, e Event) error

// JSON returns a Handler that decodes the payload with [json.Unmarshal] first. A payload that cannot
// be decoded is a [Permanent] error. For a tombstone v is the zero value.
func JSON[T any](handle func(ctx context.Context, tx pgx.Tx, e Event, v T) error) Handler {
	return func(ctx context.Context, tx pgx.Tx, e Event) error {
		var v T
		if e.Payload != nil {
			if err := json.Unmarshal(e.Payload, &v); err != nil {
				return Permanent(fmt.Errorf("decode the payload: %w", err))
			}
		}
		return handle(ctx, tx, e, v)
	}
}

// lane identifies the events that stay in order with e. An event without a key has a lane of its own.
func (e *Event) lane() uuid.UUID {
	if e.Key == nil {
		return e.ID
	}
	sum := sha256.Sum256(append(append([]byte(e.Topic), 0), e.Key...))
	return uuid.UUID(sum[:16])
}

// laneLock returns the advisory lock that serializes changes of a lane.
func laneLock(lane uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(lane[:])) }

// text returns s in a form that a text column accepts.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
