package deadletter

import (
	"encoding/json"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// MarkHeader is the only header of a mark: the place of the letter that was sent again.
const MarkHeader = "dead_letter_resent"

// A mark is the value of one.
type mark struct {
	Letter   string    `json:"letter"` // its place
	Topic    string    `json:"topic"`  // where it was sent
	ResentAt time.Time `json:"resent_at"`
}

// markFor returns the mark of the letter at p, which was sent to a topic.
func markFor(letters string, p Place, topic string, at time.Time) (*sink.Record, error) {
	value, err := json.Marshal(mark{Letter: p.String(), Topic: topic, ResentAt: at.UTC()})
	return &sink.Record{
		Topic: letters, Partition: p.Partition, Key: []byte("resent " + p.String()), Value: value,
		Headers: []sink.Header{{Key: MarkHeader, Value: []byte(p.String())}}, Timestamp: at,
	}, err
}

// markOf reports which letter a record marks, and when that was sent again.
func markOf(stored *sink.StoredRecord) (p Place, at time.Time, ok bool) {
	if len(stored.Headers) == 0 || stored.Headers[0].Key != MarkHeader {
		return Place{}, time.Time{}, false
	}
	p, err := ParsePlace(string(stored.Headers[0].Value))
	if err != nil || p.Partition != stored.Partition || p.Offset >= stored.Offset {
		return Place{}, time.Time{}, false
	}
	var m mark
	if json.Unmarshal(stored.Value, &m) != nil || m.ResentAt.IsZero() {
		return p, stored.Timestamp, true
	}
	return p, m.ResentAt, true
}
