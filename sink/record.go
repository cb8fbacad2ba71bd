package sink

import "time"

// A Header is one header of a record. A nil Value is a null, an empty one is empty.
type Header struct {
	Key   string
	Value []byte
}

// AnyPartition lets the Writer choose a record's partition.
const AnyPartition int32 = -1

// TimestampHeader is the last header of a record that was written with the present time because
// its destination does not accept its own. The value is what Record.Timestamp was, in UTC as
// RFC 3339 has it, with milliseconds.
const TimestampHeader = "outbox_timestamp"

// A Record is one record to write.
type Record struct {
	// Seq identifies the record in the outcome that Run reports. It grows from Send to Send.
	Seq uint64

	// Topic is the destination, in the broker's own notation.
	Topic string

	// Partition is a part of the destination with an order of its own, or AnyPartition: then
	// the key decides, and records without a key may go to any. A broker without partitions
	// ignores it.
	Partition int32

	// Key and Value are null if nil, and empty if empty. Records with equal keys keep their
	// order.
	Key, Value []byte

	Headers []Header

	// Timestamp has millisecond precision. The zero time stands for the moment of Send. If the
	// destination does not accept it, the record gets the present time and a TimestampHeader.
	Timestamp time.Time
}
