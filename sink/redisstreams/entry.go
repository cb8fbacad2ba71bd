package redisstreams

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The names of the fields of an entry. The fields of a record come first, in this order, and then its headers, in
// theirs. A header has the name of the header, unless that is one of these or begins with a prefix below.
const (
	fieldTimestamp = "timestamp" // milliseconds since 1970, in UTC
	fieldKey       = "key"       // missing: the key is null
	fieldPayload   = "payload"   // missing: the value is null

	prefixHeader = "header." // precedes the name of a header that could be mistaken
	prefixNull   = "null."   // precedes the name of a header that is null; the value of the field is empty
)

// maxHeaders is the maximum number of headers: the script passes all fields of an entry as arguments, for which Lua has
// room for 8,000 values.
const maxHeaders = 3900

// indexBits is the number of bits of the second part of an id below the index of the row. An id without a position, such
// as that of a replayed row, is that of the last entry plus 1. With this room, a million of them fit between two rows of a
// transaction, and the id of the later row is still free.
const indexBits = 20

// appendID appends the id of the entry for a position: the commit LSN, and the index of the row in the transaction. The
// same row has the same id whenever it is sent, and a later one has a higher id. A record without a position has no id of
// its own: nothing is appended.
//
// An id alone does not say that a record is a duplicate, because the stream may have ids of another origin: of a server
// whose LSNs are others, of another timeline, or from the clock of another writer. So the script in append.lua drops a
// record only if the stream has an entry with its id and its event id. If the stream has a later id and not this entry, the
// record follows the last entry.
func appendID(b []byte, p sink.Position) []byte {
	if p.IsZero() {
		return b
	}
	b = strconv.AppendUint(b, p.CommitLSN, 10)
	b = append(b, '-')
	return strconv.AppendUint(b, uint64(p.Index)<<indexBits, 10)
}

// appendEntry appends a record to the array of append.lua.
func appendEntry(b []byte, r *sink.Record) []byte {
	var scratch [42]byte
	b = append(b, 0xcd)
	b = binary.BigEndian.AppendUint16(b, uint16(itemsOf(r)-2))
	b = appendString(b, appendID(scratch[:0], r.Position))
	at := r.Timestamp
	if at.IsZero() {
		at = time.Now()
	}
	b = appendString(b, fieldTimestamp)
	b = appendString(b, strconv.AppendInt(scratch[:0], at.UnixMilli(), 10))
	if r.Key != nil {
		b = appendString(b, fieldKey)
		b = appendString(b, r.Key)
	}
	if r.Value != nil {
		b = appendString(b, fieldPayload)
		b = appendString(b, r.Value)
	}
	for i := range r.Headers {
		b = appendHeader(b, &r.Headers[i])
	}
	return b
}

// itemsOf returns the number of items that appendEntry appends: that of the items of the fields, the id, and those.
func itemsOf(r *sink.Record) int {
	n := 4 + 2*len(r.Headers)
	if r.Key != nil {
		n += 2
	}
	if r.Value != nil {
		n += 2
	}
	return n
}

func appendHeader(b []byte, h *sink.Header) []byte {
	prefix := ""
	if h.Value == nil {
		prefix = prefixNull
	} else if isReserved(h.Key) {
		prefix = prefixHeader
	}
	b = appendStringHead(b, len(prefix)+len(h.Key))
	b = append(append(b, prefix...), h.Key...)
	return appendString(b, h.Value)
}

// isReserved reports whether a field of that name is not a header of that name.
func isReserved(name string) bool {
	switch name {
	case fieldTimestamp, fieldKey, fieldPayload:
		return true
	}
	return strings.HasPrefix(name, prefixHeader) || strings.HasPrefix(name, prefixNull)
}

// checkSize returns a *sink.RecordError for a record that cannot be an entry. limit is the maximum size of an argument, and
// the record is the only one of its request.
func checkSize(r *sink.Record, limit int) error {
	size := r.Size()
	const perItem = len(prefixHeader) + 5 // of a long string in MessagePack
	if encoded := size + perItem*(itemsOf(r)+6); encoded > limit {
		return &sink.RecordError{Size: size, Limit: limit, TooLarge: true, Reason: errors.New("larger than an entry may be (sink.redis_streams.max_entry_bytes, or proto-max-bulk-len of the server)")}
	}
	if len(r.Headers) > maxHeaders {
		return &sink.RecordError{Size: size, BadHeader: true, Reason: fmt.Errorf("it has %d headers, and an entry has room for %d", len(r.Headers), maxHeaders)}
	}
	return nil
}

// appendArray appends the head of an array: https://github.com/msgpack/msgpack/blob/master/spec.md.
func appendArray(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(appendStringHead(b, len(s)), s...)
}

func appendStringHead(b []byte, n int) []byte {
	switch {
	case n < 32:
		return append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		return append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
}

// parseEntry returns the record of an entry: the names and values of its fields in turn.
func parseEntry(destination string, fields []string) sink.Record {
	r := sink.Record{Topic: destination}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fields[i], []byte(fields[i+1])
		switch {
		case name == fieldTimestamp:
			if ms, err := strconv.ParseInt(fields[i+1], 10, 64); err == nil {
				r.Timestamp = time.UnixMilli(ms).UTC()
			}
		case name == fieldKey:
			r.Key = value
		case name == fieldPayload:
			r.Value = value
		case strings.HasPrefix(name, prefixHeader):
			r.Headers = append(r.Headers, sink.Header{Key: name[len(prefixHeader):], Value: value})
		case strings.HasPrefix(name, prefixNull):
			r.Headers = append(r.Headers, sink.Header{Key: name[len(prefixNull):]})
		default:
			r.Headers = append(r.Headers, sink.Header{Key: name, Value: value})
		}
	}
	return r
}
