package sink

import "time"

// A Header is one header of a record. A nil Value is null; an empty Value is empty.
type Header struct {
	Key   string
	Value []byte
}

// AnyPartition makes the Writer choose the partition of a record.
const AnyPartition int32 = -1

// TimestampHeader is the header that the Writer appends to a record if the destination rejects its
// timestamp. The record is then written with the current time, and the header has
// Record.Timestamp in UTC, in RFC 3339 format with milliseconds.
const TimestampHeader = "outbox_timestamp"

// TimestampFormat is the format of a [TimestampHeader].
const TimestampFormat = "2006-01-02T15:04:05.000Z07:00"

// A Record is a record to write.
type Record struct {
	// Seq identifies the record in the outcomes of Run. It must increase from Send to Send.
	Seq uint64

	// Topic is the destination, in the notation of the broker.
	Topic string

	// Partition is the part of the destination to write to. Each partition has its own order.
	// With AnyPartition, the key decides, and a record without a key may go to any partition.
	// A broker without partitions ignores it.
	Partition int32

	// Key and Value are null if they are nil. Records with the same key keep their order.
	Key, Value []byte

	Headers []Header

	// Timestamp has millisecond precision. Zero means the time of Send. If the destination
	// rejects it, the record gets the current time and a TimestampHeader.
	Timestamp time.Time

	// Contested says that an earlier Writer may have stored the record. A Writer with an Owner then shuts the earlier one
	// out of the record's part of the destination, and does not send the record if it is stored there. Contested records come
	// before all others. A Writer without one sends them.
	Contested bool

	// Copied says that the row was read from a table. So the record of it that an earlier Writer has stored may have another
	// timestamp and other headers. Contested records of copied rows come before those of others.
	Copied bool

	// Position is that of the row in the stream of the source. The same row has the same Position whenever it is
	// sent, and a row that is streamed later has a higher one. It is zero for a record that was not made from a
	// streamed row: of an initial copy, a replay, a refill, or a dead letter.
	Position Position
}

// Size returns the size of the key, the value and the headers in bytes. It is 0 for no record.
func (r *Record) Size() int {
	if r == nil {
		return 0
	}
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// Restamp sets the timestamp of r to now, and adds a [TimestampHeader] with the one that it had, unless r already has one.
func (r *Record) Restamp(now time.Time) {
	if n := len(r.Headers); n == 0 || r.Headers[n-1].Key != TimestampHeader {
		r.Headers = append(r.Headers, Header{Key: TimestampHeader, Value: r.Timestamp.UTC().AppendFormat(nil, TimestampFormat)})
	}
	r.Timestamp = now
}

// A Position is the place of a row in the stream of the source.
type Position struct {
	CommitLSN uint64 // of the transaction
	Index     int    // of the row in its transaction, from 0
}

// IsZero reports whether p is the position of no row.
func (p Position) IsZero() bool { return p == Position{} }
