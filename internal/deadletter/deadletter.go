package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A DeadLetter is a record of the dead-letter topic.
type DeadLetter struct {
	PartitionOffset
	encode.DeadLetter
	Size    int       // of the value in bytes, also if that is left out
	Resent  time.Time // when it was last resent; zero: never
	Waiting bool      // its key is parked
	Passed  bool      // a release of its key, which is still parked, has sent it, or left it out because it was discarded

	// Elsewhere says that its key was parked under another slot than Filter.Relay. Whether the key is still parked is not known.
	Elsewhere bool

	// Lost says that its key was parked before the relay began to use the position store, or that the store has no set of parked keys: it was
	// lost, or the relay had another store. Whether the key was released is not known.
	Lost bool
}

// A Filter selects dead letters that match every field that is not empty.
type Filter struct {
	Offsets []PartitionOffset
	Topic   string    // the topic of the rejected record, or of the parked key of a row; any other row has none
	Slot    string    // the slot of the relay that has written it
	Reason  string    // part of the reason, ignoring case
	Since   time.Time // sent to the dead-letter topic then or later
	Resent  bool      // also those that were resent, and those of keys that were parked which do not wait any more

	// Parked returns the parked keys, or nil if nothing is known of them, and from when on they are known. It is called once, if there is a
	// dead letter of a key that was parked.
	Parked func(context.Context) (keys *parking.Record, began time.Time, err error)

	// Relay is the slot of the relay whose keys Parked returns. Empty: there is no other relay.
	Relay string

	// Resendable leaves out those whose key is parked, or was parked under another slot.
	Resendable bool
}

// matches reports whether f selects l, apart from l's offset, whether it was resent, and the topic of a row.
func (f *Filter) matches(l *encode.DeadLetter) bool {
	return (f.Topic == "" || l.Record.Topic == "" || l.Record.Topic == f.Topic) &&
		(f.Reason == "" || strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason))) &&
		!l.At.Before(f.Since)
}

func parseDeadLetter(stored *sink.StoredRecord) (*DeadLetter, bool) {
	parsed, ok := encode.ParseDeadLetter(&stored.Record)
	if !ok {
		return nil, false
	}
	return &DeadLetter{
		PartitionOffset: PartitionOffset{stored.Partition, stored.Offset}, DeadLetter: *parsed, Size: len(stored.Value),
	}, true
}

// A PartitionOffset is the partition and offset of a dead letter.
type PartitionOffset struct {
	Partition int32
	Offset    int64
}

// String returns partition and offset, as in 0:42.
func (p PartitionOffset) String() string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

// compare orders by partition, then by offset.
func (p PartitionOffset) compare(q PartitionOffset) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

// ParsePartitionOffset parses the format of String.
func ParsePartitionOffset(text string) (PartitionOffset, error) {
	partition, offset, ok := strings.Cut(text, ":")
	p, err := strconv.ParseUint(partition, 10, 31)
	o, offsetErr := strconv.ParseUint(offset, 10, 63)
	if !ok || err != nil || offsetErr != nil {
		return PartitionOffset{}, fmt.Errorf("%q is not a partition and an offset, as in 0:42", text)
	}
	return PartitionOffset{Partition: int32(p), Offset: int64(o)}, nil
}
