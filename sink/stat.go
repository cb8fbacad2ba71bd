package sink

import "time"

// A Stat is a snapshot of a Sink, its current Writer and its position stores. Bytes are those of
// keys, values and headers.
type Stat struct {
	// Topics holds every destination that was written to since Open.
	Topics map[string]TopicStat

	// InFlightRecords and InFlightBytes are what Send has accepted and the broker has not
	// acknowledged.
	InFlightRecords int
	InFlightBytes   int

	// WindowRecords and WindowBytes bound what is in flight, and with it what may be written
	// twice after a crash.
	WindowRecords int
	WindowBytes   int

	// Retries counts requests, or parts of them, that had to be sent again.
	Retries int64

	// Reconnects counts connections made in place of one that broke.
	Reconnects int64

	// DuplicatesPossible counts how often a broker lost track of what it has already stored:
	// after each, what was unacknowledged may be stored twice. A growing number can be the only
	// sign of a broker that loses data.
	DuplicatesPossible int64

	// StalledSince is when the oldest stall began: a part of a destination that makes no progress
	// although it has something to send, or a position store that cannot be read or written.
	// StallReason says why. Both are zero if nothing is stalled. StallMissing is the destination
	// that the stall waits for because it does not exist, and StallAdvice how to create it; both
	// are empty for any other stall.
	StalledSince time.Time
	StallReason  string
	StallMissing string
	StallAdvice  string

	// LastError is the latest thing that went wrong and was retried, at LastErrorAt.
	LastError   string
	LastErrorAt time.Time
}

// A TopicStat is what was acknowledged of one destination.
type TopicStat struct {
	Records int64
	Bytes   int64
}
