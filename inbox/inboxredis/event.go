package inboxredis

import (
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// How the relay writes a record as the fields of an entry. The other fields are headers.
const (
	fieldTimestamp = "timestamp" // milliseconds since 1970
	fieldKey       = "key"
	fieldPayload   = "payload"
	prefixHeader   = "header." // before the name of a header that is one of these, or that has such a prefix
	prefixNull     = "null."   // before the name of a header that is null
)

// Event returns the event of an entry, without ID and Type. Those are set by [inbox.Processor.Handle], or by
// [inbox.Event.ParseHeaders]. fields are names and values in turn. Topic is the stream, and Offset the first number of the
// entry's id.
func Event(stream, id string, fields []string) inbox.Event {
	first, _, _ := strings.Cut(id, "-")
	offset, _ := strconv.ParseInt(first, 10, 64)
	e := inbox.Event{Topic: stream, Offset: offset}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fields[i], []byte(fields[i+1])
		switch {
		case name == fieldTimestamp:
			if ms, err := strconv.ParseInt(fields[i+1], 10, 64); err == nil {
				e.Time = time.UnixMilli(ms)
			}
		case name == fieldKey:
			e.Key = value
		case name == fieldPayload:
			e.Payload = value
		case strings.HasPrefix(name, prefixHeader):
			e.Headers = append(e.Headers, inbox.Header{Name: name[len(prefixHeader):], Value: value})
		case strings.HasPrefix(name, prefixNull):
			e.Headers = append(e.Headers, inbox.Header{Name: name[len(prefixNull):]})
		default:
			e.Headers = append(e.Headers, inbox.Header{Name: name, Value: value})
		}
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	return e
}
