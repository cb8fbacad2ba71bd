package sink

import "time"

// A Stat is a snapshot of a Sink, its current Writer and the position stores at the broker. Sizes in bytes are
// those of keys, values and headers.
type Stat struct {
	// Topics has the destinations that were written to since Open. If they are many, it has some of
	// them, always the same ones, and the sum of the others as OtherTopics.
	Topics map[string]TopicStat

	// InFlightRecords and InFlightBytes are the records that Send has accepted and the broker has
	// not acknowledged.
	InFlightRecords int
	InFlightBytes   int

	// WindowRecords and WindowBytes limit the records in flight at present, and so the number of
	// duplicates after a crash.
	WindowRecords int
	WindowBytes   int

	// WindowAdvice is how to deliver faster if the limits of the records in flight slow delivery down.
	// Otherwise it is empty.
	WindowAdvice string

	// Retries is the number of requests, or parts of requests, that were resent.
	Retries int64

	// Reconnects is the number of connections that replaced a lost one.
	Reconnects int64

	// DuplicatesPossible is how often some records may have been stored twice: a broker has lost the
	// producer state that prevents duplicates, or the records that an earlier Writer has stored in a part of a
	// destination are unknown. A Writer that recognizes stored records counts only the second. If the number
	// keeps growing, the broker may be losing data.
	DuplicatesPossible int64

	// StalledSince is the start of the oldest stall, and StallReason is its cause. A stall is a part
	// of a destination that makes no progress although it has records to send, or a position store
	// that cannot be read or written. Both are zero if nothing is stalled. StallMissing is the destination
	// that the stall waits for because it does not exist. StallAdvice is how to fix the cause; it may be empty.
	StalledSince time.Time
	StallReason  string
	StallMissing string
	StallAdvice  string

	// LastError is the last error that was retried, and LastErrorAt is its time.
	LastError   string
	LastErrorAt time.Time
}

// Acked returns the sum of all destinations.
func (s Stat) Acked() TopicStat {
	var sum TopicStat
	for _, t := range s.Topics {
		sum.Records += t.Records
		sum.Bytes += t.Bytes
	}
	return sum
}

// OtherTopics stands for the destinations without an entry of their own in [Stat].
const OtherTopics = "other"

// A TopicStat counts the acknowledged records of a destination.
type TopicStat struct {
	Records int64
	Bytes   int64
}
