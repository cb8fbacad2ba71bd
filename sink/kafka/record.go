package kafka

import "time"

// A Header is one header of a record. A nil Value is a null, an empty one is empty.
type Header struct {
	Key   string
	Value []byte
}

// A Record is one record to write.
type Record struct {
	// Seq names the record in the outcome reported by Run. It grows from Send to Send.
	Seq uint64

	Topic string

	// Partition is where the record goes, or AnyPartition: then the key decides, and
	// records without a key share a partition for as long as a batch stays open.
	Partition int32

	// Key and Value are null if nil, and empty if empty.
	Key, Value []byte

	Headers []Header

	// Timestamp has millisecond precision on the wire. The zero time stands for the moment
	// of Send; times before 1970 become 1970. Where the topic does not take it, the record
	// gets the present time and a TimestampHeader.
	Timestamp time.Time
}
