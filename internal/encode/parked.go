package encode

import (
	"cmp"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Parked says to which parking of a key a dead letter belongs, and where it is in its order.
type Parked struct {
	// Parking identifies the time for which the key is parked, from its first bad record to its release. It
	// has no spaces.
	Parking string
	Place   Place
}

// A Place is the place of a dead letter in the order of its key. Places of one tenure have the order of the
// rows. A relay of a later tenure may send rows again that an earlier one has sent, and then sends every row after
// them too. So in the order of places the first dead letters of the rows are in order.
type Place struct {
	Tenure int64  // of the relay that has sent it: see checkpoint.Position
	Seq    uint64 // of the record, in that tenure
}

// Compare returns -1, 0 or 1 if p is before q, equal to q or after q.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Tenure, q.Tenure), cmp.Compare(p.Seq, q.Seq))
}

func (p Parked) header() sink.Header {
	return sink.Header{Key: DeadLetterParked, Value: fmt.Appendf(nil, "%s %d %d", p.Parking, p.Place.Tenure, p.Place.Seq)}
}

func parseParked(value string) (*Parked, error) {
	var p Parked
	if _, err := fmt.Sscanf(value, "%s %d %d", &p.Parking, &p.Place.Tenure, &p.Place.Seq); err != nil {
		return nil, err
	}
	return &p, nil
}

// Park adds to a dead letter that it belongs to a parked key, and sets the key of its record, so that all dead letters
// of a key are in one partition.
func Park(letter *sink.Record, key []byte, p Parked) *sink.Record {
	letter.Key = key
	letter.Headers = append(letter.Headers, p.header())
	return letter
}
