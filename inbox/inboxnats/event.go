package inboxnats

import (
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// How the relay writes a record as headers of a message.
const (
	keyHeader       = "outbox_key"
	nullHeader      = "outbox_null" // "value" if the payload is null
	timestampHeader = "outbox_timestamp"
	base64Suffix    = "_base64"
	nullSuffix      = "_null"
	namePrefix      = "outbox_name_" // before a name in hexadecimal

	timestampFormat = "2006-01-02T15:04:05.000Z07:00"
)

// Event returns the event of a message, without ID and Type. Those are set by [inbox.Processor.Handle], or by
// [inbox.Event.ParseHeaders]. Topic is the subject, and Offset the sequence number in the stream. Headers with different
// names are in alphabetical order.
func Event(m jetstream.Msg) (inbox.Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return inbox.Event{}, err
	}
	return event(m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp), nil
}

func event(subject string, headers nats.Header, data []byte, sequence uint64, stored time.Time) inbox.Event {
	e := inbox.Event{Topic: subject, Offset: int64(sequence), Time: stored, Payload: data}
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	if headers.Get(nullHeader) == "value" {
		e.Payload = nil
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if name == nullHeader || strings.HasPrefix(name, "Nats-") {
			continue
		}
		for i, text := range headers[name] {
			if name == timestampHeader && i == len(headers[name])-1 {
				if at, err := time.Parse(timestampFormat, text); err == nil {
					e.Time = at
					continue
				}
			}
			plain, value := decode(name, text)
			if plain == keyHeader {
				e.Key = value
				continue
			}
			e.Headers = append(e.Headers, inbox.Header{Name: plain, Value: value})
		}
	}
	return e
}

// decode returns the name and the value of a header of the record.
func decode(name, text string) (string, []byte) {
	value := []byte(text)
	if plain, ok := strings.CutSuffix(name, nullSuffix); ok {
		name, value = plain, nil
	} else if plain, ok := strings.CutSuffix(name, base64Suffix); ok {
		name = plain
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			value = decoded
		}
	}
	if digits, ok := strings.CutPrefix(name, namePrefix); ok {
		if original, err := hex.DecodeString(digits); err == nil {
			name = string(original)
		}
	}
	return name, value
}
